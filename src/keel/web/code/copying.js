// Text for the clipboard.
//
// In: the element that shows the text. Out: whether it was copied. Browsers have a clipboard for pages on HTTPS and on
// this machine only; elsewhere the text is selected, and copied the old way.

export async function copy(element) {
  try {
    await navigator.clipboard.writeText(element.textContent);
    return true;
  } catch {
    getSelection().selectAllChildren(element);
    return document.execCommand("copy");
  }
}
