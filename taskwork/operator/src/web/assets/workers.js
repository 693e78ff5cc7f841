// The use of the workers over time: of the cluster, by program, and of a node.

import { chart } from "./charts.js";
import { data } from "./data.js";
import { h } from "./dom.js";
import { busyByProgram } from "./model.js";
import { known, number, percent, total, whole, count } from "./text.js";

// A column of a chart: its value at each point, formatted by `format`.
export const column = (name, cls, values, format) => ({ name, cls, at: (at) => (known(values[at]) ? format(values[at]) : null), value: (at) => (known(values[at]) ? values[at] : null) });

// Adds a gap at each outage of the servers, during which nothing was observed.
export function withGaps(points, moments) {
  const gaps = moments.filter(({ what }) => what === "servers_away").map(({ at_ms: at }) => [at + 1, null, null]);
  return gaps.length > 0 ? [...points, ...gaps].sort(([a], [b]) => a - b) : points;
}

const COLOURS = ["c1", "c2", "c3", "c5", "c6", "c8"];

// The busy workers in `parts` [{ name, busy }], one above the other, and the idle ones above them.
function stacked({ id, title, caption, points, parts }) {
  const xs = points.map(({ at_ms: at }) => at);
  const workers = points.map((point) => point.workers.last);
  const band = (from, to) => withGaps(xs.map((at, index) => [at, from[index], to[index]]), data.snapshot.moments);
  let below = xs.map(() => 0);
  const layers = parts.map(({ busy }, part) => {
    const from = below;
    // At other moments than the jobs, the cluster may have fewer workers.
    below = below.map((sum, index) => Math.min(workers[index], sum + busy[index]));
    return { kind: "band", isStep: true, cls: `${COLOURS[part]} strong`, points: band(from, below) };
  });
  const idle = workers.map((number, index) => number - below[index]);
  const x = [xs[0], Math.max(xs.at(-1), xs[0] + 5_000)];
  return h("div", { class: "panel", key: id }, chart({
    id, title, caption, level: "h2", height: 11, xs, x, y: { from: 0, to: Math.max(1, ...workers) * 1.05, format: number },
    layers: [...layers, { kind: "band", isStep: true, cls: "c7 idle", points: band(below, workers) }],
    columns: [...parts.map(({ name, busy }, part) => column(name, `${COLOURS[part]} strong`, busy, whole)), column("idle", "c7", idle, whole), column("workers", null, workers, whole)],
  }));
}

// The share of the observed time of the workers in which they had tasks.
function share(points) {
  const all = total(points, (point) => point.workers.last);
  return all > 0 ? percent(total(points, (point) => point.busy.last) / all) : percent(0);
}

export function clusterWorkers() {
  const { points } = data.snapshot.workers;
  if (points.length < 2 || points.every((point) => point.workers.most === 0)) return null;
  const now = points.at(-1);
  return stacked({ id: "cluster-workers", title: "Workers over time", points, parts: busyByProgram(), caption: `${whole(now.busy.last)} of ${count(now.workers.last, "worker")} on ${count(now.nodes.last, "node")} have tasks now. On the average of the time shown ${share(points)} had.` });
}

export function nodeWorkers(name) {
  const points = data.details.get(`node/${encodeURIComponent(name)}`)?.series.points ?? [];
  if (points.length < 2) return null;
  return stacked({ id: `workers of ${name}`, title: "Workers over time", points, parts: [{ name: "busy", busy: points.map((point) => point.busy.last) }], caption: `Its workers had tasks in ${share(points)} of the time shown.` });
}
