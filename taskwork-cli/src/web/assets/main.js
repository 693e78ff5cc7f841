// Shows the page that the address names, and keeps it current.

import { data, now, open, stale, watch } from "./data.js";
import { announce, drawBy, h, patch, redraw } from "./dom.js";
import { jobPage } from "./job.js";
import { history, node, nodes, overview, queue, servers } from "./pages.js";
import { nothing } from "./parts.js";
import { clock, duration } from "./text.js";

const PAGES = { "": overview, job: jobPage, jobs: queue, nodes, node, zookeeper: servers, history };
const NAV = { job: "jobs", node: "nodes" };

let shown = null;

function route() {
  const [, page = "", name = ""] = (location.hash || "#/").split("/");
  const only = Object.keys(data.snapshot?.jobs ?? {});
  // A report of one job begins with it.
  if (!data.isLive && data.snapshot && page === "" && only.length === 1) return { page: "job", name: only[0] };
  try {
    return { page, name: decodeURIComponent(name) };
  } catch {
    return { page, name };
  }
}

function draw() {
  const { page, name } = route();
  watch(page === "job" ? name : null);
  const main = document.getElementById("main");
  const made = data.snapshot ? (PAGES[page] ?? missing)(name) : { title: "taskwork", content: [nothing(data.why ? "" : "Reading the cluster …")] };
  patch(main, [h("header", { class: "title", key: `title ${page} ${name}` }, h("h1", { tabindex: "-1" }, made.title), made.lead && h("p", { class: "lead" }, made.lead)), h("div", { class: "content", key: `${page} ${name}` }, made.content.flat(Infinity).filter(Boolean))]);
  document.title = `${made.title} · taskwork`;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === `#/${NAV[page] ?? page}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  status();
  const here = `${page}/${name}`;
  if (shown !== null && shown !== here) {
    window.scrollTo(0, 0);
    main.querySelector("h1").focus({ preventScroll: true });
  }
  shown = here;
}

const missing = () => ({ title: "No such page", content: [h("p", null, "There is no such page. ", h("a", { href: "#/" }, "Overview"))] });

function status() {
  const old = stale();
  const view = data.view;
  patch(document.getElementById("cluster"), view ? [view.cluster ?? ""] : []);
  const at = view && clock(now(), now());
  const words = !view ? "connecting" : old ? "not current" : data.isLive && view.source !== "replay" ? `live, ${at}` : `recorded, ${at}`;
  patch(document.getElementById("state"), [h("span", { class: `dot ${old ? "bad" : view ? "good" : ""}`, "aria-hidden": "true" }), words]);
  const since = old && clock(old.since, now(), false);
  patch(document.getElementById("banner"), old ? [h("p", null, h("span", { class: "sign", "aria-hidden": "true" }, "▲"), view ? `Data is ${duration(Math.max(0, Math.floor((now() - old.since) / 1000)))} old: ${old.why} since ${since}.` : `Nothing is known yet: ${old.why}.`)] : []);
  announce(old ? `The data is old: ${old.why} since ${since}.` : "");
}

// The theme: the system's, or the one that was chosen, which is remembered.
function theme() {
  const select = document.getElementById("theme");
  select.value = document.documentElement.dataset.theme ?? "system";
  select.onchange = () => {
    if (select.value === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = select.value;
    try {
      localStorage.setItem("taskwork-theme", select.value);
    } catch {
      // It is not remembered where nothing may be stored.
    }
  };
}

theme();
drawBy(draw);
window.addEventListener("hashchange", redraw);
open(redraw);
redraw();
// Ages grow also when nothing comes.
setInterval(() => document.hidden || status(), 1_000);
