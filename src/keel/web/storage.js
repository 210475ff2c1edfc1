// What the browser keeps: for this window (session) or for good (local).
//
// In: names and texts. Out: the text, or null. A browser may refuse storage; the page then only forgets.

const guarded = (use) => {
  try {
    return use();
  } catch {
    return null;
  }
};

export const session = (name) => guarded(() => sessionStorage.getItem(name));
export const setSession = (name, text) => guarded(() => sessionStorage.setItem(name, text));
export const local = (name) => guarded(() => localStorage.getItem(name));
export const setLocal = (name, text) => guarded(() => localStorage.setItem(name, text));
