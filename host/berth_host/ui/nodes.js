// The nodes: a heat map by how much of a resource is requested, or by the score of a pod; and the same as a table.

import { amount, count, el, facts, podLink, setText } from "./dom.js";
import { colour, HeatMap } from "./heat.js";
import { List } from "./list.js";

const SCORE = "score";
const REJECTED = "#a3141d";

/** Return a node of the answer as an object: its row is a list, in the order of `columns`. */
function read(row, columns, resources) {
  const node = Object.fromEntries(columns.map((name, index) => [name, row[index]]));
  node.shares = Object.fromEntries(resources.map((name, index) => [
    name, node.allocatable[index] ? node.requested[index] / node.allocatable[index] : null]));
  return node;
}

function percent(share) {
  return share === null || share === undefined ? "" : `${Math.round(100 * share)} %`;
}

export function nodesView(main, _parts, query, { say, title, watch }) {
  const pod = query.get("pod") ?? "";
  let by = query.get("by") ?? (pod ? SCORE : "cpu");
  let nodes = [];
  let resources = [];
  const select = el("select", { id: "nodes-by" });
  select.addEventListener("change", () => {
    by = select.value;
    draw();
  });
  const asked = el("input", { id: "nodes-pod", value: pod, placeholder: "NAMESPACE/NAME", autocomplete: "off", spellcheck: "false" });
  const form = el("form", { class: "controls" },
    el("label", { for: "nodes-by" }, "Colour by", select),
    el("label", { for: "nodes-pod" }, "Score of the pod", asked), el("button", {}, "Show"),
    pod ? el("a", { href: podLink(pod) }, `Pod ${pod}`) : null);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const wanted = asked.value.trim();
    const key = !wanted || wanted.includes("/") ? wanted : `default/${wanted}`;
    location.hash = `/nodes${key ? `?pod=${encodeURIComponent(key)}` : ""}`;
  });
  const legend = el("p", { class: "legend" });
  const summary = el("p", { class: "soft" }, "reading the nodes");
  const detail = el("section", { "aria-label": "The chosen node", "aria-live": "polite" });
  const map = new HeatMap("Nodes", (index) => showNode(nodes[index]));
  const used = (name) => ({
    title: name, width: "11%", number: true, text: (node) => percent(node.shares[name]),
  });
  const list = new List("Nodes as a table", [
    { title: "Node", width: "24%", text: (node) => node.node, link: (node) => `#/nodes?${new URLSearchParams({ ...(pod ? { pod } : {}), node: node.node })}` },
    { title: "Zone", width: "11%", text: (node) => node.zone },
    used("cpu"), used("memory"), used("pods"),
    { title: "Verdict", width: "22%", text: (node) => verdictText(node) },
    { title: "Score", width: "10%", number: true, text: (node) => String(node.score ?? "") },
  ]);
  main.append(title(pod ? `Nodes for pod ${pod}` : "Nodes"), form, summary, map.canvas, legend, detail,
    el("div", { class: "short" }, list.element));

  function verdictText(node) {
    const own = node.unschedulable ? "cordoned" : "";
    if (!pod) return own;
    return node.verdict === "rejected" ? `${node.plugin}: ${node.reason}` : node.verdict === "notKept" ? "not kept" : node.verdict;
  }

  function showNode(node) {
    if (!node) return;
    detail.replaceChildren(el("h2", {}, node.node), facts([
      ["Zone", node.zone],
      ["Cordoned", node.unschedulable ? "yes" : ""],
      ["Taints", node.taints ? String(node.taints) : ""],
      ...resources.map((name, index) => [name,
        `${amount(name, node.requested[index])} of ${amount(name, node.allocatable[index])} requested`]),
      ["Verdict", pod ? verdictText(node) : ""],
      ["Score", node.score === null || node.score === undefined ? "" : String(node.score)],
    ]));
  }

  function cell(node, least, most) {
    const mark = node.unschedulable;
    if (by !== SCORE) {
      const share = node.shares[by];
      return { fill: share === null || share === undefined ? null : colour(share), text: `${node.node}: ${percent(share) || "none"}`, mark };
    }
    if (node.verdict === "rejected") return { fill: REJECTED, text: `${node.node}: ${verdictText(node)}`, mark: true };
    if (node.score === null) return { fill: null, text: `${node.node}: ${verdictText(node)}`, mark };
    return { fill: colour(most > least ? (node.score - least) / (most - least) : 1), text: `${node.node}: ${node.score}`, mark };
  }

  function draw() {
    if (select.value !== by) select.value = by;
    const scored = nodes.map((node) => node.score).filter((score) => score !== null && score !== undefined);
    const least = Math.min(...scored);
    const most = Math.max(...scored);
    const shares = nodes.map((node) => node.shares[by]).filter((share) => share !== null && share !== undefined);
    const mean = shares.length ? shares.reduce((sum, share) => sum + share, 0) / shares.length : 0;
    const rejected = nodes.filter((node) => node.verdict === "rejected").length;
    const text = by === SCORE
      ? `${count(nodes.length, "node")}: ${rejected} rejected, ${scored.length} with a kept score`
        + `${scored.length ? `, from ${least} to ${most}` : ""}`
      : `${count(nodes.length, "node")}: ${percent(mean)} of ${by} requested on average, `
        + `${shares.filter((share) => share >= 0.9).length} at 90 % or more`;
    setText(summary, text);
    map.set(nodes.map((node) => cell(node, least, most)), `Heat map. ${text}. The table below has every node.`);
    const box = (fill) => {
      const made = el("i", { class: "key", "aria-hidden": "true" });
      made.style.background = fill;
      return made;
    };
    legend.replaceChildren(...(by === SCORE
      ? [el("span", {}, box(colour(0)), "lowest score"), el("span", {}, box(colour(1)), "highest score"),
        el("span", {}, box(REJECTED), "rejected"), el("span", {}, box("var(--line)"), "no score kept")]
      : [0, 0.25, 0.5, 0.75, 1].map((share) => el("span", {}, box(colour(share)), percent(share)))));
    list.set(nodes);
    say(text);
  }

  const stop = watch("nodes", pod ? { pod } : {}, ({ value, rows, changed }) => {
    if (!changed) return;
    resources = value.resources;
    nodes = [...rows.values()].map((row) => read(row, value.columns, resources))
      .sort((a, b) => (a.zone < b.zone ? -1 : a.zone > b.zone ? 1 : 0) || a.node.localeCompare(b.node, "en", { numeric: true }));
    const options = [...resources, ...(pod ? [SCORE] : [])];
    if (!options.includes(by)) [by] = options;
    if (select.options.length !== options.length) {
      select.replaceChildren(...options.map((name) =>
        el("option", { value: name }, name === SCORE ? "score of the pod" : `${name} requested`)));
    }
    draw();
    const wanted = query.get("node");
    const index = wanted ? nodes.findIndex((node) => node.node === wanted) : map.selected;
    if (index >= 0) {
      map.selected = index;
      showNode(nodes[index]);
    }
  });
  return () => {
    stop();
    map.close();
    list.close();
  };
}
