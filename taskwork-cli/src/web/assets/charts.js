// Charts in SVG: lines, steps, areas, bands, bars, marks, a matrix. Each is a figure with a caption in words, a cursor
// that arrow keys and the pointer move, and a table of the same points behind a button.

import { choice, choose, em, h, measure, widthOf } from "./dom.js";
import { clock, known, moment } from "./text.js";

const SECOND = 1_000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR;
const TIME_STEPS = [1, 2, 5, 10, 15, 30].map((n) => n * SECOND).concat([1, 2, 5, 10, 15, 30].map((n) => n * MINUTE), [1, 2, 3, 6, 12].map((n) => n * HOUR), [1, 2, 7, 14, 28, 91, 182, 365].map((n) => n * DAY));

// The frame of every chart. `cursor` is { count, at, set, text }: `at` is null while nobody points anywhere.
function frame({ id, title, caption, tools, legend, cursor, plot, table, level = "h3" }) {
  const isTable = choice(`table:${id}`, false);
  const toggle = h("button", {
    type: "button", class: "quiet", "aria-expanded": String(isTable), "aria-controls": `table-${id}`,
    "aria-label": `${title}: table`, onclick: () => choose(`table:${id}`, !isTable),
  }, isTable ? "Hide table" : "Table");
  const move = (to) => cursor.set(Math.max(0, Math.min(cursor.count - 1, to)));
  const keys = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10, ...cursor.keys };
  const onkeydown = (event) => {
    const at = cursor.at ?? cursor.count - 1;
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key in keys) move(at + keys[event.key]);
    else if (event.key === "Home") move(0);
    else if (event.key === "End") move(cursor.count - 1);
    else if (event.key === "Escape") cursor.set(null);
    else return;
    event.preventDefault();
  };
  const value = cursor.at ?? cursor.count - 1;
  const pane = h("div", {
    class: "plot", tabindex: "0", role: "slider", "aria-label": `${title}: cursor`, "aria-describedby": `caption-${id}`,
    "aria-valuemin": "0", "aria-valuemax": String(Math.max(0, cursor.count - 1)), "aria-valuenow": String(Math.max(0, value)),
    "aria-valuetext": cursor.count > 0 ? cursor.text(value) : "nothing yet", onkeydown, onblur: () => cursor.set(null), ref: measure(id),
  }, widthOf(id) > 0 && plot(widthOf(id)));
  return h("figure", { class: "chart", key: id, "aria-labelledby": `title-${id}` },
    h("div", { class: "head" }, h(level, { id: `title-${id}` }, title), h("div", { class: "tools" }, tools, toggle)),
    h("figcaption", { id: `caption-${id}` }, caption),
    legend, pane,
    h("div", { id: `table-${id}`, class: "scroll", hidden: !isTable, tabindex: "0", role: "region", "aria-label": `${title}: values` }, isTable && table()));
}

