// Builds and updates the page. Whatever comes from outside becomes text nodes and attribute values, never markup.

const SVG = "http://www.w3.org/2000/svg";

// Describes an element. Children that are null, false or empty are left out.
export function h(tag, attrs, ...children) {
  const some = (child) => child !== null && child !== undefined && child !== false && child !== "";
  return { tag, attrs: attrs ?? {}, children: children.flat(Infinity).filter(some) };
}

// Makes the children of `parent` those that are described. Elements stay what they are wherever possible, so that
// focus, scroll positions and selected text survive an update. Elements with a `key` keep their identity when moved.
export function patch(parent, wanted) {
  const keyed = new Map();
  for (const child of parent.children) if (child.__key !== undefined) keyed.set(child.__key, child);
  const keys = new Set(wanted.map((node) => node.attrs?.key));
  let at = parent.firstChild;
  for (const node of wanted) {
    while (at?.__key !== undefined && !keys.has(at.__key)) at = drop(at);
    if (typeof node !== "object") {
      const text = String(node);
      if (at?.nodeType !== Node.TEXT_NODE) {
        parent.insertBefore(document.createTextNode(text), at);
        continue;
      }
      if (at.data !== text) at.data = text;
      at = at.nextSibling;
      continue;
    }
    const { key } = node.attrs;
    const fits = (element) => element?.__tag === node.tag && element.__key === key;
    let element = key === undefined ? at : keyed.get(key);
    if (!fits(element)) element = create(parent, node);
    if (element === at) at = at.nextSibling;
    else parent.insertBefore(element, at);
    update(element, node);
  }
  while (at) at = drop(at);
}

function drop(element) {
  const next = element.nextSibling;
  element.remove();
  return next;
}

function create(parent, { tag, attrs }) {
  const inSvg = tag === "svg" || (parent.namespaceURI === SVG && parent.tagName !== "foreignObject");
  const element = inSvg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  [element.__tag, element.__key, element.__attrs] = [tag, attrs.key, {}];
  attrs.ref?.(element);
  return element;
}

function update(element, { attrs, children }) {
  const old = element.__attrs;
  for (const name in old) if (!(name in attrs)) set(element, name, null);
  for (const name in attrs) if (name === "style" || old[name] !== attrs[name]) set(element, name, attrs[name]);
  element.__attrs = attrs;
  patch(element, children);
}

function set(element, name, value) {
  if (name === "key" || name === "ref") return;
  if (name.startsWith("on")) element[name] = value;
  else if (name === "style") for (const part in value ?? {}) element.style.setProperty(part, value[part]);
  else if (name === "value" || name === "checked" || name === "selected") element[name] = value;
  else if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else element.setAttribute(name, value === true ? "" : value);
}

// What the reader has chosen (sort orders, open tables, cursors), by keys, until the page is left.
const chosen = new Map();
let draw = () => {};
let due = false;

export const choice = (key, initial) => (chosen.has(key) ? chosen.get(key) : initial);

export function choose(key, value) {
  chosen.set(key, value);
  redraw();
}

export function drawBy(pages) {
  draw = pages;
}

// Draws soon, and only once however often it is asked for.
export function redraw() {
  if (due) return;
  due = true;
  requestAnimationFrame(() => {
    due = false;
    draw();
  });
}

// The widths of elements, by keys: charts are drawn in the pixels that they have, so that text keeps its size.
const widths = new Map();
const observer = new ResizeObserver((entries) => {
  for (const { target, contentRect } of entries) {
    if (!target.isConnected) observer.unobserve(target);
    else if (contentRect.width > 0 && widths.get(target.__measured) !== contentRect.width) {
      widths.set(target.__measured, contentRect.width);
      redraw();
    }
  }
});

export const widthOf = (key) => widths.get(key) ?? 0;

export function measure(key) {
  return (element) => {
    element.__measured = key;
    observer.observe(element);
  };
}

// The size of the text in pixels, to leave room for it.
export const em = () => parseFloat(getComputedStyle(document.documentElement).fontSize) || 16;

// Says something to those who cannot see it.
export function announce(text) {
  const region = document.getElementById("announcer");
  if (region && region.textContent !== text) region.textContent = text;
}
