// Parts that several pages are made of: figures with names, tables of many rows, lists of events.

import { choice, choose, em, h, measure, widthOf } from "./dom.js";
import { glyph } from "./charts.js";
import { MOMENTS, jobName } from "./model.js";
import { data, now } from "./data.js";
import { moment, whole } from "./text.js";

export const link = (page, name, text = name) => h("a", { href: `#/${page}/${encodeURIComponent(name)}` }, text);

export const jobLink = (id) => link("job", id, jobName(id, data.snapshot.jobs[id]?.about));

// Names with values: [name, value, note].
export const figures = (list, kind = "") => h("dl", { class: `figures ${kind}` }, list.filter(Boolean).map(([name, value, note]) => h("div", { key: name }, h("dt", null, name), h("dd", null, value, note && h("span", { class: "note" }, note)))));

export const panel = (title, ...content) => h("section", { class: "panel", key: title, "aria-label": title }, h("h2", null, title), content);

export const nothing = (text) => h("p", { class: "nothing" }, text);

const ROWS_ALL = 60;
const ROWS_SEEN = 14;

// A table that can be sorted and searched, of which only the rows in sight are in the page if there are many. A column
// is { name, cell(row), sort(row), cls }; rows have a `key`.
export function grid({ id, label, columns, rows, search, sorted = [0, 1], empty = "Nothing yet." }) {
  const [by, way] = choice(`sort:${id}`, sorted);
  const asked = choice(`search:${id}`, "");
  const found = asked && search ? rows.filter((row) => search(row).toLowerCase().includes(asked.toLowerCase())) : rows;
  const value = (row) => columns[by].sort?.(row) ?? null;
  const ordered = [...found].sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    // What is not known comes last in either direction.
    if (x === null || y === null) return (x === null) - (y === null);
    return (x < y ? -1 : x > y ? 1 : a.key < b.key ? -1 : 1) * way;
  });
  const high = Math.round(em() * 2.5);
  const isMany = ordered.length > ROWS_ALL;
  const from = isMany ? Math.max(0, Math.min(ordered.length - ROWS_SEEN, Math.floor(choice(`scroll:${id}`, 0) / high) - 4)) : 0;
  const to = isMany ? Math.min(ordered.length, from + ROWS_SEEN + 8) : ordered.length;
  const space = (count, key) => count > 0 && h("tr", { key, "aria-hidden": "true", class: "space" }, h("td", { colspan: columns.length, style: { height: `${count * high}px` } }));
  const heads = columns.map(({ name, sort, cls }, at) => h("th", { scope: "col", class: cls, "aria-sort": at === by ? (way > 0 ? "ascending" : "descending") : null },
    sort ? h("button", { type: "button", class: "sort", onclick: () => choose(`sort:${id}`, [at, at === by ? -way : 1]) }, name, h("span", { "aria-hidden": "true", class: "arrow" }, at === by ? (way > 0 ? "↑" : "↓") : "")) : name));
  const line = (row, at) => h("tr", { key: row.key, "aria-rowindex": at + 2, style: { height: `${high}px` } },
    columns.map(({ cell, cls }, column) => h(column === 0 ? "th" : "td", { class: cls, scope: column === 0 ? "row" : null }, cell(row))));
  return h("div", { class: "grid", key: id },
    search && (rows.length > 8 || asked) && h("p", { class: "search" },
      h("label", { for: `search-${id}` }, "Filter "), h("input", { id: `search-${id}`, type: "search", value: asked, oninput: (event) => choose(`search:${id}`, event.target.value) }),
      h("span", { class: "muted", role: "status" }, ` ${whole(found.length)}${found.length === rows.length ? "" : ` of ${whole(rows.length)}`}`)),
    ordered.length === 0 ? nothing(asked ? "Nothing matches the filter." : empty) :
    h("div", { class: `scroll ${isMany ? "many" : ""}`, tabindex: "0", role: "region", "aria-label": label, ref: measure(`grid:${id}`),
      onscroll: (event) => isMany && choose(`scroll:${id}`, event.target.scrollTop) },
      h("table", { "aria-rowcount": ordered.length + 1, class: widthOf(`grid:${id}`) < em() * 44 ? "narrow" : "" },
        h("caption", { class: "hidden" }, label),
        h("thead", null, h("tr", null, heads)),
        h("tbody", null, space(from, "before"), ordered.slice(from, to).map((row, at) => line(row, from + at)), space(ordered.length - to, "after")))));
}

const KINDS = { joined: "joined", left: "left", lost: "lost", job_runs: "best", job_over: "notice" };

// The latest events, the last one first.
export function events(list, most = 12) {
  if (list.length === 0) return nothing("Nothing has happened since this is observed.");
  return h("ol", { class: "events" }, list.slice(-most).reverse().map(({ at_ms: at, what, name, seq }) => h("li", { key: `${seq} ${what} ${name}` },
    moment(at, now()), glyph(KINDS[what]),
    h("span", null, what.startsWith("job") ? ["Job ", jobLink(name)] : ["Node ", link("node", name)], ` ${MOMENTS[what] ?? what}`))));
}
