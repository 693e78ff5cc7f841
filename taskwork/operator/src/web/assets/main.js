// Shows the page in the address, and keeps it up to date.
//
// The modules are served, and embedded in reports, as one script, each after its imports. Each import must be one line,
// which is removed together with the word `export`, and no top-level name may be used in two
// modules.

import { data, isMoving, now, open, stale, waits, watch } from "./data.js";
import { costsPage } from "./costs.js";
import { drawBy, h, patch, redraw } from "./dom.js";
import { jobPage } from "./job.js";
import { historyPage, nodePage, nodesPage, overviewPage, queuePage, serversPage } from "./pages.js";
import { nothing } from "./parts.js";
import { clock, duration, sign } from "./text.js";

// Without a prototype: an address may contain anything, including `constructor`.
const PAGES = { __proto__: null, "": overviewPage, job: jobPage, jobs: queuePage, nodes: nodesPage, node: nodePage, zookeeper: serversPage, history: historyPage, costs: costsPage };
const ABOVE = { job: "jobs", node: "nodes" };
// The interval at which the details of a node are fetched.
const NODE_MS = 10_000;
const byId = (id) => document.getElementById(id);

let shown = null;

function route() {
  const [, page = "", name = ""] = location.hash.split("/");
  // A report starts with its job.
  if (page === "" && data.first) return data.first;
  try {
    return [page, decodeURIComponent(name)];
  } catch {
    return [page, name];
  }
}

function drawPage() {
  const [page, name] = route();
  const path = `${page}/${encodeURIComponent(name)}`;
  if (page === "job") watch(path, data.snapshot?.jobs[name]?.about.best);
  else if (page === "node") watch(path, Math.floor(now() / NODE_MS));
  else watch(null);
  const made = make(page, name);
  const here = `${page}/${name}`;
  patch(byId("main"), [
    h("header", { class: "title", key: `title ${here}` }, h("h1", { tabindex: "-1" }, made.title), made.lead && h("p", { class: "lead" }, made.lead)),
    h("div", { class: "content", key: here }, made.content),
  ]);
  document.title = `${made.title} · taskwork`;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#/${ABOVE[page] ?? page}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  drawStatus();
  if (shown !== null && shown !== here) {
    window.scrollTo(0, 0);
    byId("main").querySelector("h1").focus({ preventScroll: true });
  }
  shown = here;
}

function make(page, name) {
  if (!data.snapshot) return { title: "taskwork", content: [nothing(data.why ? "" : "Reading the cluster …")] };
  if (waits()) return { title: "No cluster yet", lead: "It will be shown as soon as it exists.", content: [h("p", { class: "remark", key: "waits" }, `${waits()}.`)] };
  const draw = PAGES[page] ?? data.pages[page];
  if (!draw) return { title: "No such page", content: [h("p", null, "There is no such page. ", h("a", { href: "#/" }, "Overview"))] };
  try {
    return draw(name);
  } catch (error) {
    console.error(error);
    return { title: "taskwork", content: [nothing(`This cannot be shown: ${error.message}`)] };
  }
}

function drawStatus() {
  const old = stale();
  const { view } = data;
  const at = clock(now());
  patch(byId("cluster"), [view?.cluster ?? ""]);
  patch(byId("state"), [sign(old ? "✕" : "●", old ? "bad" : view ? "good" : ""), old ? "not current" : !view ? "connecting" : `${isMoving() ? "live" : "recorded"}, ${at}`]);
  const since = old && `${old.why} since ${clock(old.since, now(), false)}`;
  byId("banner").hidden = !old;
  patch(byId("banner"), old ? [h("p", null, sign("▲"), view ? `Data is ${duration(Math.floor((now() - old.since) / 1000))} old: ${since}.` : `Nothing is known yet: ${since}.`)] : []);
  // Announced once, not every second.
  patch(byId("announcer"), old ? [`The data is old: ${since}.`] : []);
}

const BUSY_SHARE_MAX = 0.006;
const FIGURES_MS_MAX = 5_000;
const EVENTS_MS_MAX = 1_000;
let [cost, drawnAt, dueAt, timer, isFirst, latest] = [0, 0, 0, 0, true, null];

// Draws new data, but limits the share of time spent on that: for a large cluster figures may be some seconds old, but
// events are shown soon.
function redrawInTime() {
  // The first data is shown at once.
  if (isFirst) return redraw();
  const most = data.snapshot.moments.at(-1) === latest ? FIGURES_MS_MAX : EVENTS_MS_MAX;
  const due = drawnAt + Math.min(most, cost / BUSY_SHARE_MAX);
  if (timer && due >= dueAt) return;
  clearTimeout(timer);
  dueAt = due;
  timer = setTimeout(redraw, Math.max(0, due - performance.now()));
}

function drawTimed() {
  clearTimeout(timer);
  timer = 0;
  const from = performance.now();
  drawPage();
  drawnAt = performance.now();
  cost = isFirst ? 0 : drawnAt - from;
  isFirst = !data.snapshot;
  latest = data.snapshot?.moments.at(-1);
}

// The theme of the system, or the chosen one, which is stored.
function offerThemes() {
  const { dataset } = document.documentElement;
  const select = byId("theme");
  select.value = dataset.theme ?? "system";
  select.onchange = () => {
    if (select.value === "system") delete dataset.theme;
    else dataset.theme = select.value;
    try {
      localStorage.setItem("taskwork-theme", select.value);
    } catch {
      // Without permission to store, the choice is lost with the page.
    }
  };
}

// The address selects a page, so fragments cannot be used for positions in it.
byId("skip").onclick = (event) => {
  event.preventDefault();
  byId("main").focus();
};
offerThemes();
drawBy(drawTimed);
window.addEventListener("hashchange", redraw);
// Tables render only the rows in the window.
window.addEventListener("resize", redraw);
open(redrawInTime);
redraw();
// Ages grow without new data, too.
setInterval(() => document.hidden || drawStatus(), 1_000);
