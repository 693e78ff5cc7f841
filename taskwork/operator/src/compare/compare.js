// The page of two jobs on one axis: the time since each was started.

import { chart } from "./charts.js";
import { data } from "./data.js";
import { h } from "./dom.js";
import { rates } from "./model.js";
import { muted, nothing, panel } from "./parts.js";
import { duration, exact, known, number, percent, state, whole } from "./text.js";

// The first job has solid lines, the second one dashed lines of another colour.
const COMPARED = [{ label: "A", cls: "c1" }, { label: "B", cls: "c2 dashed" }];

data.pages.compare = () => {
  const { jobs: compared, rows } = data.compared;
  const both = compared.map((job, at) => ({ ...job, ...COMPARED[at], ...seriesOf(job) }));
  const [a, b] = both;
  return {
    title: `${a.name} and ${b.name}`,
    lead: both.map((job) => h("span", null, h("b", null, job.label), " ", state(job.state), " ", muted(`${job.id}, ${job.source}`))),
    content: [
      both.flatMap((job) => job.remarks.map((remark) => h("p", { class: "remark", key: `${job.label} ${remark}` }, h("b", null, `${job.label}: `), remark))),
      both.some((job) => job.times.length > 1) ? [
        compareBy(both, { id: "best", title: "Best solution", format: exact, isStep: true, of: "best", bound: "bound" }),
        compareBy(both, { id: "gap", title: "Gap", format: percent, of: "gap", from: 0 }),
        compareBy(both, { id: "rate", title: "Rate of work", format: number, of: "rate", from: 0, unit: "a second" }),
        compareBy(both, { id: "done", title: "Work done", format: number, of: "worked", from: 0 }),
        compareBy(both, { id: "share", title: "Share done", format: percent, of: "share", from: 0 }),
        compareBy(both, { id: "workers", title: "Workers", format: whole, isStep: true, of: "workers", from: 0 }),
      ] : nothing("Neither job was observed over time."),
      panel("Figures", h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Figures" }, h("table", { class: "values" },
        h("caption", { class: "hidden" }, "Figures of both jobs"),
        h("thead", null, h("tr", null, ["", "A", "B", "B / A"].map((name) => h("th", { scope: "col" }, name)))),
        h("tbody", null, rows.map(([name, ...values]) => h("tr", { key: name }, h("th", { scope: "row" }, name), values.map((value) => h("td", null, value)))))))),
    ],
  };
};

// The values of a job at each of its points.
function seriesOf({ points, from_ms: from }) {
  const list = points ?? [];
  const kind = (of) => list.map(of).map((value) => (known(value) ? value : null));
  const gap = ({ best, bound }) => (known(best) && known(bound) ? Math.abs(best - bound) / Math.max(Math.abs(best), 1e-10) : null);
  return {
    times: list.map(({ at_ms: at }) => Math.max(0, at - from)),
    values: { best: kind((point) => point.best), bound: kind((point) => point.bound), gap: kind(gap), rate: rates(list), worked: kind((point) => point.worked), share: kind((point) => point.share), workers: kind((point) => point.workers.last) },
  };
}

// The value of a job at a time: that of the last point before; null before the first and after the last point.
function valueAt({ times: own }, values, time) {
  if (!(time >= own[0] && time <= own.at(-1))) return null;
  return values[own.findLastIndex((one) => one <= time)];
}

// A chart of one quantity of both jobs; null if neither has it.
function compareBy(both, { id, title, format, of, bound, from, unit = "", isStep }) {
  const having = both.filter((job) => job.values[of].some(known));
  if (having.length === 0) return null;
  const times = [...new Set(both.flatMap((job) => job.times))].sort((x, y) => x - y);
  const all = both.flatMap((job) => [...job.values[of], ...(bound ? job.values[bound] : [])]).filter(known);
  const [least, most] = [Math.min(...all), Math.max(...all)];
  const room = (most - least || Math.abs(most) || 1) * 0.06;
  const drawn = (job, kind) => job.times.map((time, point) => [time, job.values[kind][point]]);
  const kinds = bound ? [[of, ""], [bound, "bound "]] : [[of, ""]];
  const last = (job) => job.values[of].findLast(known);
  const column = (job, [kind, name]) => {
    const value = (index) => valueAt(job, job.values[kind], times[index]);
    const text = (index) => (known(value(index)) ? format(value(index)) : null);
    return { name: `${name}${job.label}`, cls: kind === of ? `${job.cls} line` : null, at: text, value };
  };
  return h("div", { class: "panel", key: id }, chart({
    id: `compare-${id}`, group: "compare", level: "h2", title, height: 13, xs: times, x: [0, Math.max(...times, 1_000)],
    nameX: (time) => duration(time / 1000), isLapse: true, rawX: { name: "ms_from_beginning", at: (index) => times[index] },
    caption: having.map((job) => `${job.label}: ${of === "rate" ? `at most ${format(Math.max(...job.values[of].filter(known)))} ${unit}` : `${format(last(job))} at last`}`).join("; ").concat("."),
    y: { from: from ?? least - room, to: most + room || 1, format },
    layers: having.flatMap((job) => [
      bound && { kind: "line", cls: `${job.cls} faint`, points: drawn(job, bound) },
      { kind: isStep ? "step" : "line", cls: job.cls, points: drawn(job, of) },
    ]),
    columns: kinds.flatMap((kind) => having.map((job) => column(job, kind))),
  }));
}
