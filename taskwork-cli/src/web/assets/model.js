// What the pages show, worked out from what is known. An unknown value is null.

import { data, now } from "./data.js";
import { count, duration, isOver, known, number, percent, quantile } from "./text.js";

const last = (list) => (list.length > 0 ? list[list.length - 1] : null);
const sum = (list, of) => list.reduce((total, one) => total + (of(one) || 0), 0);
const orNull = (value) => (known(value) ? value : null);

export const jobName = (id, about) => about?.record?.name || id;

export const members = () => Object.entries(data.snapshot.members).map(([name, now]) => ({ name, ...now, ...(now.member ?? {}) }));

// The jobs, the latest submission first.
export function jobs() {
  const all = Object.entries(data.snapshot.jobs).map(([id, job]) => ({ id, ...job }));
  return all.sort((a, b) => (b.about.record?.submitted_ms ?? 0) - (a.about.record?.submitted_ms ?? 0) || (a.id < b.id ? 1 : -1));
}

// When a job ended, or the present; and since when it has been going on.
export function times(about) {
  const from = orNull(about.record?.submitted_ms);
  const to = isOver(about.stage) ? orNull(about.record?.finished_ms) : now();
  return { from, to, seconds: from !== null && to !== null ? Math.max(0, (to - from) / 1000) : null };
}

// The share of its workers that have a task.
export const busyShare = (pool) => (pool && pool.workers > 0 ? pool.busy / pool.workers : null);

// One entry for each program and version that has members or jobs that are not over.
export function programs() {
  const found = new Map();
  const of = (program, version) => {
    const key = `${program} ${version}`;
    if (!found.has(key)) found.set(key, { key, program, version, nodes: 0, workers: 0, jobs: [] });
    return found.get(key);
  };
  for (const member of members()) {
    if (member.program === undefined) continue;
    const one = of(member.program, member.program_version);
    one.nodes += 1;
    one.workers += member.workers;
  }
  for (const job of jobs()) {
    const { record, stage } = job.about;
    if (record && !isOver(stage)) of(record.program, record.program_version).jobs.unshift(job);
  }
  for (const one of found.values()) {
    one.running = one.jobs.filter((job) => job.about.stage === "running");
    one.queued = one.jobs.length - one.running.length;
  }
  return [...found.values()].sort((a, b) => (a.key < b.key ? -1 : 1));
}

// Where the time of workers went, in seconds; null if nobody says.
export function whereTimeWent(figures, told) {
  if (told && known(told.searching_s)) {
    return { searching: told.searching_s, handling: told.handling_s ?? told.ending_s ?? 0, looking: told.looking_s ?? 0, starting: told.starting_s ?? 0 };
  }
  const of = figures?.times;
  const seconds = of ? { searching: of.searching_ns, handling: of.handling_ns ?? of.ending_ns, looking: of.looking_ns, starting: of.starting_ns }
    : { searching: figures?.busy_ns, looking: figures?.idle_ns };
  const all = Object.fromEntries(Object.entries(seconds).map(([kind, ns]) => [kind, (ns ?? 0) / 1e9]));
  return Object.values(all).some((s) => s > 0) ? all : null;
}

export function efficiency(figures, told) {
  const went = whereTimeWent(figures, told);
  const total = went && Object.values(went).reduce((a, b) => a + b, 0);
  return total > 0 ? went.searching / total : null;
}

// How the work of a job went from point to point, in units a second: each value with the time at which it ends.
export function rates(points) {
  const found = [];
  for (let at = 1; at < points.length; at += 1) {
    const seconds = (points[at].at_ms - points[at - 1].at_ms) / 1000;
    found.push(seconds > 0 ? Math.max(0, points[at].worked - points[at - 1].worked) / seconds : null);
  }
  return points.length > 0 ? [found[0] ?? null, ...found] : [];
}

export const rateNow = (points) => {
  const late = points.slice(-6);
  const seconds = late.length > 1 ? (last(late).at_ms - late[0].at_ms) / 1000 : 0;
  return seconds > 0 ? (last(late).worked - late[0].worked) / seconds : null;
};

const WINDOWS = 10;

