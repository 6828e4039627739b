// This file makes elements of the document. Users choose the names of programs and jobs, so these
// names enter the document only as text, through h().

/** h makes an element. Its children are elements or texts; null and undefined are left out. */
export function h(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) e.setAttribute(name, value);
  }
  e.append(...children.flat(2).filter((c) => c !== null && c !== undefined));
  return e;
}

/** fill replaces the children of an element, unless they are equal already. */
export function fill(element, ...children) {
  const fresh = h('div', {}, ...children);
  if (element.innerHTML !== fresh.innerHTML) element.replaceChildren(...fresh.childNodes);
}

/** set sets an attribute, unless it has the value already. */
export function set(element, name, value) {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

export const empty = (text) => h('p', { class: 'empty' }, text);

/** color returns the value of a variable of page.css. */
export function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
