// Elements are made of text, never of markup: names of files and classes may hold anything.
export const find = (id) => document.getElementById(id);

export function make(kind, attributes = {}, ...children) {
  const element = document.createElement(kind);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

export function draw(kind, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", kind);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export function setText(id, text) {
  const element = find(id);
  if (element.textContent !== text) element.textContent = text;
}

export const count = (number) => number.toLocaleString("en");
export const percent = (share, digits = 0) => `${(100 * share).toFixed(digits)} %`;
