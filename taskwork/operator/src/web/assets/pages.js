// The pages other than that of a job: overview, nodes, one node, open jobs, ZooKeeper, history.

import { actionsOfNode } from "./actions.js";
import { spark } from "./charts.js";
import { JOB_COST, paid, price, priceOf } from "./costs.js";
import { data, now } from "./data.js";
import { choice, choose, h } from "./dom.js";
import { clusterWorkers, nodeWorkers } from "./workers.js";
import { busy, job, jobs, members, openJobs, programs, rateNow, rates, release, standing, times, warnings } from "./model.js";
import { events, figures, grid, head, JOB, jobLink, latencies, link, links, muted, nothing, numbers, panel, rare, WHY, why, words } from "./parts.js";
import { between, bytes, clock, count, duration, exact, hidden, isOver, known, maybe, meter, moment, number, percent, sign, state, total, unknown, whole } from "./text.js";

const LEVELS = { bad: ["✕", "Error: "], warn: ["▲", "Warning: "], info: ["ℹ", "Note: "] };
const WARNINGS_MAX = 12;

// The warnings. A dismissed one stays hidden on this page until its condition ends and starts again.
function attention() {
  const all = warnings();
  const dismissed = choice("dismissed", {});
  const found = all.filter(({ key, at_ms: at }) => dismissed[key] !== at);
  const line = ({ key, level, text, href, at_ms: at }) => h("li", { key }, sign(LEVELS[level][0], level), h("a", { href }, hidden(LEVELS[level][1]), text), h("span", { class: "muted" }, "since ", moment(at, now())), h("button", { type: "button", onclick: () => choose("dismissed", { ...dismissed, [key]: at }) }, "Dismiss", hidden(`: ${text}`)));
  return h("section", { class: `panel warnings ${found[0]?.level ?? "none"}`, "aria-label": "Warnings", key: "warnings" },
    found.length === 0 ? h("p", null, sign("✓", "good"), all.length > 0 ? "Nothing else needs attention." : "Nothing needs attention.") : h("ul", null, found.slice(0, WARNINGS_MAX).map(line)),
    found.length > WARNINGS_MAX && nothing(`and ${found.length - WARNINGS_MAX} more`),
    found.length < all.length && h("p", { class: "dismissed" }, h("button", { type: "button", onclick: () => choose("dismissed", {}) }, `Show ${count(all.length - found.length, "dismissed warning")}`)));
}

export function overviewPage() {
  const nodes = members();
  const open = openJobs();
  const waiting = open.filter(({ about }) => about.stage !== "running");
  const all = programs();
  const resting = all.filter(({ running }) => running.length === 0);
  return {
    title: "Overview",
    lead: [count(nodes.length, "node"), count(total(nodes, (node) => node.workers), "worker"), `${count(open.length - waiting.length, "job")} running`, `${whole(waiting.length)} waiting`].map((text) => h("span", null, text)),
    content: [
      attention(),
      clusterWorkers(),
      all.filter(({ running }) => running.length > 0).map(program),
      resting.length > 0 && panel("Without a running job", h("ul", { class: "events" }, resting.map((one) => h("li", { key: one.key }, h("b", null, one.key), muted(sizeOf(one)))))),
      h("div", { class: "pair", key: "pair" },
        waiting.length > 0 && panel("Waiting jobs", h("ol", { class: "events" }, waiting.slice(0, 8).map(({ id, about }) => h("li", { key: id }, state(about.stage), h("span", null, jobLink(id), about.record && muted(" ", release(about.record))))))),
        panel("Latest events", events(data.snapshot.moments, 8))),
    ],
  };
}

const sizeOf = ({ members: nodes, waiting }) => [nodes.length > 0 ? `${count(nodes.length, "node")}, ${count(total(nodes, (node) => node.workers), "worker")}` : "no node runs it", waiting.length > 0 && `${count(waiting.length, "job")} waiting`].filter(Boolean).join(", ");

const program = (one) => h("section", { class: "panel", key: `program ${one.key}`, "aria-label": one.key }, h("div", { class: "head" }, h("h2", null, one.key), muted(sizeOf(one))), one.running.map(({ id }) => programLine(job(id))));