function valuesTable(title, head, rows) {
  return h("table", { class: "values" },
    h("caption", { class: "hidden" }, title),
    h("thead", null, h("tr", null, head.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", null, rows.map((row) => h("tr", null, row.map((cell, at) => (at === 0 ? h("th", { scope: "row" }, cell) : h("td", null, cell)))))));
}

// Values at about `wanted` round numbers between two.
export function ticks(from, to, wanted) {
  const raw = (to - from) / Math.max(1, wanted);
  if (!(raw > 0)) return [from];
  const unit = 10 ** Math.floor(Math.log10(raw));
  const step = unit * [1, 2, 5, 10].find((n) => n * unit >= raw * 0.999);
  const found = [];
  for (let at = Math.ceil(from / step - 1e-9); at * step <= to + step * 1e-9; at += 1) found.push(Number((at * step).toPrecision(12)));
  return found;
}

function timeTicks(from, to, wanted) {
  const step = TIME_STEPS.find((n) => (to - from) / n <= wanted) ?? TIME_STEPS.at(-1);
  const zone = new Date(from).getTimezoneOffset() * MINUTE;
  const found = [];
  for (let at = Math.ceil((from - zone) / step) * step + zone; at <= to; at += step) found.push(at);
  return { step, found };
}

function logTicks(from, to) {
  const found = [];
  for (let power = Math.ceil(Math.log10(from) - 1e-9); power <= Math.log10(to) + 1e-9; power += 1) found.push(10 ** power);
  return found.length > 1 ? found : [from, to];
}

const r = (value) => Math.round(value * 10) / 10;

// A path through points, interrupted where a value is not known.
function path(points, x, y, isStep) {
  let d = "";
  let last = null;
  for (const [at, value] of points) {
    if (!known(value)) last = null;
    else {
      const [px, py] = [r(x(at)), r(y(value))];
      d += last === null ? `M${px} ${py}` : isStep ? `H${px}V${py}` : `L${px} ${py}`;
      last = py;
    }
  }
  return d;
}

// The outline of what lies between two values at each point.
function outline(points, x, y, steps) {
  let d = "";
  let run = [];
  const end = () => {
    if (run.length > 1) {
      const there = run.map(([px, low]) => `${px} ${low}`);
      const back = run.map(([px, , high]) => `${px} ${high}`).reverse();
      d += `M${there.join("L")}L${back.join("L")}Z`;
    }
    run = [];
  };
  for (const [at, low, high] of points) {
    if (!known(low) || !known(high)) end();
    else {
      const next = [r(x(at)), r(y(low)), r(y(high))];
      const before = run.at(-1);
      if (before && steps) run.push([next[0], steps === "both" ? before[1] : next[1], before[2]]);
      run.push(next);
    }
  }
  end();
  return d;
}

function layer({ kind, cls, points, steps }, x, y) {
  if (kind === "bars") {
    const [base] = [y(0)];
    return points.filter((bar) => bar[2] > 0).map(([from, to, value]) => h("rect", { class: cls, x: r(x(from)) + 0.5, width: Math.max(1, r(x(to) - x(from)) - 1), y: r(y(value)), height: Math.max(1, r(base - y(value))) }));
  }
  const d = kind === "area" || kind === "band" ? outline(points, x, y, steps) : path(points, x, y, kind === "step");
  return d && h("path", { class: `${kind === "area" || kind === "band" ? "fill" : "stroke"} ${cls}`, d });
}

const GLYPHS = { joined: "M-4 3L0 -4L4 3Z", left: "M-4 -3L0 4L4 -3Z", lost: "M-4 -4L4 4M4 -4L-4 4", best: "M0 -4L4 0L0 4L-4 0Z", notice: "M-3 -3H3V3H-3Z" };

export const glyph = (kind) => h("svg", { class: `glyph mark ${kind}`, viewBox: "-6 -6 12 12", "aria-hidden": "true" }, h("path", { d: GLYPHS[kind] ?? GLYPHS.notice }));

const swatch = (kind) => h("span", { class: `swatch ${kind}`, "aria-hidden": "true" });

// A chart over an axis of times or numbers. `xs` are where its values stand; `columns` are what they are, each with
// { name, cls, at(index) }; `layers` are what is drawn; `marks` are { x, kind, text } above it.
export function chart({ id, title, caption, tools, group = id, xs, x, y, layers, columns, marks = [], height = 13, isTime = true, xFormat, xName = "time", level }) {
  const key = `cursor:${group}`;
  const pointed = choice(key, null);
  const nearest = (value) => {
    let best = null;
    for (let at = 0; at < xs.length; at += 1) if (best === null || Math.abs(xs[at] - value) < Math.abs(xs[best] - value)) best = at;
    return best;
  };
  const at = pointed === null ? null : nearest(pointed);
  const shown = at ?? xs.length - 1;
  const nameX = xFormat ?? ((value) => clock(value, x[1]));
  const cursor = {
    count: xs.length, at,
    set: (to) => pointed !== (to === null ? null : xs[to]) && choose(key, to === null ? null : xs[to]),
    text: (index) => `${nameX(xs[index])}: ${columns.map(({ name, at: value }) => `${name} ${value(index) ?? "unknown"}`).join(", ")}`,
  };
  const legend = h("p", { class: "legend" },
    h("span", { class: "when" }, xs.length > 0 && (isTime ? (at === null ? "now" : moment(xs[shown], x[1])) : at === null ? "" : nameX(xs[shown]))),
    columns.map(({ name, cls, at: value }) => h("span", { class: "item" }, cls && swatch(cls), `${name} `, xs.length > 0 && !(at === null && !isTime) && h("b", null, value(shown) ?? "–"))));
  const plot = (width) => {
    const size = em();
    const [left, right, top, bottom] = [size * 3.6, size * 0.5, marks.length > 0 ? size * 1.3 : size * 0.6, size * 1.6];
    const full = size * height;
    const px = (value) => left + ((value - x[0]) / (x[1] - x[0] || 1)) * (width - left - right);
    const back = (position) => x[0] + ((position - left) / (width - left - right)) * (x[1] - x[0]);
    const place = y.log ? (value) => Math.log10(Math.max(value, y.from)) : (value) => value;
    const [from, to] = [place(y.from), place(y.to)];
    const py = (value) => full - bottom - ((place(value) - from) / (to - from || 1)) * (full - top - bottom);
    const time = isTime ? timeTicks(x[0], x[1], Math.max(2, width / (size * 6))) : { found: ticks(x[0], x[1], Math.max(2, width / (size * 6))) };
    const xText = (value) => (isTime ? (time.step >= DAY ? clock(value, 0, false).slice(5, 10) : clock(value, value, time.step < MINUTE)) : nameX(value));
    const pointer = (event) => {
      const box = event.currentTarget.getBoundingClientRect();
      const to = nearest(back(event.clientX - box.left));
      if (to !== null) cursor.set(to);
    };
    const rows = (y.log ? logTicks(y.from, y.to) : ticks(y.from, y.to, Math.max(2, full / (size * 3.2)))).map((value) => [
      h("line", { class: "rule", x1: left, x2: width - right, y1: r(py(value)), y2: r(py(value)) }),
      h("text", { class: "tick", x: left - size * 0.5, y: r(py(value)), dy: "0.32em", "text-anchor": "end" }, y.format(value)),
    ]);
    const cells = time.found.map((value) => h("text", { class: "tick", x: r(px(value)), y: full - size * 0.3, "text-anchor": px(value) > width - size * 2 ? "end" : "middle" }, xText(value)));
    return h("svg", { width, height: full, "aria-hidden": "true", onpointermove: pointer, onpointerdown: pointer, onpointerleave: () => cursor.set(null) },
      h("rect", { class: "ground", x: left, y: 0, width: Math.max(0, width - left - right), height: full - bottom }),
      rows, cells, layers.map((one) => layer(one, px, py)),
      together(marks, px).map(({ px: mark, kind, text }) => h("g", { class: `mark ${kind}`, transform: `translate(${r(mark)} ${r(size * 0.6)})` }, h("title", null, text), h("line", { y1: 6, y2: r(full - bottom - size * 0.6) }), h("path", { d: GLYPHS[kind] ?? GLYPHS.notice }))),
      h("line", { class: "axis", x1: left, x2: width - right, y1: r(full - bottom), y2: r(full - bottom) }),
      at !== null && h("line", { class: "cursor", x1: r(px(xs[at])), x2: r(px(xs[at])), y1: top / 2, y2: full - bottom }));
  };
  const table = () => valuesTable(title, [xName, ...columns.map(({ name }) => name)], xs.map((value, index) => [isTime ? moment(value, x[1]) : nameX(value), ...columns.map(({ at: of }) => of(index) ?? "–")]));
  return frame({ id, title, caption, tools, legend, cursor, plot, table, level });
}

// Marks of one kind that would cover each other become one.
function together(marks, px) {
  const found = [];
  for (const { x, kind, text } of marks) {
    const last = found.findLast((mark) => mark.kind === kind);
    if (last && px(x) - last.px < 9) {
      last.texts.push(text);
      last.text = last.texts.length > 4 ? `${last.texts.slice(0, 3).join("; ")}; and ${last.texts.length - 3} more` : last.texts.join("; ");
    } else found.push({ px: px(x), kind, text, texts: [text] });
  }
  return found;
}

// The parts of a whole as one bar, with their names and shares below it.
export function parts({ id, title, caption, of, format, level }) {
  const sum = of.reduce((total, part) => total + part.value, 0);
  const shares = shared(of.map((part) => part.value), sum);
  const key = `cursor:${id}`;
  const at = choice(key, null);
  const cursor = { count: of.length, at, set: (to) => choose(key, to), text: (index) => `${of[index].name} ${shares[index]}, ${format(of[index].value)}` };
  const plot = (width) => {
    const size = em();
    let from = 0;
    return h("svg", { width, height: size * 2, "aria-hidden": "true", onpointerleave: () => cursor.set(null) }, of.map((part, index) => {
      const long = sum > 0 ? (part.value / sum) * width : 0;
      const x = from;
      from += long;
      return h("rect", { class: `part ${part.cls}${at === index ? " pointed" : ""}`, x: r(x), width: Math.max(0, r(long) - (long > 3 ? 1.5 : 0)), y: 3, height: size * 2 - 6, onpointermove: () => cursor.set(index) }, h("title", null, cursor.text(index)));
    }));
  };
  const legend = h("ul", { class: "parts" }, of.map((part, index) => h("li", { class: at === index ? "pointed" : "" }, swatch(part.cls), h("span", null, part.name), h("b", null, shares[index]), h("span", { class: "muted" }, format(part.value)))));
  const table = () => valuesTable(title, ["part", "share", "value"], of.map((part, index) => [part.name, shares[index], format(part.value)]));
  return frame({ id, title, caption, cursor, plot, table, legend, level });
}

// Shares in tenths of a per cent that add up to 100 %: what rounding takes from some it gives to those that lose most.
export function shared(values, sum) {
  if (!(sum > 0)) return values.map(() => "–");
  const exactly = values.map((value) => (value / sum) * 1000);
  const tenths = exactly.map(Math.floor);
  const order = exactly.map((value, at) => [value - tenths[at], at]).sort((a, b) => b[0] - a[0]);
  const missing = 1000 - tenths.reduce((a, b) => a + b, 0);
  for (let at = 0; at < missing; at += 1) tenths[order[at % order.length][1]] += 1;
  return tenths.map((value) => `${(value / 10).toFixed(1)}\u202f%`);
}

// Who gave whom how much: a row for each giver, a column for each taker.
export function matrix({ id, title, caption, names, cells, format, rowName, columnName, level }) {
  const key = `cursor:${id}`;
  const at = choice(key, null);
  const n = names.length;
  const most = Math.max(1, ...cells.flat());
  const text = (index) => `${names[Math.floor(index / n)]} to ${names[index % n]}: ${format(cells[Math.floor(index / n)][index % n])}`;
  const cursor = { count: n * n, at, set: (to) => at !== to && choose(key, to), text, keys: { ArrowUp: -n, ArrowDown: n } };
  const plot = (width) => {
    const size = em();
    const room = Math.min(size * 7, Math.max(...names.map((name) => name.length)) * size * 0.5 + size);
    const cell = Math.max(6, Math.min(size * 2.4, (width - room) / n));
    const short = (name) => (name.length > 12 ? `${name.slice(0, 11)}…` : name);
    const every = Math.ceil((size * 0.9) / cell);
    const pointer = (event) => {
      const box = event.currentTarget.getBoundingClientRect();
      const column = Math.floor((event.clientX - box.left - room) / cell);
      const row = Math.floor((event.clientY - box.top - size * 1.5) / cell);
      cursor.set(column >= 0 && column < n && row >= 0 && row < n ? row * n + column : null);
    };
    const numbers = names.map((name, index) => index % every === 0 && [
      h("text", { class: "tick", x: room - size * 0.4, y: size * 1.5 + (index + 0.5) * cell, dy: "0.32em", "text-anchor": "end" }, short(name)),
      h("text", { class: "tick", x: room + (index + 0.5) * cell, y: size, "text-anchor": "middle" }, cell > size * 2 && name.length < 5 ? name : String(index + 1)),
    ]);
    return h("svg", { width, height: size * 2 + cell * n, "aria-hidden": "true", onpointermove: pointer, onpointerleave: () => cursor.set(null) },
      numbers,
      cells.map((row, from) => row.map((value, to) => h("rect", {
        class: `cell${at === from * n + to ? " pointed" : ""}`, x: r(room + to * cell) + 0.5, y: r(size * 1.5 + from * cell) + 0.5, width: r(cell - 1), height: r(cell - 1), rx: 2,
        "fill-opacity": value > 0 ? r(0.15 * 10 + 8.5 * Math.sqrt(value / most)) / 10 : 0.04,
      }))));
  };
  const legend = h("p", { class: "legend" }, h("span", { class: "item" }, at === null ? `rows: ${rowName}; columns, in the same order: ${columnName}` : h("b", null, text(at))));
  const table = () => valuesTable(title, [`${rowName} \\ ${columnName}`, ...names], cells.map((row, from) => [names[from], ...row.map(format)]));
  return frame({ id, title, caption, cursor, plot, table, legend, level });
}

// A small line without axes, beside the number that it is about.
export function spark(values) {
  const most = Math.max(1e-9, ...values.filter(known));
  const x = (at) => (at / Math.max(1, values.length - 1)) * 100;
  const y = (value) => 23 - (value / most) * 21;
  const points = values.map((value, at) => [at, value]);
  return h("svg", { class: "spark", viewBox: "0 0 100 24", preserveAspectRatio: "none", "aria-hidden": "true" },
    h("path", { class: "fill c1", d: outline(points.map(([at, value]) => [at, 0, value]), x, y) }), h("path", { class: "stroke c1", d: path(points, x, y) }));
}
