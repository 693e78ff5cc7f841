// Builds and updates the page. External data becomes text nodes and attribute values, never markup.

// Describes an element. Children that are null, false or empty are omitted.
export function h(tag, attrs, ...children) {
  const some = (child) => child !== null && child !== undefined && child !== false && child !== "";
  return { tag, attrs: attrs ?? {}, children: children.flat(Infinity).filter(some) };
}

// Updates the children of `parent` to the described ones. Existing elements are reused wherever possible, so that
// focus, scroll positions and selected text survive. Elements with a `key` keep their identity when they move; several
// with the same key are matched in order.
export function patch(parent, wanted) {
  const keys = new Set();
  for (const { attrs } of wanted) if (attrs?.key !== undefined) keys.add(attrs.key);
  const keyed = new Map();
  if (keys.size > 0) for (const child of parent.children) if (child.__key !== undefined) keyed.get(child.__key)?.push(child) ?? keyed.set(child.__key, [child]);
  let at = parent.firstChild;
  for (const node of wanted) {
    while (at?.__key !== undefined && !keys.has(at.__key)) at = drop(at);
    if (typeof node !== "object") {
      if (at?.nodeType !== Node.TEXT_NODE) parent.insertBefore(document.createTextNode(node), at);
      else {
        if (at.data !== String(node)) at.data = node;
        at = at.nextSibling;
      }
      continue;
    }
    const { key } = node.attrs;
    let element = key === undefined ? at : keyed.get(key)?.shift();
    if (element?.__tag !== node.tag || element.__key !== key) element = create(parent, node);
    if (element === at) at = at.nextSibling;
    else parent.insertBefore(element, at);
    const old = element.__attrs;
    for (const name in old) if (!(name in node.attrs)) set(element, name, null);
    for (const name in node.attrs) if (old[name] !== node.attrs[name]) set(element, name, node.attrs[name]);
    element.__attrs = node.attrs;
    patch(element, node.children);
  }
  while (at) at = drop(at);
}

function drop(element) {
  const next = element.nextSibling;
  element.remove();
  return next;
}

function create(parent, { tag, attrs }) {
  const svg = "http://www.w3.org/2000/svg";
  const isSvg = tag === "svg" || parent.namespaceURI === svg;
  const element = isSvg ? document.createElementNS(svg, tag) : document.createElement(tag);
  [element.__tag, element.__key, element.__attrs] = [tag, attrs.key, {}];
  attrs.ref?.(element);
  return element;
}

function set(element, name, value) {
  if (name === "key" || name === "ref") return;
  if (name.startsWith("on") || name === "value" || name === "checked") element[name] = value;
  else if (name === "style") {
    for (const part in value) if (element.style[part] !== value[part]) element.style[part] = value[part];
  } else if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else element.setAttribute(name, value === true ? "" : value);
}

// The reader's choices (sort orders, open tables, cursors), by key, until the page is closed.
const chosen = new Map();
let draw = () => {};
let isDue = false;

export const choice = (key, initial) => (chosen.has(key) ? chosen.get(key) : initial);

export function choose(key, value) {
  chosen.set(key, value);
  redraw();
}

export function drawBy(pages) {
  draw = pages;
}

// Schedules a drawing; several requests lead to one.
export function redraw() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    textSize = parseFloat(getComputedStyle(document.documentElement).fontSize) || 16;
    draw();
  });
}

// The widths of elements, by key: charts are drawn in real pixels, so that their text keeps its size.
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

export const measure = (key) => (element) => {
  element.__measured = key;
  observer.observe(element);
};

// The size of the text in pixels, to reserve space for it.
let textSize = 16;
export const em = () => textSize;
