// The page: one view at a time, named by the address after #. Read this module first.
//
//   #/queue  #/pods/NAMESPACE/NAME  #/nodes  #/plugins  #/groups
//
// A view is a function that gets its place (`main`), the parts of the address and the services below, and returns
// the function that ends it. It watches one answer of /berth/v1 (live.js) and draws it.

import { el, podField, podLink, setText } from "./dom.js";
import { groupView, groupsView } from "./groups.js";
import { ask, watch } from "./live.js";
import { nodesView } from "./nodes.js";
import { pluginsView } from "./plugins.js";
import { podView } from "./pod.js";
import { queueView } from "./queue.js";

const VIEWS = { queue: queueView, pods: podView, nodes: nodesView, plugins: pluginsView, groups: groupsView };
const SAID_EVERY_MS = 5000;

const main = document.getElementById("main");
const status = document.getElementById("status");
const problem = document.getElementById("problem");
const connection = document.getElementById("connection");
let end = () => {};
let isShown = false;
let fault = "";
let said = { text: "", at: -SAID_EVERY_MS, timer: 0 };

/** Read out a text, at most every few seconds: numbers that change all the time would drown the rest. */
function say(text) {
  clearTimeout(said.timer);
  if (text === said.text) return;
  const wait = said.at + SAID_EVERY_MS - performance.now();
  if (wait > 0) {
    said.timer = setTimeout(() => say(text), wait);
    return;
  }
  said = { text, at: performance.now(), timer: 0 };
  setText(status, text);
}

function showProblem(text) {
  problem.hidden = !(fault || text);
  setText(problem, fault || text);
}

/** Show a fault of the page from now on: the user would take the old numbers for the new ones. */
function fail(what) {
  fault = `The page failed: ${what}. Reload it.`;
  showProblem("");
}

function showConnection(isMade) {
  setText(connection, isMade ? "live" : "not connected");
  connection.classList.toggle("lost", !isMade);
}

const services = {
  say,
  title(text) {
    const heading = el("h1", { tabIndex: -1 }, text);
    document.title = `${text} · berth`;
    return heading;
  },
  watch(path, query, draw) {
    return watch(path, query, { draw, problem: showProblem, connected: showConnection });
  },
  ask,
};

/** Return the parts of the address after #, and its query; null for a text that is no address. */
function addressed() {
  const [path, query] = location.hash.slice(1).split("?");
  try {
    return [path.split("/").filter(Boolean).map(decodeURIComponent), new URLSearchParams(query)];
  } catch {
    return null;
  }
}

function show() {
  const [[name, ...parts], query] = addressed() ?? [[], null];
  let view = Object.hasOwn(VIEWS, name ?? "") ? VIEWS[name] : null;
  if (!view || (name === "pods" && parts.length !== 2) || (name === "groups" && ![0, 2].includes(parts.length))) {
    location.replace("#/queue");
    return;
  }
  if (name === "groups" && parts.length) view = groupView;
  end();
  clearTimeout(said.timer);
  showProblem("");
  main.replaceChildren();
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#/${name}` || (name === "pods" && link.hash === "#/queue")) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  end = view(main, parts, query, services);
  // A new view is a new page: keyboard and screen reader begin at its heading.
  if (isShown) main.querySelector("h1")?.focus();
  isShown = true;
}

podField(document.getElementById("find-pod"), document.getElementById("find"), (key) => {
  if (key) location.hash = podLink(key).slice(1);
});
addEventListener("error", (event) => fail(event.message));
addEventListener("unhandledrejection", (event) => fail(event.reason));
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", show);
show();