function programLine({ id, about, points }) {
  return h("div", { class: "line", key: id }, h("div", null, h("b", null, jobLink(id)), muted(maybe(times(about).seconds, (s) => `for ${duration(s)}`, WHY.span))),
    figures([
      ["Busy", maybe(busy(about.pool), (share) => [percent(share), meter(share)], WHY.pool)],
      ["Share done", maybe(about.share, (share) => [percent(share), meter(share, "c3")], WHY.share)],
      ["Best", maybe(about.best, exact, WHY.best)],
      ["Gap", maybe(about.gap, percent, known(about.best) ? WHY.bound : WHY.best)],
      ["Ends in", about.eta ? between(about.eta) : unknown(WHY.end)],
      ["Rate", maybe(rateNow(points), (rate) => `${number(rate)}/s`, WHY.end)],
      ["Cost so far", paid(about.cost?.money)],
    ]), spark(rates(points).slice(-120)));
}

const searchJob = ({ id, about }) => [id, about.stage, ...Object.values(about.record ?? {})].join(" ");

const listed = (title, rows, columns, sorted) => ({ title, lead: [count(rows.length, "job")], content: [h("div", { class: "panel", key: title }, grid({ id: title, label: title, columns, rows, search: searchJob, sorted }))] });
export const queuePage = () => listed("Jobs", openJobs(), [JOB.name, JOB.state, JOB.program, JOB.owner, JOB.priority, JOB.weight, JOB.nodes, rare(JOB.share), rare(JOB.best), rare(JOB.gap), JOB_COST, rare(words("Why it waits", why, (row) => why(row) || null, "wide")), JOB.submitted], ["Submitted", 1]);
export const historyPage = () => listed("History", jobs().filter(({ about }) => isOver(about.stage)), [JOB.name, JOB.state, JOB.program, JOB.owner, JOB.priority, JOB.weight, JOB.took, rare(JOB.best), rare(JOB.gap), JOB.work, JOB_COST, rare(JOB.attempt), rare(words("Reason", ({ about }) => about.record?.reason ?? "", ({ about }) => about.record?.reason ?? null, "wide")), JOB.submitted, JOB.ended], ["Ended", -1]);

// The jobs of each node, by name, each with the latest report.
function work() {
  const found = new Map();
  for (const { id, about, nodes } of openJobs()) if (about.stage === "running") for (const [name, { state: what, report }] of Object.entries(nodes ?? {})) if (what === "member" && !report.last) found.set(name, { id, report });
  return found;
}

const load = (value) => value.toFixed(1);

export function nodesPage() {
  const at = work();
  const rows = members().map((node) => ({ ...node, ...at.get(node.name) }));
  const { nodes_joined: joined, nodes_left: left, nodes_lost: lost } = data.snapshot.cluster;
  const columns = [
    words("Node", ({ name }) => link("node", name), ({ name }) => name, "name"),
    words("Host", ({ host }) => host || unknown(WHY.record), ({ host }) => host || null),
    words("State", (node) => state(standing(node)), standing),
    words("Program", (node) => (node.program ? release(node) : unknown(WHY.record)), (node) => node.program ?? null),
    words("Job", ({ id }) => (id ? jobLink(id) : muted("none")), ({ id }) => id ?? null),
    numbers("Workers", ({ workers }) => workers, whole, WHY.record),
    numbers("Busy", ({ report }) => busy(report?.pool), percent, WHY.pool),
    numbers("Machine load", ({ report }) => report?.process?.load, load, WHY.process),
    numbers("Memory", ({ report }) => report?.process?.resident_bytes, bytes, WHY.process),
    words("Price", ({ labels }) => priceOf(labels), ({ labels }) => price(labels)?.order ?? null, "num"),
    numbers("Seen for", (node) => Math.max(0, now() - node.since_ms) / 1000, duration, WHY.span),
  ];
  return {
    title: "Nodes",
    lead: [h("span", null, count(rows.length, "node")), muted(`while observed ${whole(joined)} joined, ${whole(left)} left, ${whole(lost)} lost`)],
    content: [h("div", { class: "panel", key: "nodes" }, grid({ id: "nodes", label: "Nodes", columns, rows, search: ({ name, host, program: of, labels }) => [name, host, of, ...Object.values(labels ?? {})].join(" ") }))],
  };
}

