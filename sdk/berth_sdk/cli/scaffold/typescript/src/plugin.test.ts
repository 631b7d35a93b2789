// SamplePlugin, asked in this process: no server, no cluster.

import assert from "node:assert/strict";
import test from "node:test";
//[cycle]
import {
  type CallContext,
  CycleEnd_Outcome, //[reserve]
  PluginStatus_Code, //[preEnqueue,postFilter,preScore,reserve,permit,preBind]
} from "./generated/berth/plugin/v1/common.js";
import * as calls from "./generated/berth/plugin/v1/scheduling.js";
//[/]
//[preEnqueue,!cycle]
import { PluginStatus_Code } from "./generated/berth/plugin/v1/common.js";
//[/]
import { ConfigureRequest } from "./generated/berth/plugin/v1/identity.js"; //[reserve]
import { PreEnqueueRequest } from "./generated/berth/plugin/v1/queue.js"; //[preEnqueue]
import { SortKeysRequest } from "./generated/berth/plugin/v1/queue.js"; //[queueSort]
import { ReconcileRequest } from "./generated/berth/plugin/v1/state.js"; //[reserve]
import * as plugin from "./plugin.js";

//[cycle]
const candidates = { names: ["n1", "n2", "n3"] }; //[filter,preScore,score]

/** Return the context of a call about a pod with one annotation. */
function about(cycleId: string, annotation = "other", value = ""): Partial<CallContext> {
  const ref = { namespace: "default", name: "web", uid: `uid-${cycleId}` };
  const summary = calls.PreFilterRequest.fromPartial({
    ctx: { pod: { summary: { ref, annotations: { [annotation]: value } } } },
  }).ctx!.pod!.summary!;
  return { cycleId, plugin: plugin.NAME, profile: "default-scheduler", pod: { summary, object: undefined, complete: true } };
}

//[/]
test("the plugin is named as in the configuration", () => {
  assert.equal(plugin.me.name, "SamplePlugin");
});
//[preEnqueue]

test("a pod that is held does not enter the queue", () => {
  const pods = [{ summary: {} }, { summary: { annotations: { [plugin.HOLD]: "true" } } }];
  const { statuses } = plugin.preEnqueue(PreEnqueueRequest.fromPartial({ pods }));
  assert.deepEqual(
    statuses.map(({ code }) => code),
    [PluginStatus_Code.CODE_SUCCESS, PluginStatus_Code.CODE_UNSCHEDULABLE_AND_UNRESOLVABLE],
  );
});
//[/]
//[queueSort]

test("a pod of higher priority comes first", () => {
  const pod = (priority: number, seconds: number) => ({ summary: { priority }, addedAt: new Date(seconds * 1000) });
  // In the order in which they are tried.
  const pods = [pod(2000000000, 9), pod(1, 1), pod(1, 2), pod(0, 0), pod(-5, 0)];
  const keys = plugin.sortKeys(SortKeysRequest.fromPartial({ pods })).keys.map((key) => Buffer.from(key));
  for (let i = 1; i < keys.length; i += 1) assert.equal(keys[i - 1]!.compare(keys[i]!), -1);
});
//[/]
//[preFilter]

test("the annotation reduces the nodes", () => {
  const request = calls.PreFilterRequest.fromPartial({ ctx: about("1", plugin.ONLY, "n1,n2") });
  assert.deepEqual(plugin.preFilter(request).eligible?.names, ["n1", "n2"]);
  assert.equal(plugin.preFilter(calls.PreFilterRequest.fromPartial({ ctx: about("2") })).eligible, undefined);
});
//[/]
//[filter]

test("a node that the pod avoids is rejected", () => {
  const request = calls.FilterRequest.fromPartial({ ctx: about("1", plugin.AVOID, "n2"), candidates });
  assert.deepEqual(plugin.filter(request).verdicts?.rejected[0]?.nodes?.names, ["n2"]);
  const other = calls.FilterRequest.fromPartial({ ctx: about("2"), candidates });
  assert.deepEqual(plugin.filter(other).verdicts?.rejected, []);
});
//[/]
//[postFilter]

test("the plugin leaves the search for victims to others", () => {
  const answer = plugin.postFilter(calls.PostFilterRequest.fromPartial({ ctx: about("1") }));
  assert.equal(answer.ctx?.status?.code, PluginStatus_Code.CODE_UNSCHEDULABLE);
});
//[/]
//[preScore]

test("a pod that is unranked is not scored", () => {
  const unranked = calls.PreScoreRequest.fromPartial({ ctx: about("1", plugin.UNRANKED), candidates });
  assert.equal(plugin.preScore(unranked).ctx?.status?.code, PluginStatus_Code.CODE_SKIP);
  const ranked = calls.PreScoreRequest.fromPartial({ ctx: about("2"), candidates });
  assert.equal(plugin.preScore(ranked).ctx?.status?.code, PluginStatus_Code.CODE_SUCCESS);
});
//[/]
//[score]

