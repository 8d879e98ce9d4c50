// Helpers to make elements; text is only ever set as text.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

export function shape(tag, attributes = {}, text = "") {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  return made;
}

/** The parts of a name, with places between them where a line may end. */
export const breakable = (name) => name.split(/(?<=_)/).flatMap((part, n) => (n ? [element("wbr"), part] : [part]));

export const percent = (share, digits = 2) => `${(100 * share).toFixed(digits)} %`;
export const seconds = (value) => `${value.toFixed(1)} s`;
