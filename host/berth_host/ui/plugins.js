// The plugins: where each one runs, its state, its calls with times and failures, its circuit breakers.

import { clock, count, el, facts, table } from "./dom.js";

const BAD = ["BackOff", "Rejected", "Quarantined", "Closed"];
const WARN = ["Degraded", "Connecting", "Handshaking", "Configuring", "Syncing", "Draining"];

function stateOf(plugin) {
  const place = plugin.attachment;
  const circuits = Object.values(plugin.circuits).map((one) => one.state);
  const text = place?.state ?? (plugin.available ? "available" : "not available");
  const kind = BAD.includes(text) || !plugin.available ? "bad" : WARN.includes(text) || circuits.length ? "warn" : "good";
  return el("span", { class: `state ${kind}` }, text);
}

function sum(calls, field) {
  return calls.reduce((total, call) => total + call[field], 0);
}

function failures(call) {
  return Object.values(call.failures).reduce((total, number) => total + number, 0);
}

function words(counts) {
  return Object.entries(counts).map(([name, number]) => `${name} ${number}`).join(", ");
}

function breakers(plugin) {
  return Object.entries(plugin.circuits).map(([point, one]) => `${point}: ${one.state} (${one.lastFailure})`).join("; ");
}

function callTable(name, calls) {
  return table(`Calls of ${name}`,
    [{ title: "Call" }, ...["Calls", "Mean ms", "p99 ms", "Max ms", "Total ms", "Repeats", "Overruns"]
      .map((title) => ({ title, number: true })), { title: "Failures" }, { title: "Policies used" }],
    calls.map((call) => [call.call, ...[call.calls, call.meanMs, call.p99Ms, call.maxMs, call.totalMs, call.repeats, call.overruns]
      .map((number) => number.toLocaleString("en")), words(call.failures), words(call.policies)]));
}

function details(plugin) {
  const place = plugin.attachment;
  return el("details", { "data-name": plugin.name },
    el("summary", {}, plugin.name),
    facts([
      ["Place", place?.place],
      ["Instance", place?.instance],
      ["State since", place && clock(place.since)],
      ["Reason", place?.reason],
      ["Transport", place?.transport],
      ["Circuit breakers", breakers(plugin)],
      ["Warnings", place?.warnings.join("; ")],
      ["Other instances", plugin.otherInstances.map((one) => `${one.instance || one.place}: ${one.state}`).join(", ")],
      ["Wrong answers", plugin.violations ? String(plugin.violations) : ""],
      ["Profiles", plugin.profiles.map((one) => `${one.schedulerName}: ${one.points.join(", ")}`).join("; ")],
      ["Declares", plugin.profiles[0] && `nodes as ${plugin.profiles[0].declares.nodeMode}, needs `
        + `${plugin.profiles[0].declares.needs.join(", ") || "nothing"}`],
    ]),
    plugin.calls.length ? el("div", { class: "wide" }, callTable(plugin.name, plugin.calls)) : null);
}

export function pluginsView(main, _parts, _query, { say, title, watch }) {
  const body = el("div", {}, el("p", { class: "soft" }, "reading the plugins"));
  main.append(title("Plugins"), body);
  return watch("plugins", {}, ({ value, changed }) => {
    if (!changed) return;
    const listed = [...value.plugins].sort((a, b) =>
      (a.runs === "inProcess") - (b.runs === "inProcess") || (a.name < b.name ? -1 : 1));
    const columns = [{ title: "Plugin" }, { title: "Runs" }, { title: "State" }, { title: "Version" },
      ...["Calls", "Mean ms", "Total ms", "Failures"].map((title) => ({ title, number: true })), { title: "Breaker" },
      { title: "Points" }];
    const rows = listed.map((plugin) => {
      const calls = sum(plugin.calls, "calls");
      const total = sum(plugin.calls, "totalMs");
      return [plugin.name, plugin.runs === "inProcess" ? "in process" : "served", stateOf(plugin), plugin.version ?? "",
        calls.toLocaleString("en"), calls ? (total / calls).toFixed(3) : "", total.toFixed(1),
        String(plugin.calls.reduce((all, call) => all + failures(call), 0) || ""),
        Object.values(plugin.circuits).map((one) => one.state).join(", ") || "closed",
        [...new Set(plugin.profiles.flatMap((one) => one.points))].join(", ")];
    });
    const extenders = value.extenders.map((one) => [one.name, one.urlPrefix, Object.keys(one.verbs).join(", "),
      one.failing.join(", ") || "none", sum(one.calls, "calls").toLocaleString("en")]);
    const open = new Set([...body.querySelectorAll("details[open]")].map((one) => one.dataset.name));
    const focused = document.activeElement?.closest?.("details")?.dataset.name;
    body.replaceChildren(...[
      el("div", { class: "wide" }, table(`${count(listed.length, "plugin")}; served ones first`, columns, rows)),
      extenders.length ? table("HTTP extenders", [{ title: "Name" }, { title: "URL" }, { title: "Verbs" }, { title: "Failing" },
        { title: "Calls", number: true }], extenders) : null,
      value.missing.length ? el("p", { class: "warn" }, `Not in this build: ${value.missing.join(", ")}`) : null,
      el("h2", {}, "Each plugin"),
      ...listed.map(details),
    ].filter(Boolean));
    for (const one of body.querySelectorAll("details")) {
      one.open = open.has(one.dataset.name);
      if (focused === one.dataset.name) one.firstChild.focus();
    }
    const bad = listed.filter((plugin) => !plugin.available).map((plugin) => plugin.name);
    say(`${count(listed.length, "plugin")}${bad.length ? `; not available: ${bad.join(", ")}` : "; all are available"}`);
  });
}