test("a node that the pod prefers scores more", () => {
  const request = calls.ScoreRequest.fromPartial({ ctx: about("1", plugin.PREFER, "n3"), candidates });
  assert.deepEqual(plugin.score(request).scores?.dense, [0n, 0n, 50n]);
});
//[/]
//[normalizeScore]

test("the best node gets 100", () => {
  const dense = calls.NormalizeScoreRequest.fromPartial({ ctx: about("1"), scores: { dense: [0n, 25n, 50n] } });
  assert.deepEqual(plugin.normalizeScore(dense).scores?.dense, [0n, 50n, 100n]);
  const small = calls.NormalizeScoreRequest.fromPartial({ ctx: about("1"), scores: { small: Buffer.from([0, 0]) } });
  assert.deepEqual(plugin.normalizeScore(small).scores?.dense, [0n, 0n]);
});
//[/]
//[reserve]

/** Give each node so many places. Return what the plugin says of it. */
function configured(podsPerNode: number): string {
  const args = { podsPerNode };
  return plugin.configure(ConfigureRequest.fromPartial({ plugins: [{ profile: "default-scheduler", args }] }));
}

function reserved(cycleId: string): PluginStatus_Code | undefined {
  const request = calls.ReserveRequest.fromPartial({ ctx: about(cycleId), nodeName: "n1" });
  return plugin.reserve(request).ctx?.status?.code;
}

test("a place is given back", () => {
  configured(1);
  assert.equal(reserved("1"), PluginStatus_Code.CODE_SUCCESS);
  assert.equal(reserved("1"), PluginStatus_Code.CODE_SUCCESS); // a duplicate
  assert.equal(reserved("2"), PluginStatus_Code.CODE_UNSCHEDULABLE);
  const answer = plugin.unreserve(calls.UnreserveRequest.fromPartial({ items: [{ cycleId: "1" }] }));
  assert.deepEqual(answer.doneCycleIds, ["1"]);
  assert.equal(reserved("3"), PluginStatus_Code.CODE_SUCCESS);
  assert.equal(reserved("1"), PluginStatus_Code.CODE_ERROR); // its cycle is over
});

test("the place of a bound pod is free, and so is one that Reconcile does not list", () => {
  configured(1);
  const live = [{ cycleId: "4", nodeName: "n1" }];
  plugin.reconcile([ReconcileRequest.fromPartial({ live, last: true })]);
  assert.equal(reserved("5"), PluginStatus_Code.CODE_UNSCHEDULABLE);
  const ended = [{ cycleId: "4", outcome: CycleEnd_Outcome.OUTCOME_BOUND }];
  plugin.endCycles(calls.EndCyclesRequest.fromPartial({ ended }));
  assert.equal(reserved("6"), PluginStatus_Code.CODE_SUCCESS);
  plugin.reconcile([ReconcileRequest.fromPartial({ last: true })]);
  assert.equal(reserved("7"), PluginStatus_Code.CODE_SUCCESS);
});

test("an argument that makes no sense is refused", () => {
  for (const wrong of [0, -1, 1.5]) assert.match(configured(wrong), /podsPerNode/);
  assert.equal(configured(1), "");
});
//[/]
//[permit]

test("a pod with the annotation waits", () => {
  const answer = plugin.permit(calls.PermitRequest.fromPartial({ ctx: about("1", plugin.WAIT, "30") }));
  assert.equal(answer.ctx?.status?.code, PluginStatus_Code.CODE_WAIT);
  assert.equal(answer.waitTimeout?.seconds, 30n);
  const other = plugin.permit(calls.PermitRequest.fromPartial({ ctx: about("2", plugin.WAIT, "long") }));
  assert.equal(other.ctx?.status?.code, PluginStatus_Code.CODE_SUCCESS);
});
//[/]
//[preBind]

test("the chosen node is written to the pod", () => {
  const request = calls.PreBindRequest.fromPartial({ ctx: about("1"), nodeName: "n1" });
  const answer = plugin.preBind(request);
  const patch = JSON.parse(Buffer.from(answer.patches[0]!.mergePatchJson).toString());
  assert.deepEqual(patch, { metadata: { annotations: { [plugin.CHOSEN]: "n1" } } });
  assert.equal(answer.doneWhenApplied, true);
  const patched = [{ outcome: calls.PatchResult_Outcome.OUTCOME_CONFLICT }];
  const after = plugin.preBind(calls.PreBindRequest.fromPartial({ ctx: about("1"), nodeName: "n1", patched }));
  assert.equal(after.ctx?.status?.code, PluginStatus_Code.CODE_ERROR);
});
//[/]
//[bind]

test("the host posts the binding", () => {
  assert.equal(plugin.bind(calls.BindRequest.fromPartial({ ctx: about("1"), nodeName: "n1" })).hostBinds, true);
});
//[/]
//[postBind]

test("a binding is acknowledged", () => {
  const items = [{ cycleId: "8", pod: { namespace: "default", name: "web" }, nodeName: "n1" }];
  assert.deepEqual(plugin.postBind(calls.PostBindRequest.fromPartial({ items })), {});
});
//[/]
