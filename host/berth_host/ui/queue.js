// The queue: how many pods wait in each part and for each reason, and the pods.

import { count, el, podLink, setText, span } from "./dom.js";
import { List } from "./list.js";

const PARTS = {
  active: "Active",
  backoff: "Backoff",
  unschedulable: "Unschedulable",
  gated: "Gated",
  incomplete: "Incomplete groups",
  pending: "Beside a running group",
};
const MOST = 10000;
const ORDERS = {
  oldest: ["oldest first", (a, b) => compare(a.created, b.created) || compare(a.key, b.key)],
  newest: ["newest first", (a, b) => compare(b.created, a.created) || compare(a.key, b.key)],
  attempts: ["most attempts first", (a, b) => b.attempts - a.attempts || compare(a.key, b.key)],
  priority: ["highest priority first", (a, b) => b.priority - a.priority || compare(a.created, b.created)],
  name: ["by name", (a, b) => compare(a.key, b.key)],
};

function compare(a, b) {
  return a < b ? -1 : a > b ? 1 : 0;
}

/** Return why a pod waits; made once for each version of its row. */
function why(pod) {
  pod.why ??= [pod.reason.plugin, pod.reason.text].filter(Boolean).join(": ");
  return pod.why;
}

export function queueView(main, _parts, _query, { say, title, watch }) {
  const chosen = { part: "", reason: "", text: "", order: "oldest" };
  let state = { value: {}, rows: new Map(), at: null };
  const list = new List("Pods of the queue", [
    { title: "Pod", width: "25%", text: (pod) => pod.key, link: (pod) => podLink(pod.key) },
    { title: "Part", width: "11%", text: (pod) => PARTS[pod.part] ?? pod.part },
    { title: "Reason", width: "31%", text: why },
    { title: "Attempts", width: "10%", number: true, text: (pod) => String(pod.attempts) },
    { title: "Priority", width: "8%", number: true, text: (pod) => String(pod.priority) },
    { title: "Age", width: "7%", number: true, text: (pod) => span(pod.created, state.at) },
    { title: "Retry in", width: "8%", number: true, text: (pod) => (pod.retryAt ? span(state.at, pod.retryAt) : "") },
  ]);
  const parts = Object.fromEntries(["", ...Object.keys(PARTS)].map((part) => {
    const number = el("span", { class: "count" }, "0");
    const button = el("button", { type: "button", "aria-pressed": "false", "data-part": part || "all" },
      `${PARTS[part] ?? "All"} `, number);
    button.addEventListener("click", () => {
      chosen.part = part;
      chosen.reason = "";
      filter();
    });
    return [part, { button, number }];
  }));
  const reasons = el("tbody");
  const every = el("button", { type: "button", hidden: true }, "Show every reason");
  every.addEventListener("click", () => choose(""));
  const text = el("input", { type: "search", id: "queue-text", autocomplete: "off", spellcheck: "false" });
  text.addEventListener("input", () => {
    chosen.text = text.value.trim().toLowerCase();
    filter();
  });
  const order = el("select", { id: "queue-order" },
    Object.entries(ORDERS).map(([name, [label]]) => el("option", { value: name }, label)));
  order.addEventListener("change", () => {
    chosen.order = order.value;
    filter();
  });
  const summary = el("p", { class: "soft" }, "reading the queue");
  const reasonTable = el("table", {},
    el("caption", {}, "Why pods wait"),
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Reason"), el("th", { scope: "col", class: "number" }, "Pods"))),
    reasons);
  main.append(title("Queue"),
    el("div", { class: "controls" },
      el("div", { class: "parts", role: "group", "aria-label": "Part of the queue" },
        Object.values(parts).map((part) => part.button)),
      el("label", { for: "queue-text" }, "Name or reason contains", text),
      el("label", { for: "queue-order" }, "Order", order)),
    summary,
    el("div", { class: "split" },
      el("section", { "aria-label": "Reasons" }, reasonTable, every),
      list.element));

  function choose(reason) {
    chosen.reason = reason;
    filter();
  }

  function drawReasons(rows) {
    const found = new Map();
    for (const pod of rows) {
      const reason = why(pod);
      found.set(reason, (found.get(reason) ?? 0) + 1);
    }
    const most = [...found].sort((a, b) => b[1] - a[1] || compare(a[0], b[0])).slice(0, 30);
    const focused = document.activeElement?.dataset?.reason;
    while (reasons.children.length > most.length) reasons.lastChild.remove();
    while (reasons.children.length < most.length) {
      const button = el("button", { type: "button" });
      button.addEventListener("click", () => choose(chosen.reason === button.dataset.reason ? "" : button.dataset.reason));
      reasons.append(el("tr", {}, el("th", { scope: "row" }, button), el("td", { class: "number" })));
    }
    most.forEach(([reason, number], index) => {
      const button = reasons.children[index].firstChild.firstChild;
      button.dataset.reason = reason;
      setText(button, reason || "no reason");
      button.setAttribute("aria-pressed", String(chosen.reason === reason));
      setText(reasons.children[index].lastChild, number.toLocaleString("en"));
      // The order changes while the page is read: the keyboard stays with its reason.
      if (focused !== undefined && reason === focused) button.focus();
    });
  }

  function filter() {
    for (const [part, { button }] of Object.entries(parts)) button.setAttribute("aria-pressed", String(part === chosen.part));
    const inPart = [...state.rows.values()].filter((pod) => !chosen.part || pod.part === chosen.part);
    drawReasons(inPart);
    every.hidden = !chosen.reason;
    const shown = inPart.filter((pod) => {
      if (chosen.reason && why(pod) !== chosen.reason) return false;
      return !chosen.text || pod.key.toLowerCase().includes(chosen.text)
        || why(pod).toLowerCase().includes(chosen.text);
    });
    shown.sort(ORDERS[chosen.order][1]);
    list.set(shown);
    const all = Object.values(state.value.parts ?? {}).reduce((sum, number) => sum + number, 0);
    const listed = state.rows.size < all ? `; the list has the ${state.rows.size.toLocaleString("en")} oldest` : "";
    setText(summary, `${count(shown.length, "pod")} shown of ${all.toLocaleString("en")}${listed}`);
  }

  const stop = watch("queue", { limit: MOST }, (now) => {
    state = now;
    if (!now.changed) {
      list.draw();
      return;
    }
    const numbers = now.value.parts ?? {};
    let all = 0;
    for (const [part, number] of Object.entries(numbers)) {
      all += number;
      if (!parts[part]) continue;
      setText(parts[part].number, number.toLocaleString("en"));
      // Two parts exist for pod groups alone.
      parts[part].button.hidden = !number && part !== chosen.part && ["incomplete", "pending"].includes(part);
    }
    setText(parts[""].number, all.toLocaleString("en"));
    filter();
    say(`${count(all, "pod")} in the queue: ${Object.entries(numbers).filter(([, number]) => number)
      .map(([part, number]) => `${number} ${(PARTS[part] ?? part).toLowerCase()}`).join(", ") || "none"}`);
  });
  return () => {
    stop();
    list.close();
  };
}