// The time until the end, in seconds: if it goes on as in the faster and as in the slower of the last parts of the
// observed time. Null if too little was seen.
export function ending(about, points) {
  if (!known(about.eta_seconds) || !known(about.share)) return null;
  const shares = points.filter((point) => known(point.share));
  const pace = [];
  for (let at = 0; at < WINDOWS && shares.length > WINDOWS * 2; at += 1) {
    const [a, b] = [shares[Math.floor((at * (shares.length - 1)) / WINDOWS)], shares[Math.floor(((at + 1) * (shares.length - 1)) / WINDOWS)]];
    pace.push((b.share - a.share) / ((b.at_ms - a.at_ms) / 1000));
  }
  pace.sort((a, b) => a - b);
  const rest = 1 - about.share;
  const [slow, fast] = [pace[1], pace[WINDOWS - 2]];
  const eta = about.eta_seconds;
  if (!(slow > 0)) return { least: fast > 0 ? Math.min(eta, rest / fast) : eta, likely: eta, most: null };
  return { least: Math.min(eta, rest / fast), likely: eta, most: Math.max(eta, rest / slow) };
}

// Everything of a job, from its details if a server sends them, otherwise from the snapshot; null if it is not known.
export function job(id) {
  const detail = data.details.get(id);
  const own = data.snapshot.jobs[id];
  if (!detail && !own) return null;
  const about = own?.about ?? detail.job?.about ?? detail.job;
  const points = detail?.series?.points ?? own?.series?.points ?? detail?.job?.series?.points ?? [];
  const given = Array.isArray(detail?.nodes) ? detail.nodes.map((node) => [node.node ?? node.name, node]) : Object.entries(detail?.nodes ?? own?.nodes ?? {});
  const nodes = given.map(([name, node]) => nodeOf(name, node));
  const moments = (detail?.moments ?? data.snapshot.moments ?? []).filter((moment) => {
    const { from, to } = times(about);
    return moment.at_ms >= (from ?? 0) && moment.at_ms <= (to ?? Infinity) && (moment.name === id || nodes.some((node) => node.name === moment.name));
  });
  return { id, about, points, nodes, moments, improvements: improvements(points, detail?.improvements), detail };
}

function nodeOf(name, { state, report = {}, ...more }) {
  const { figures = {}, pool, process, timeline = [] } = report ?? {};
  const member = data.snapshot.members[name];
  const from = timeline[0]?.at_ms ?? null;
  const end = timeline.find((event) => event.kind === "left" || event.kind === "abandoned")?.at_ms;
  const to = end ?? report.at_ms ?? null;
  const went = whereTimeWent(figures, more.where_time_went);
  const total = went && sum(Object.values(went), (s) => s);
  const seconds = from !== null && to !== null ? (to - from) / 1000 : null;
  return {
    name, state: member?.draining ? "draining" : state, report, figures, pool, process, timeline, from, to,
    leads: timeline.some((event) => event.kind === "leads"), labels: member?.member?.labels ?? {},
    idle: total > 0 ? 1 - went.searching / total : null, rate: seconds > 0 && known(figures.worked) ? figures.worked / seconds : null, seconds,
  };
}

// The moments at which a better solution was known, and who found it as far as that is told.
function improvements(points, told) {
  if (Array.isArray(told) && told.length > 0) return told.map((one) => ({ at_ms: one.at_ms, value: orNull(one.value ?? one.best), node: one.node ?? null }));
  const found = [];
  for (const point of points) {
    if (known(point.best) && point.best !== last(found)?.value) found.push({ at_ms: point.at_ms, value: point.best, node: null });
  }
  return found;
}

const GROUPS_MAX = 32;

// Who gave whom how many tasks: nodes, or groups of them if there are many. Null if nobody says.
export function gifts(nodes) {
  const takers = nodes.filter((node) => node.report?.givers);
  if (takers.length === 0) return null;
  const names = [...new Set(takers.flatMap((node) => [node.name, ...node.report.givers.most.map((giver) => giver.node)]))].sort();
  const labels = new Map(nodes.map((node) => [node.name, node.labels]));
  let [of, by] = [(name) => name, "node"];
  if (names.length > GROUPS_MAX) {
    const label = ["zone", "machine", "rack", "host"].find((name) => nodes.some((node) => node.labels[name] !== undefined));
    const size = Math.ceil(names.length / GROUPS_MAX);
    const place = new Map(names.map((name, at) => [name, Math.floor(at / size)]));
    if (label) [of, by] = [(name) => labels.get(name)?.[label] ?? "others", label];
    else [of, by] = [(name) => `${names[place.get(name) * size]} …`, `${size} nodes`];
  }
  const groups = [...new Set(names.map(of))].sort();
  if (groups.length > GROUPS_MAX) return null;
  const cells = groups.map(() => groups.map(() => 0));
  for (const taker of takers) for (const giver of taker.report.givers.most) cells[groups.indexOf(of(giver.node))][groups.indexOf(of(taker.name))] += giver.tasks;
  return { groups, by, cells, rest: sum(takers, (taker) => taker.report.givers.rest) };
}