export function nodePage(name) {
  const present = members().find((one) => one.name === name);
  // The record of a node that has gone is in the event of its end.
  const end = data.snapshot.moments.findLast((moment) => moment.name === name && moment.member);
  const member = present ?? end?.member;
  const parts = jobs().filter(({ nodes }) => nodes?.[name]).map((one) => ({ ...one, part: one.nodes[name] }));
  if (!member && parts.length === 0) return { title: "Unknown node", content: [nothing(`No node ${name} is known: it may have gone long ago.`)] };
  const { id, report: { pool, process } = {} } = work().get(name) ?? {};
  const gone = end?.what === "lost" || parts.some(({ part }) => part.state === "lost") ? "lost" : "left";
  const timeline = parts.flatMap((one) => (one.part.report.timeline ?? []).map((event) => ({ ...event, id: one.id }))).sort((a, b) => b.at_ms - a.at_ms);
  const labels = Object.entries(member?.labels ?? {});
  const figure = (title, of) => numbers(title, ({ part }) => part.report.figures?.[of], number, WHY.report);
  const columns = [JOB.name, words("Part", ({ part }) => state(part.state), ({ part }) => part.state), JOB.program, figure("Work done", "worked"), figure("Tasks", "tasks"), figure("Stolen", "stolen_tasks"), figure("Repeats", "retries")];
  return {
    title: name,
    lead: [state(present ? standing(present) : gone), member?.program && muted(release(member))],
    content: [
      head([
        ["Job", id ? jobLink(id) : "none"], present?.leads.length > 0 && ["Leads", links(present.leads)],
        ["Host", member?.host || unknown(WHY.record), member?.pid > 0 && `process ${member.pid}`],
        ["Workers", maybe(member?.workers, whole, WHY.record), pool && `${whole(pool.busy)} busy, ${count(pool.queued, "task")} queued`],
        ["Memory", maybe(process?.resident_bytes, bytes, WHY.process), member?.memory_bytes > 0 && `of ${bytes(member.memory_bytes)}`],
        ["Load", maybe(process?.load, load, WHY.process), "of its machine"], ["Processor time", maybe(process?.cpu_ms, (ms) => duration(ms / 1000), WHY.process)],
        ["Address", member?.address ? h("code", null, member.address) : unknown("it is no member, or does not listen")], ["Started", maybe(member?.started_ms, (at) => moment(at, now()), WHY.record), "by its own clock"],
        ["Price", priceOf(member?.labels)],
        labels.length > 0 && ["Labels", labels.map((label) => h("span", { class: "tag" }, label.join("=")))],
      ]),
      actionsOfNode(name, present),
      present && nodeWorkers(name),
      panel("Jobs", grid({ id: "parts", label: "Its part in jobs", columns, rows: parts, search: searchJob })),
      panel("Timeline", timeline.length === 0 ? nothing("It has reported no events.") : h("ol", { class: "events" }, timeline.slice(0, 40).map((event) => h("li", null, moment(event.at_ms, now()), h("span", null, event.kind.replaceAll("_", " "), event.detail && `: ${event.detail}`, muted(" in ", jobLink(event.id))))))),
    ],
  };
}

export function serversPage() {
  const { cluster: { silent_since_ms: silent, outages, events: seen }, warnings: unreadable } = data.snapshot;
  const all = jobs().filter(({ about }) => about.reported);
  const sum = (kind) => number(total(all, ({ about }) => about.requests[kind]));
  const asked = (kind) => (all.length > 0 ? sum(kind) : unknown("no node has reported on any job"));
  const took = (kind) => Array.from({ length: 32 }, (_, at) => total(all, ({ about }) => about.latencies?.[kind][at]));
  const rows = Object.entries(unreadable).map(([key, text]) => ({ key, text }));
  return {
    title: "ZooKeeper",
    lead: [state(known(silent) ? "silent" : "answers"), known(silent) && h("span", null, `since ${clock(silent, now())}`)],
    content: [
      head([["Outages", whole(outages), "while observed"], ["Events", number(seen), "seen by this observer"], ["Reads", asked("reads"), "of the nodes, for the jobs shown"], ["Writes", asked("writes")], ["Multis", asked("multis"), all.length > 0 && `${sum("failed_multis")} failed`]]),
      h("div", { class: "pair", key: "pair" }, panel("Writes", latencies("How long writes took", "all-writes", took("writes"))), panel("Reads", latencies("How long reads took", "all-reads", took("reads")))),
      rows.length > 0 && panel("Unreadable znodes", grid({ id: "unreadable", label: "Znodes that cannot be read", rows, search: ({ key, text }) => key + text, columns: [words("Znode", ({ key }) => key, ({ key }) => key, "name"), words("Problem", ({ text }) => text, undefined, "wide")] })),
    ],
  };
}
