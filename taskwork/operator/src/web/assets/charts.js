// SVG charts: lines, steps, areas, bands, bars, marks, the parts of a whole, a matrix. Each is a figure with a caption, a
// cursor for arrow keys and the pointer, and a button that shows a table of the same points.

import { choice, choose, em, h, measure, widthOf } from "./dom.js";
import { save } from "./save.js";
import { clock, isTime, known, moment, total, whole } from "./text.js";

const MINUTE = 60_000, HOUR = 60 * MINUTE, DAY = 24 * HOUR;
const STEPS = [[1_000, [1, 2, 5, 10, 15, 30]], [MINUTE, [1, 2, 5, 10, 15, 30]], [HOUR, [1, 2, 3, 6, 12]], [DAY, [1, 2, 7, 14, 28, 91, 182, 365]]];
const TIME_STEPS = STEPS.flatMap(([unit, steps]) => steps.map((n) => n * unit));
const TICKS_MAX = 40;
const KEYS = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10, Home: -Infinity, End: Infinity };

// The frame of every chart, with a cursor over `size` values that `text(index)` describes. For screen readers it is a
// slider, which announces each value. `table` has a head and rows of texts, `raw` has the numbers for saving to a
// file.
function frame({ id, title, caption, level = "h3", tools, size, at, move, text, keys, legend, plot, table, raw }) {
  const isOpen = choice(`table:${id}`, false);
  const last = Math.max(0, size - 1);
  const onkeydown = (event) => {
    const step = { ...KEYS, ...keys }[event.key];
    if (event.ctrlKey || event.altKey || event.metaKey || (step === undefined && event.key !== "Escape")) return;
    event.preventDefault();
    move(step === undefined ? null : Math.max(0, Math.min(last, (at ?? last) + step)));
  };
  const table2 = () => h("table", { class: "values" },
    h("caption", { class: "hidden" }, title),
    h("thead", null, h("tr", null, table.head.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", null, table.rows().map(([name, ...cells]) => h("tr", null, h("th", { scope: "row" }, name), cells.map((cell) => h("td", null, cell))))));
  return h("figure", { class: "chart", key: id, "aria-labelledby": `title-${id}` },
    h("div", { class: "head" }, h(level, { id: `title-${id}` }, title),
      h("div", { class: "tools" }, tools, h("button", { type: "button", class: "quiet", "aria-expanded": String(isOpen), "aria-label": `${title}: ${isOpen ? "hide table" : "table"}`, onclick: () => choose(`table:${id}`, !isOpen) }, isOpen ? "Hide table" : "Table"),
        ["CSV", "JSON"].map((kind) => h("button", { type: "button", class: "quiet", "aria-label": `${title}: save as ${kind}`, onclick: () => save(title, kind.toLowerCase(), raw) }, kind)))),
    h("figcaption", { id: `caption-${id}` }, caption), legend,
    h("div", {
      class: "plot", tabindex: "0", role: "slider", "aria-label": `${title}: cursor`, "aria-describedby": `caption-${id}`, ref: measure(id),
      "aria-valuemin": "0", "aria-valuemax": String(last), "aria-valuenow": String(at ?? last), "aria-valuetext": size > 0 ? text(at ?? last) : "nothing yet",
      onkeydown, onblur: () => move(null), onpointerleave: () => move(null),
    }, widthOf(id) > 0 && plot(widthOf(id), em())),
    isOpen && h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${title}: values` }, table2()));
}

// Returns about `wanted` round numbers between two numbers.
function ticks(from, to, wanted) {
  const raw = (to - from) / Math.max(1, wanted);
  if (!(raw > 0)) return [from];
  const unit = 10 ** Math.floor(Math.log10(raw));
  return multiples(unit * [1, 2, 5, 10].find((n) => n * unit >= raw * 0.999), from, to);
}

function multiples(step, from, to, shift = 0) {
  const first = Math.ceil((from - shift) / step - 1e-9);
  const found = Array.from({ length: TICKS_MAX }, (_, at) => Number(((first + at) * step + shift).toPrecision(14)));
  return found.filter((value) => value <= to + step * 1e-9);
}

const round = (value) => Math.round(value * 10) / 10;

// Returns a path through [x, y], interrupted where y is unknown.
function line(points, x, y, isStep) {
  let isOn = false;
  return points.map(([at, value]) => {
    const before = isOn;
    isOn = known(value);
    if (!isOn) return "";
    const [px, py] = [round(x(at)), round(y(value))];
    return !before ? `M${px} ${py}` : isStep ? `H${px}V${py}` : `L${px} ${py}`;
  }).join("");
}

// Returns the outline of the area between the two values of [x, low, high]; in steps if both hold until the next point.
function outline(points, x, y, isStep) {
  let [d, run] = ["", []];
  const end = () => {
    if (run.length > 1) d += `M${run.map(([px, low]) => `${px} ${low}`).join("L")}L${run.map(([px, , high]) => `${px} ${high}`).reverse().join("L")}Z`;
    run = [];
  };
  for (const [at, low, high] of points) {
    if (known(low) && known(high)) {
      const next = [round(x(at)), round(y(low)), round(y(high))];
      if (isStep && run.length > 0) run.push([next[0], ...run.at(-1).slice(1)]);
      run.push(next);
    } else end();
  }
  end();
  return d;
}

function layer({ kind, cls, points, isStep = kind === "step" }, x, y) {
  if (kind === "bars") return points.map(([from, to, value]) => value > 0 && h("rect", { class: cls, x: round(x(from)) + 0.5, width: Math.max(1, round(x(to) - x(from)) - 1), y: round(y(value)), height: Math.max(1, round(y(0) - y(value))) }));
  return h("path", kind === "band" ? { class: `fill ${cls}`, d: outline(points, x, y, isStep) } : { class: `stroke ${cls}`, d: line(points, x, y, isStep) });
}

const SHAPES = { joined: "M-4 3L0-4 4 3Z", left: "M-4-3L0 4 4-3Z", lost: "M-4-4L4 4M4-4L-4 4", best: "M0-4L4 0 0 4-4 0Z", other: "M-3-3H3V3H-3Z" };
const shape = (kind) => h("path", { d: SHAPES[kind] ?? SHAPES.other });

export const glyph = (kind) => h("svg", { class: `glyph mark ${kind}`, viewBox: "-6 -6 12 12", "aria-hidden": "true" }, shape(kind));

const swatch = (kind) => h("span", { class: `swatch ${kind}`, "aria-hidden": "true" });

// A chart over times or numbers `xs`, from x[0] to x[1]. Each column is { name, cls, at(index), value(index) }, a text and
// a number; each layer is { kind, cls, points }; marks above it are { x, kind, text() }. Charts of one `group` share a
// cursor. Numbers are formatted by `nameX`; `isLapse` means times since a start.
export function chart({ xs, x, y, layers, columns, marks = [], height = 13, nameX, isLapse, rawX, group, ...more }) {
  const key = `cursor:${group ?? more.id}`;
  const pointed = choice(key, null);
  const nearest = (value) => xs.reduce((best, one, index) => (Math.abs(one - value) < Math.abs(xs[best] - value) ? index : best), 0);
  const at = pointed === null || xs.length === 0 ? null : nearest(pointed);
  const name = nameX ?? ((value) => clock(value, x[1]));
  const move = (to) => pointed !== (to === null ? null : xs[to]) && choose(key, to === null ? null : xs[to]);
  const shown = at ?? xs.length - 1;
  const tells = (at !== null || !nameX) && xs.length > 0;
  const legend = h("p", { class: "legend" }, h("span", { class: "when" }, tells && (at === null ? "last" : name(xs[at]))),
    columns.map(({ name: what, cls, at: value }) => h("span", null, cls && swatch(cls), `${what} `, tells && h("b", null, value(shown) ?? "–"))));
  const plot = (width, size) => {
    const [left, right, top, full] = [size * 3.6, width - size * 0.5, size * (marks.length > 0 ? 1.3 : 0.6), size * height];
    const bottom = full - size * 1.6;
    const px = (value) => left + ((value - x[0]) / (x[1] - x[0] || 1)) * (right - left);
    const scale = y.isLog ? (value) => Math.log10(Math.max(value, y.from)) : (value) => value;
    const py = (value) => bottom - ((scale(value) - scale(y.from)) / (scale(y.to) - scale(y.from) || 1)) * (bottom - top);
    const wanted = Math.max(2, width / (size * 6));
    const step = TIME_STEPS.find((one) => (x[1] - x[0]) / one <= wanted) ?? TIME_STEPS.at(-1);
    const zone = new Date(x[0]).getTimezoneOffset() * MINUTE;
    const even = nameX && !isLapse ? ticks(x[0], x[1], wanted) : multiples(step, x[0], x[1], nameX ? 0 : zone);
    // Days start an hour earlier or later after a change to or from summer time.
    const across = nameX || step < DAY ? even : even.map((value) => new Date(value + DAY / 2).setHours(0, 0, 0, 0));
    const nameTick = nameX ?? ((value) => (step >= DAY ? clock(value, 0).slice(5, 10) : clock(value, value, step < MINUTE)));
    const up = y.isLog ? multiples(Math.ceil((scale(y.to) - scale(y.from)) / 6) || 1, scale(y.from), scale(y.to)).map((power) => 10 ** power) : ticks(y.from, y.to, Math.max(2, full / (size * 3.2)));
    const point = (event) => move(nearest(x[0] + ((event.clientX - event.currentTarget.getBoundingClientRect().left - left) / (right - left)) * (x[1] - x[0])));
    return h("svg", { width, height: full, "aria-hidden": "true", onpointermove: point, onpointerdown: point },
      up.map((value) => [
        h("line", { class: "rule", x1: left, x2: right, y1: round(py(value)), y2: round(py(value)) }),
        h("text", { x: left - size * 0.5, y: round(py(value)), dy: "0.32em", "text-anchor": "end" }, y.format(value)),
      ]),
      across.map((value) => h("text", { x: round(px(value)), y: full - size * 0.3, "text-anchor": px(value) > right - size * 2 ? "end" : "middle" }, nameTick(value))),
      layers.map((one) => one && layer(one, px, py)),
      together(marks, px).map(({ px: mark, kind, texts }) => h("g", { class: `mark ${kind}`, transform: `translate(${round(mark)} ${round(size * 0.6)})` },
        h("title", null, texts.slice(0, 4).map((text) => text()).join("; "), texts.length > 4 && `; and ${texts.length - 4} more`), h("line", { y1: 6, y2: round(bottom - size * 0.6) }), shape(kind))),
      h("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }),
      at !== null && h("line", { class: "cursor", x1: round(px(xs[at])), x2: round(px(xs[at])), y1: top / 2, y2: bottom }));
  };
  const tell = (index) => columns.map((column) => column.at(index) ?? "unknown");
  const [heads, times] = rawX ? [[rawX.name], (index) => [rawX.at(index)]] : [["at_ms", "time"], (index) => [xs[index], isTime(xs[index]) ? new Date(xs[index]).toISOString() : null]];
  const raw = { head: [...heads, ...columns.map((column) => column.name)], rows: () => xs.map((_, index) => [...times(index), ...columns.map((column) => (column.value ?? column.at)(index))]) };
  return frame({
    ...more, size: xs.length, at, move, legend, plot, raw, text: (index) => `${name(xs[index])}: ${columns.map((column, of) => `${column.name} ${tell(index)[of]}`).join(", ")}`,
    table: { head: [nameX ? "to" : "time", ...columns.map((column) => column.name)], rows: () => xs.map((value, index) => [nameX ? name(value) : moment(value, x[1]), ...tell(index)]) },
  });
}

// Merges marks of one kind that would overlap.
function together(marks, px) {
  const found = [];
  for (const { x, kind, text } of marks) {
    const last = found.findLast((mark) => mark.kind === kind);
    if (last && px(x) - last.px < 9) last.texts.push(text);
    else found.push({ px: px(x), kind, texts: [text] });
  }
  return found;
}

// Returns shares in tenths of a per cent that add up to 100 %: the largest remainders are rounded up.
function shares(values) {
  const tenths = values.map((value) => (value / total(values)) * 1000);
  const whole = tenths.map(Math.floor);
  const order = tenths.map((_, at) => at).sort((a, b) => tenths[b] - whole[b] - (tenths[a] - whole[a]));
  for (const at of order.slice(0, 1000 - total(whole))) whole[at] += 1;
  return whole.map((value) => `${(value / 10).toFixed(1)}\u202f%`);
}

// The parts { name, cls, value } of a whole as one bar, with their shares above it.
export function parts({ of, format, ...more }) {
  const key = `cursor:${more.id}`;
  const at = choice(key, null);
  const share = shares(of.map((part) => part.value));
  const move = (to) => choose(key, to);
  const text = (index) => `${of[index].name} ${share[index]}, ${format(of[index].value)}`;
  const plot = (width, size) => {
    let from = 0;
    return h("svg", { width, height: size * 2, "aria-hidden": "true" }, of.map(({ cls, value }, index) => {
      const long = (value / total(of, (part) => part.value)) * width;
      from += long;
      return h("rect", { class: `part ${cls} ${at === index ? "pointed" : ""}`, x: round(from - long), width: Math.max(0.5, round(long) - 1.5), y: 3, height: size * 2 - 6, onpointermove: () => move(index) });
    }));
  };
  const legend = h("ul", { class: "parts" }, of.map(({ name, cls, value }, index) => h("li", { class: at === index ? "pointed" : "" }, swatch(cls), h("span", null, name), h("b", null, share[index]), h("span", { class: "muted" }, format(value)))));
  const raw = { head: ["part", "value"], rows: () => of.map(({ name, value }) => [name, value]) };
  return frame({ ...more, size: of.length, at, move, text, plot, legend, raw, table: { head: ["part", "share", "value"], rows: () => of.map(({ name, value }, index) => [name, share[index], format(value)]) } });
}

// A matrix of amounts: a row for each giver, a column for each taker.
export function matrix({ names, cells, hint, ...more }) {
  const key = `cursor:${more.id}`;
  const at = choice(key, null);
  const n = names.length;
  const most = Math.max(1, ...cells.flat());
  const text = (index) => `${names[Math.floor(index / n)]} to ${names[index % n]}: ${whole(cells[Math.floor(index / n)][index % n])}`;
  const move = (to) => at !== to && choose(key, to);
  const plot = (width, size) => {
    const room = Math.min(size * 9, Math.max(...names.map((name) => name.length)) * size * 0.55 + size * 2);
    const cell = Math.max(6, Math.min(size * 3, (width - room) / n));
    const isShort = names.every((name) => name.length * size * 0.5 < cell);
    const every = Math.ceil((size * 1.2) / cell);
    const top = size * 1.4;
    const label = (name) => (name.length > 14 ? `${name.slice(0, 13)}…` : name);
    const point = (event) => {
      const box = event.currentTarget.getBoundingClientRect();
      const [column, row] = [Math.floor((event.clientX - box.left - room) / cell), Math.floor((event.clientY - box.top - top) / cell)];
      move(Math.min(column, row) >= 0 && Math.max(column, row) < n ? row * n + column : null);
    };
    return h("svg", { width, height: top + cell * n + 2, "aria-hidden": "true", onpointermove: point },
      names.map((name, index) => index % every === 0 && [
        h("text", { x: room - size * 0.5, y: top + (index + 0.5) * cell, dy: "0.32em", "text-anchor": "end" }, isShort ? name : `${label(name)} ${index + 1}`),
        h("text", { x: room + (index + 0.5) * cell, y: size * 0.9, "text-anchor": "middle" }, isShort ? name : index + 1),
      ]),
      cells.flat().map((value, index) => h("rect", {
        class: `cell ${at === index ? "pointed" : ""}`, x: round(room + (index % n) * cell) + 0.5, y: round(top + Math.floor(index / n) * cell) + 0.5, width: round(cell - 1), height: round(cell - 1), rx: 2,
        "fill-opacity": value > 0 ? (0.12 + 0.85 * Math.sqrt(value / most)).toFixed(2) : "0.05",
      })));
  };
  const legend = h("p", { class: "legend" }, at === null ? hint : h("b", null, text(at)));
  const raw = { head: ["from", "to", "value"], rows: () => cells.flatMap((row, from) => row.map((value, to) => [names[from], names[to], value])) };
  return frame({ ...more, size: n * n, at, move, text, plot, legend, raw, keys: { ArrowUp: -n, ArrowDown: n }, table: { head: ["from \\ to", ...names], rows: () => cells.map((row, from) => [names[from], ...row.map(whole)]) } });
}

// A small line without axes, next to its number.
export function spark(values) {
  const most = Math.max(1e-9, ...values.filter(known));
  const points = values.map((value, at) => [at, 0, value]);
  const x = (at) => (at / Math.max(1, values.length - 1)) * 100;
  const y = (value) => 23 - (value / most) * 21;
  return h("svg", { class: "spark", viewBox: "0 0 100 24", preserveAspectRatio: "none", "aria-hidden": "true" },
    h("path", { class: "fill c1", d: outline(points, x, y) }), h("path", { class: "stroke c1", d: line(points.map(([at, , value]) => [at, value]), x, y) }));
}