const HUNGRY_SHARE_MAX = 0.1;
const SLOW_SECONDS = 0.2;
const STUCK_MS = 60_000;

// What somebody should look at, the worst first: { level, text, href }.
export function warnings() {
  const found = [];
  const warn = (level, text, href) => found.push({ level, text, href });
  for (const { id, about, points, nodes } of jobs().filter((one) => !isOver(one.about.stage)).map((one) => job(one.id))) {
    const name = `Job ${jobName(id, about)}`;
    const href = `#/job/${encodeURIComponent(id)}`;
    if (about.stage === "abandoned") warn("bad", `${name}: its submission was not completed, and its submitter is gone`, href);
    if (about.missing) warn("bad", `${name} waits: ${about.missing}`, href);
    if (about.lost?.length > 0) warn("bad", `${name}: ${count(about.lost.length, "node")} lost in this attempt (${about.lost.slice(0, 3).join(", ")}${about.lost.length > 3 ? ", …" : ""}); others continue what they had`, href);
    const aside = Object.keys(about.set_aside ?? {}).length;
    if (aside > 0) warn("bad", `${name} goes on without ${count(aside, "task")} that failed with several nodes`, href);
    const { pool } = about;
    if (pool && pool.hungry > pool.workers * HUNGRY_SHARE_MAX) {
      warn("warn", `${name}: ${whole2(pool.hungry, pool.workers)} workers have no task${known(about.open_tasks) ? `, ${count(about.open_tasks, "open task")} left` : ""}`, href);
    }
    const slow = quantile(about.latencies?.writes, 0.99);
    if (slow > SLOW_SECONDS) warn("warn", `${name}: one in a hundred writes to ZooKeeper takes ${duration(slow)} or longer`, href);
    const end = last(points);
    const moved = end && points.findLast((point) => point.worked < end.worked);
    if (about.stage === "running" && moved && end.at_ms - moved.at_ms > STUCK_MS) warn("warn", `${name} has done no work for ${duration((end.at_ms - moved.at_ms) / 1000)}`, href);
    for (const node of nodes.filter((one) => one.report?.silent?.length > 0)) {
      warn("warn", `Node ${node.name}: a task has not reacted to a request to stop for ${duration((node.report.at_ms - node.report.silent[0].since_ms) / 1000)}`, `#/node/${encodeURIComponent(node.name)}`);
    }
    const bare = nodes.filter((one) => one.state === "member" && one.report?.ledger?.unprotected);
    if (bare.length > 0) warn("warn", `${name}: ${count(bare.length, "node")} hold${bare.length === 1 ? "s" : ""} more than is written down; if one is lost, the job begins again`, href);
  }
  const leaving = members().filter((member) => member.draining);
  if (leaving.length > 0) warn("info", `${count(leaving.length, "node was asked", "nodes were asked")} to leave: ${leaving.slice(0, 4).map((one) => one.name).join(", ")}${leaving.length > 4 ? ", …" : ""}`, "#/nodes");
  const unreadable = Object.entries(data.snapshot.warnings ?? {});
  if (unreadable.length > 0) warn("warn", `${count(unreadable.length, "znode")} cannot be read: ${unreadable[0].join(": ")}${unreadable.length > 1 ? ", …" : ""}`, "#/servers");
  const order = ["bad", "warn", "info"];
  return found.sort((a, b) => order.indexOf(a.level) - order.indexOf(b.level));
}

const whole2 = (some, all) => `${number(some)} of ${number(all)}`;

export const MOMENTS = { joined: "has joined", left: "has left", lost: "was lost", job_runs: "runs", job_over: "is over" };

export const shareText = (share) => percent(share);
