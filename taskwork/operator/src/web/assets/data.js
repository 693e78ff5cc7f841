// The source of the pages' data: a server that sends changes, or the page itself. Other modules do not depend on which.

// The snapshot with its envelope, the details of jobs and nodes, the first page, the compared jobs and additional pages of a
// single file, and the start and reason of a lost connection.
export const data = { view: null, snapshot: null, details: new Map(), first: null, compared: null, pages: { __proto__: null }, isLive: false, brokenSince: null, why: "", nowMs: 0, gotAt: 0 };

const RETRY_MS_MIN = 500;
const RETRY_MS_MAX = 15_000;
// A server sends something every 10 s; after this time it counts as gone.
const SILENT_MS_MAX = 25_000;
// Details are as large as the changes of many seconds, so they are fetched rarely.
const DETAIL_MS_MIN = 5_000;
const MOMENTS_MAX = 1_000;

let changed = () => {};
let watched = { path: null, mark: null };
let detailTimer = 0;
let stream = null;
let retryMs = RETRY_MS_MIN;
let retryTimer = 0;

// Starts to fetch; `onChange` is called after every change.
export function open(onChange) {
  changed = onChange;
  const embedded = document.getElementById("data");
  if (embedded) {
    const { view, job, first, compared } = JSON.parse(embedded.textContent);
    [data.first, data.compared] = [first, compared];
    take(view);
    if (job) data.details.set(`job/${job.id}`, job);
    return changed();
  }
  data.isLive = true;
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : connect()));
  if (!document.hidden) connect();
}

// Sets the path of the displayed job or node, or null: its details are fetched, and again when `mark` changes.
export function watch(path, mark) {
  if (watched.path === path && watched.mark === mark) return;
  const isOther = watched.path !== path;
  watched = { path, mark };
  if (isOther || !detailTimer) fetchDetail();
}

async function fetchDetail() {
  clearTimeout(detailTimer);
  detailTimer = 0;
  const { path, mark } = watched;
  if (path === null || !stream) return;
  detailTimer = setTimeout(() => {
    detailTimer = 0;
    if (watched.path === path && watched.mark !== mark) fetchDetail();
  }, DETAIL_MS_MIN);
  // Without details the page shows the data of the snapshot.
  const answer = await ask(`api/${path}`, stream).catch(() => null);
  if (!answer) return;
  data.details.set(path, await answer.json());
  changed();
}

// Whether the data may still change.
export const isMoving = () => data.isLive && data.view?.source !== "replay";

// The time by the observer's clock, in milliseconds since 1970. In a record it is constant.
export const now = () => data.nowMs + (isMoving() ? performance.now() - data.gotAt : 0);

// The start and the reason of outdated data; null if the data is current.
export function stale() {
  if (data.brokenSince !== null) return { since: data.brokenSince, why: data.why };
  const since = data.view?.stale_since_ms ?? null;
  return since === null || !isMoving() ? null : { since, why: "ZooKeeper has not answered" };
}

// The reason why there is no cluster yet; null once there was one.
export function waits() {
  const { view, snapshot } = data;
  if (view?.waits && Object.keys(snapshot.members).length + Object.keys(snapshot.jobs).length > 0) view.waits = null;
  return view?.waits ?? null;
}

// An object without a prototype: a name may be anything, including `constructor`.
const bare = (things) => Object.assign(Object.create(null), things);

function take(view) {
  data.view = view;
  const snapshot = (data.snapshot = view.snapshot);
  snapshot.members = bare(snapshot.members);
  snapshot.jobs = bare(snapshot.jobs);
  for (const job of Object.values(snapshot.jobs)) job.nodes = bare(job.nodes);
  snapshot.workers ??= { points: [] };
  snapshot.costs ??= { about: {}, hours: {}, labels: {} };
  setClock(view.now_ms ?? snapshot.cluster.at_ms);
}

// Smooths the clock against varying delays of messages.
function setClock(ms) {
  if (Math.abs(ms - now()) > 1_500) [data.nowMs, data.gotAt] = [ms, performance.now()];
}

function close() {
  clearTimeout(retryTimer);
  stream?.abort();
  stream = null;
}

