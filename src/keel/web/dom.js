// Elements from plain calls.
//
// In: a tag, its properties, its children. Out: an element.
// Strings become text nodes, so nothing that a model or a user wrote is ever read as markup; there is no innerHTML in
// this page. Styles are set on the element's `style`, because the policy of the page forbids style attributes.

const SVG = "http://www.w3.org/2000/svg";

export const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);
export const svg = (tag, props, ...children) => fill(document.createElementNS(SVG, tag), props, children);

// `on`: listeners; `style`: custom properties and styles; true: an attribute without a value; null and false: none.
function fill(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [kind, listener] of Object.entries(value)) element.addEventListener(kind, listener);
    else if (name === "style") setStyles(element, value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function setStyles(element, styles) {
  for (const [name, value] of Object.entries(styles)) element.style.setProperty(name, value);
}

export function replace(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
}

let made = 0;

// An id that no other element of this page has.
export const freshId = (prefix) => `${prefix}-${++made}`;
