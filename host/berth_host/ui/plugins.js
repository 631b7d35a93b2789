// The plugins: where each one runs, its state, its calls with times and failures, its circuit breakers.

import { clock, count, el, facts, redraw, table } from "./dom.js";

const BAD = ["BackOff", "Rejected", "Quarantined", "Closed"];
const WARN = ["Degraded", "Connecting", "Handshaking", "Configuring", "Syncing", "Draining"];
const FIGURES = ["Calls", "Mean ms", "Total ms", "Failures"].map((title) => ({ title, number: true }));

function stateOf(plugin) {
  const place = plugin.attachment;
  const circuits = Object.values(plugin.circuits).map((one) => one.state);
  const fails = plugin.profiles.some((one) => one.failing);
  const text = place?.state ?? (!plugin.available ? "not available" : fails ? "failing" : "available");
  const kind = BAD.includes(text) || !plugin.available ? "bad" : WARN.includes(text) || circuits.length || fails ? "warn" : "good";
  return el("span", { class: `state ${kind}` }, text);
}

function sum(calls, field) {
  return calls.reduce((total, call) => total + call[field], 0);
}

function failures(call) {
  return Object.values(call.failures).reduce((total, number) => total + number, 0);
}

/** Return the values of FIGURES. */
function figures(calls) {
  const number = sum(calls, "calls");
  const total = sum(calls, "totalMs");
  return [number.toLocaleString("en"), number ? (total / number).toFixed(3) : "", total.toFixed(1),
    String(calls.reduce((all, call) => all + failures(call), 0) || "")];
}

function words(counts) {
  return Object.entries(counts).map(([name, number]) => `${name} ${number}`).join(", ");
}

function breakers(plugin) {
  return Object.entries(plugin.circuits).map(([point, one]) => `${point}: ${one.state} (${one.lastFailure})`).join("; ");
}

function policies(plugin) {
  return Object.entries(plugin.policies).map(([point, one]) =>
    `${point}: ${[one.deadlineMs === null ? "" : `${one.deadlineMs} ms`, one.policy].filter(Boolean).join(", ")}`).join("; ");
}

function callTable(name, calls) {
  return table(`Calls of ${name}`,
    [{ title: "Call" }, ...["Calls", "Mean ms", "p99 ms", "Max ms", "Total ms", "Repeats", "Overruns"]
      .map((title) => ({ title, number: true })), { title: "Failures" }, { title: "Policies used" }],
    calls.map((call) => [call.call, ...[call.calls, call.meanMs, call.p99Ms, call.maxMs, call.totalMs, call.repeats, call.overruns]
      .map((number) => number.toLocaleString("en")), words(call.failures), words(call.policies)]));
}

function details(plugin, at) {
  const place = plugin.attachment;
  return el("details", { "data-name": plugin.name },
    el("summary", {}, plugin.name),
    facts([
      ["Place", place?.place],
      ["Instance", place?.instance],
      ["State since", place && clock(place.since, at)],
      ["Reason", place?.reason],
      ["Version", plugin.version],
      ["Contract", place?.contract && [place.contract, ...place.features].join(", ")],
      ["Transport", place?.transport],
      ["Required", plugin.required ? "yes" : "no"],
      ["Deadlines and policies", policies(plugin)],
      ["Circuit breakers", breakers(plugin)],
      ["Warnings", place?.warnings.join("; ")],
      ["Other instances", plugin.otherInstances.map((one) => `${one.instance || one.place}: ${one.state}`).join(", ")],
      ["Wrong answers", plugin.violations ? String(plugin.violations) : ""],
      ["Profiles", plugin.profiles.map((one) => `${one.schedulerName}: ${one.points.join(", ")}`).join("; ")],
      ["Declares", plugin.profiles[0] && `nodes as ${plugin.profiles[0].declares.nodeMode}, needs `
        + `${plugin.profiles[0].declares.needs.join(", ") || "nothing"}`],
    ]),
    plugin.calls.length ? callTable(plugin.name, plugin.calls) : null);
}

export function pluginsView(main, _parts, _query, { say, title, watch }) {
  const body = el("div", {}, el("p", { class: "soft" }, "reading the plugins"));
  main.append(title("Plugins"), body);
  return watch("plugins", {}, ({ value, at, changed }) => {
    if (!changed) return;
    const listed = [...value.plugins].sort((a, b) =>
      (a.runs === "inProcess") - (b.runs === "inProcess") || (a.name < b.name ? -1 : 1));
    const columns = [{ title: "Plugin" }, { title: "State" }, { title: "Runs" }, { title: "Version" },
      { title: "Contract" }, ...FIGURES, { title: "Breaker" }, { title: "Points" }];
    const rows = listed.map((plugin) => [plugin.name, stateOf(plugin),
      plugin.runs === "inProcess" ? "in\u00a0process" : "served", plugin.version ?? "", plugin.attachment?.contract ?? "", ...figures(plugin.calls),
      Object.values(plugin.circuits).map((one) => one.state).join(", ") || "closed",
      [...new Set(plugin.profiles.flatMap((one) => one.points))].join(", ")]);
    const extenders = value.extenders.map((one) => [one.name, one.urlPrefix, Object.keys(one.verbs).join(", "),
      one.failing.join(", ") || "none", ...figures(one.calls)]);
    redraw(body, [
      table(`${count(listed.length, "plugin")}; served ones first`, columns, rows),
      extenders.length ? table("HTTP extenders", [{ title: "Name" }, { title: "URL" }, { title: "Verbs" }, { title: "Failing" },
        ...FIGURES], extenders) : null,
      value.missing.length ? el("p", { class: "warn" }, `Not in this build: ${value.missing.join(", ")}`) : null,
      el("h2", {}, "Each plugin"),
      ...listed.map((plugin) => details(plugin, at)),
    ]);
    const bad = listed.filter((plugin) => !plugin.available).map((plugin) => plugin.name);
    say(`${count(listed.length, "plugin")}${bad.length ? `; not available: ${bad.join(", ")}` : "; all are available"}`);
  });
}