async function connect() {
  close();
  const mine = (stream = new AbortController());
  try {
    if (!data.snapshot) take(await (await ask("api/view", mine)).json());
    fetchDetail();
    changed();
    await follow(mine);
    throw new Error("ended");
  } catch (error) {
    if (stream !== mine) return;
    close();
    if (error.cause === 401) return location.assign("sign-in");
    data.brokenSince ??= data.view ? now() : Date.now();
    data.why = error.cause ? error.message : "the dashboard's server has not answered";
    retryTimer = setTimeout(connect, retryMs);
    retryMs = Math.min(RETRY_MS_MAX, retryMs * 2);
    changed();
  }
}

async function ask(path, { signal }, headers = {}) {
  const answer = await fetch(path, { signal, headers });
  if (!answer.ok) throw new Error(`the dashboard's server has answered ${answer.status} (${(await answer.text()).slice(0, 200)})`, { cause: answer.status });
  return answer;
}

// Requests a document of a running job: { format, content }.
export async function requestDocument(job, name, argument) {
  const about = argument === null ? "" : `?about=${encodeURIComponent(argument)}`;
  return (await ask(`api/job/${encodeURIComponent(job)}/document/${encodeURIComponent(name)}${about}`, {})).json();
}

// Reads events until the end of the stream. Not an `EventSource`, which can only resume its own streams.
async function follow(mine) {
  const answer = await ask("events?topics=view", mine, { accept: "text/event-stream", "last-event-id": String(data.snapshot.seq) });
  [data.brokenSince, retryMs] = [null, RETRY_MS_MIN];
  // If ZooKeeper does not answer, the stream starts with that event.
  data.view.stale_since_ms = null;
  changed();
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const silent = setTimeout(() => reader.cancel().catch(() => {}), SILENT_MS_MAX);
    const { value, done } = await reader.read().finally(() => clearTimeout(silent));
    if (done) return;
    const events = (rest + value.replaceAll("\r", "")).split("\n\n");
    rest = events.pop();
    for (const event of events) await handle(event, mine);
    if (events.length > 0) changed();
  }
}

async function handle(text, mine) {
  const fields = { event: "", data: "" };
  for (const line of text.split("\n")) {
    const [, field, value] = /^(event|data): ?(.*)$/.exec(line) ?? [];
    if (field) fields[field] += value;
  }
  const content = fields.data ? JSON.parse(fields.data) : null;
  if (fields.event === "stale") data.view.stale_since_ms = content?.stale_since_ms ?? now();
  else if (fields.event === "fresh") data.view.stale_since_ms = null;
  else if (fields.event !== "view") return;
  else if (content.snapshot) take(content);
  else if (content.since === data.snapshot.seq) apply(data.snapshot, content);
  // A change is missing.
  else if (content.seq > data.snapshot.seq) take(await (await ask("api/view", mine)).json());
}

// Applies a change to a snapshot.
function apply(snapshot, delta) {
  [snapshot.seq, snapshot.cluster] = [delta.seq, delta.cluster];
  setClock(delta.cluster.at_ms);
  applyChanges(snapshot.members, delta.members);
  for (const job of delta.jobs_gone) {
    delete snapshot.jobs[job];
    data.details.delete(`job/${job}`);
  }
  for (const [id, { about, record, display, nodes, series }] of Object.entries(delta.jobs)) {
    const job = (snapshot.jobs[id] ??= { nodes: bare(), series: { points: [] } });
    // These two are sent only after a change; null means none.
    if (about) job.about = { ...about, record: record === undefined ? (job.about?.record ?? null) : record, display: display === undefined ? (job.about?.display ?? null) : display };
    applyChanges(job.nodes, nodes);
    if (series) job.series = applySeries(job.series, series);
  }
  if (delta.workers) snapshot.workers = applySeries(snapshot.workers, delta.workers);
  snapshot.moments = [...snapshot.moments, ...delta.moments].slice(-MOMENTS_MAX);
  snapshot.warnings = delta.warnings ?? snapshot.warnings;
  if (delta.costs) {
    snapshot.costs.about = delta.costs.about;
    applyChanges(snapshot.costs.hours, delta.costs.hours);
    applyChanges(snapshot.costs.labels, delta.costs.labels);
  }
}

const applySeries = (series, { step_ms, kept, points }) => ({ step_ms, points: [...(series?.points ?? []).slice(0, kept), ...points] });

function applyChanges(things, changes) {
  for (const name of changes?.gone ?? []) delete things[name];
  Object.assign(things, changes?.set);
}
