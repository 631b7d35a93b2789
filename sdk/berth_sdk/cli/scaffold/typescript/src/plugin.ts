// SamplePlugin is a scheduling plugin for berth. Say here what it is for.
//
// It is in NAMES mode: each call has the complete pod and the names of the nodes, and the plugin keeps no copy of the cluster.

//[cycle]
import {
  type CallContext,
  CycleEnd_Outcome, //[reserve]
  PluginStatus_Code,
  ReplyContext,
} from "./generated/berth/plugin/v1/common.js";
//[/]
//[preEnqueue,!cycle]
import { PluginStatus_Code } from "./generated/berth/plugin/v1/common.js";
//[/]
import {
  type ConfigureRequest,
  ExtensionPoint,
  PluginDescriptor,
  ScoreNormalization, //[score]
} from "./generated/berth/plugin/v1/identity.js";
//[queue]
import {
  type PreEnqueueRequest, //[preEnqueue]
  PreEnqueueResponse, //[preEnqueue]
  type QueueServiceServer,
  type SortKeysRequest, //[queueSort]
  SortKeysResponse, //[queueSort]
} from "./generated/berth/plugin/v1/queue.js";
//[/]
//[cycle]
import {
  type BindRequest, //[bind]
  BindResponse, //[bind]
  type EndCyclesRequest,
  EndCyclesResponse,
  type FilterRequest, //[filter]
  FilterResponse, //[filter]
  type NormalizeScoreRequest, //[normalizeScore]
  NormalizeScoreResponse, //[normalizeScore]
  ObjectPatch_Action, //[preBind]
  PatchResult_Outcome, //[preBind]
  type PermitRequest, //[permit]
  PermitResponse, //[permit]
  type PostBindRequest, //[postBind]
  PostBindResponse, //[postBind]
  type PostFilterRequest, //[postFilter]
  PostFilterResponse, //[postFilter]
  type PreBindPreFlightRequest, //[preBind]
  PreBindPreFlightResponse, //[preBind]
  type PreBindRequest, //[preBind]
  PreBindResponse, //[preBind]
  type PreFilterRequest, //[preFilter]
  PreFilterResponse, //[preFilter]
  type PreScoreRequest, //[preScore]
  PreScoreResponse, //[preScore]
  type ReserveRequest, //[reserve]
  ReserveResponse, //[reserve]
  type SchedulingServiceServer,
  type ScoreRequest, //[score]
  ScoreResponse, //[score]
  type UnreserveRequest, //[reserve,permit]
  UnreserveResponse, //[reserve,permit]
} from "./generated/berth/plugin/v1/scheduling.js";
//[/]
//[reserve]
import { type ReconcileRequest, ReconcileResponse, type StateServiceServer } from "./generated/berth/plugin/v1/state.js";
//[/]
//[reserve]
import { streamed } from "./serve.js";
//[/]
import { unary } from "./serve.js";

/** What the configuration of the scheduler calls the plugin. */
export const NAME = "SamplePlugin";
//[preEnqueue]
/** Keeps a pod out of the queue. */
export const HOLD = "sample-plugin.example.com/hold";
//[/]
//[preFilter]
/** Lists the nodes that a pod may run on, separated by commas. */
export const ONLY = "sample-plugin.example.com/only";
//[/]
//[filter]
/** Lists the nodes that a pod must not run on, separated by commas. */
export const AVOID = "sample-plugin.example.com/avoid";
//[/]
//[preScore]
/** Makes the plugin leave the order of the nodes to others. */
export const UNRANKED = "sample-plugin.example.com/unranked";
//[/]
//[score]
/** Lists the nodes that a pod would like best, separated by commas. */
export const PREFER = "sample-plugin.example.com/prefer";
//[/]
//[permit]
/** The number of seconds that a pod waits before it is bound. */
export const WAIT = "sample-plugin.example.com/wait-seconds";
//[/]
//[preBind]
/** Where the plugin writes the node of a pod. */
export const CHOSEN = "sample-plugin.example.com/chosen-node";
//[/]

/** How the plugin introduces itself to the host. */
export const me = PluginDescriptor.fromPartial({
  name: NAME,
  version: "0.1.0",
  points: [
    ExtensionPoint.EXTENSION_POINT_PRE_ENQUEUE, //[preEnqueue]
    ExtensionPoint.EXTENSION_POINT_QUEUE_SORT, //[queueSort]
    ExtensionPoint.EXTENSION_POINT_PRE_FILTER, //[preFilter]
    ExtensionPoint.EXTENSION_POINT_FILTER, //[filter]
    ExtensionPoint.EXTENSION_POINT_POST_FILTER, //[postFilter]
    ExtensionPoint.EXTENSION_POINT_PRE_SCORE, //[preScore]
    ExtensionPoint.EXTENSION_POINT_SCORE, //[score]
    ExtensionPoint.EXTENSION_POINT_NORMALIZE_SCORE, //[normalizeScore]
    ExtensionPoint.EXTENSION_POINT_RESERVE, //[reserve]
    ExtensionPoint.EXTENSION_POINT_PERMIT, //[permit]
    ExtensionPoint.EXTENSION_POINT_PRE_BIND, //[preBind]
    ExtensionPoint.EXTENSION_POINT_BIND, //[bind]
    ExtensionPoint.EXTENSION_POINT_POST_BIND, //[postBind]
  ],
  //[score,!normalizeScore]
  // Score answers 0..100, and the score of a node does not depend on the other candidates.
  normalization: ScoreNormalization.SCORE_NORMALIZATION_NONE,
  //[/]
  //[normalizeScore]
  // NormalizeScore brings the scores into 0..100.
  normalization: ScoreNormalization.SCORE_NORMALIZATION_RPC,
  //[/]
});

/** Take the arguments of every profile. Return what is wrong with them, for the operator; "": nothing. */
export function configure(request: ConfigureRequest): string {
  //[reserve]
  const given = new Map<string, number>();
  for (const { profile, args } of request.plugins) {
    const limit: unknown = args?.podsPerNode ?? 110;
    if (typeof limit !== "number" || !Number.isInteger(limit) || limit < 1) {
      return "podsPerNode: must be a whole number above 0";
    }
    given.set(profile, limit);
  }
  limits = given;
  //[/]
  return "";
}

//[cycle]
/** Do what every call of a cycle begins with. Return the head of the answer, with a decision if there is one. */
function decided(
  ctx: CallContext | undefined,
  code?: PluginStatus_Code,
  ...reasons: string[]
): ReplyContext {
  ended(ctx?.ended ?? []); //[reserve]
  return ReplyContext.fromPartial({
    cycleId: ctx?.cycleId,
    status: code === undefined ? undefined : { code, reasons },
  });
}

//[/]
//[preFilter,filter,preScore,score,permit]
/** Return an annotation of the pod. */
function annotation(ctx: CallContext | undefined, key: string): string | undefined {
  return ctx?.pod?.summary?.annotations[key];
}

//[/]
//[preFilter,filter,score]
/** Return the names in an annotation of the pod. */
function listed(ctx: CallContext | undefined, key: string): string[] {
  return (annotation(ctx, key) ?? "").split(",").filter((name) => name !== "");
}

//[/]
//[preEnqueue]
/** Keep pods with the annotation HOLD out of the queue until it is removed. */
export function preEnqueue(request: PreEnqueueRequest): PreEnqueueResponse {
  return PreEnqueueResponse.fromPartial({
    statuses: request.pods.map(({ summary }) =>
      summary?.annotations[HOLD] === undefined
        ? { code: PluginStatus_Code.CODE_SUCCESS }
        : {
            code: PluginStatus_Code.CODE_UNSCHEDULABLE_AND_UNRESOLVABLE,
            reasons: [`annotation ${HOLD} holds the pod`],
          },
    ),
  });
}

//[/]
//[queueSort]
/** Order pods by priority, the highest first, then by the time that they wait. */
export function sortKeys(request: SortKeysRequest): SortKeysResponse {
  const keys = request.pods.map(({ summary, addedAt }) => {
    // Keys are compared as bytes: the high byte comes first, and negative numbers sort below the others.
    const key = Buffer.alloc(10);
    key.writeUInt32BE(2 ** 31 - 1 - (summary?.priority ?? 0), 0);
    key.writeUIntBE(addedAt?.getTime() ?? 0, 4, 6);
    return key;
  });
  return SortKeysResponse.fromPartial({ keys });
}

//[/]
//[preFilter]
/** Reduce the nodes to those that the annotation ONLY lists. */
export function preFilter({ ctx }: PreFilterRequest): PreFilterResponse {
  const names = listed(ctx, ONLY);
  return PreFilterResponse.fromPartial({ ctx: decided(ctx), eligible: names.length > 0 ? { names } : undefined });
}

//[/]
//[filter]
/** Reject the nodes that the annotation AVOID lists. */
export function filter({ ctx, candidates }: FilterRequest): FilterResponse {
  const avoided = listed(ctx, AVOID);
  const names = (candidates?.names ?? []).filter((name) => avoided.includes(name));
  const status = {
    code: PluginStatus_Code.CODE_UNSCHEDULABLE_AND_UNRESOLVABLE,
    reasons: ["node(s) that the pod avoids"],
  };
  return FilterResponse.fromPartial({
    ctx: decided(ctx),
    verdicts: { rejected: names.length > 0 ? [{ status, nodes: { names } }] : [] },
  });
}

//[/]
//[postFilter]
/** Say that this plugin cannot make room, so that the host asks the next one. */
export function postFilter({ ctx }: PostFilterRequest): PostFilterResponse {
  console.error(`no node for ${ctx?.pod?.summary?.ref?.namespace}/${ctx?.pod?.summary?.ref?.name}`);
  const head = decided(ctx, PluginStatus_Code.CODE_UNSCHEDULABLE, "sample-plugin cannot make room");
  return PostFilterResponse.fromPartial({ ctx: head });
}

//[/]
//[preScore]
/** Leave out Score for pods with the annotation UNRANKED. */
export function preScore({ ctx }: PreScoreRequest): PreScoreResponse {
  const isRanked = annotation(ctx, UNRANKED) === undefined;
  const code = isRanked ? PluginStatus_Code.CODE_SUCCESS : PluginStatus_Code.CODE_SKIP;
  return PreScoreResponse.fromPartial({ ctx: decided(ctx, code) });
}

//[/]
//[score]
/** Give the nodes that the annotation PREFER lists 50 points, and the others none. */
export function score({ ctx, candidates }: ScoreRequest): ScoreResponse {
  const preferred = listed(ctx, PREFER);
  const dense = (candidates?.names ?? []).map((name) => (preferred.includes(name) ? 50n : 0n));
  return ScoreResponse.fromPartial({ ctx: decided(ctx), scores: { dense } });
}

//[/]
//[normalizeScore]
/** Bring the scores into 0..100: the best node gets 100. */
export function normalizeScore({ ctx, scores }: NormalizeScoreRequest): NormalizeScoreResponse {
  const small = [...(scores?.small ?? [])].map(BigInt);
  const given = small.length > 0 ? small : (scores?.dense ?? []); // the host may send either form
  const best = given.reduce((most, one) => (one > most ? one : most), 1n);
  return NormalizeScoreResponse.fromPartial({
    ctx: decided(ctx),
    scores: { dense: given.map((one) => (one * 100n) / best) },
  });
}

//[/]
//[reserve]
/** Take one of the places of the node, podsPerNode of the arguments. */
export function reserve({ ctx, nodeName }: ReserveRequest): ReserveResponse {
  decided(ctx);
  const cycle = ctx?.cycleId ?? "";
  if (over.has(cycle)) {
    return ReserveResponse.fromPartial({ ctx: decided(ctx, PluginStatus_Code.CODE_ERROR, "the cycle is over") });
  }
  if (!held.has(cycle)) {
    const taken = [...held.values()].filter((other) => other === nodeName).length;
    held.set(cycle, taken < (limits.get(ctx?.profile ?? "") ?? 0) ? nodeName : "");
  }
  if (held.get(cycle) === "") {
    const reason = "node(s) have too many pods under way";
    return ReserveResponse.fromPartial({ ctx: decided(ctx, PluginStatus_Code.CODE_UNSCHEDULABLE, reason) });
  }
  return ReserveResponse.fromPartial({ ctx: decided(ctx, PluginStatus_Code.CODE_SUCCESS) });
}

/** Keep the reservations that the pages list and no other one, after a restart of this process or of the host. */
export function reconcile(pages: ReconcileRequest[]): ReconcileResponse {
  for (const cycle of [...held.keys()]) end(cycle);
  held = new Map(pages.flatMap(({ live }) => live).map(({ cycleId, nodeName }) => [cycleId, nodeName]));
  for (const cycle of held.keys()) over.delete(cycle);
  return ReconcileResponse.fromPartial({});
}

//[/]
//[reserve,permit]
/** Give back what the cycles hold. The host calls it also for cycles that hold nothing. */
export function unreserve({ items }: UnreserveRequest): UnreserveResponse {
  for (const { cycleId } of items) end(cycleId); //[reserve]
  return UnreserveResponse.fromPartial({ doneCycleIds: items.map(({ cycleId }) => cycleId) });
}

//[/]
//[permit]
/** Let pods with the annotation WAIT wait for so many seconds. DecideWaitingPods of HandleService ends it earlier. */
export function permit({ ctx }: PermitRequest): PermitResponse {
  const seconds = annotation(ctx, WAIT) ?? "";
  if (!/^[1-9][0-9]{0,3}$/.test(seconds)) {
    return PermitResponse.fromPartial({ ctx: decided(ctx, PluginStatus_Code.CODE_SUCCESS) });
  }
  return PermitResponse.fromPartial({
    ctx: decided(ctx, PluginStatus_Code.CODE_WAIT, `annotation ${WAIT} lets the pod wait`),
    waitTimeout: { seconds: BigInt(seconds) },
  });
}

//[/]
//[preBind]
/** Say that PreBind has work to do for each pod. */
export function preBindPreFlight({ ctx }: PreBindPreFlightRequest): PreBindPreFlightResponse {
  return PreBindPreFlightResponse.fromPartial({ ctx: decided(ctx, PluginStatus_Code.CODE_SUCCESS) });
}

/** Write the chosen node into the annotation CHOSEN of the pod; the host makes the patch. */
export function preBind({ ctx, nodeName, patched }: PreBindRequest): PreBindResponse {
  if (patched[0] !== undefined) {
    const isApplied = patched[0].outcome === PatchResult_Outcome.OUTCOME_APPLIED;
    const head = isApplied
      ? decided(ctx, PluginStatus_Code.CODE_SUCCESS)
      : decided(ctx, PluginStatus_Code.CODE_ERROR, `the pod was not patched: ${patched[0].message}`);
    return PreBindResponse.fromPartial({ ctx: head });
  }
  const patch = {
    resource: "pods",
    ref: ctx?.pod?.summary?.ref,
    mergePatchJson: Buffer.from(JSON.stringify({ metadata: { annotations: { [CHOSEN]: nodeName } } })),
    action: ObjectPatch_Action.ACTION_MERGE,
  };
  return PreBindResponse.fromPartial({
    ctx: decided(ctx, PluginStatus_Code.CODE_SUCCESS),
    patches: [patch],
    doneWhenApplied: true,
  });
}

//[/]
//[bind]
/** Let the host post the Binding. */
export function bind({ ctx }: BindRequest): BindResponse {
  return BindResponse.fromPartial({ ctx: decided(ctx, PluginStatus_Code.CODE_SUCCESS), hostBinds: true });
}

//[/]
//[postBind]
/** Log that pods are bound. */
export function postBind({ items }: PostBindRequest): PostBindResponse {
  for (const { pod, nodeName } of items) console.error(`${pod?.namespace}/${pod?.name} is bound to ${nodeName}`);
  for (const { cycleId } of items) end(cycleId); //[reserve]
  return PostBindResponse.fromPartial({});
}

//[/]
//[cycle]
/** Drop what the plugin keeps for cycles that are over. */
export function endCycles(request: EndCyclesRequest): EndCyclesResponse {
  ended(request.ended); //[reserve]
  return EndCyclesResponse.fromPartial({});
}

//[/]
//[reserve]
const REMEMBERS_MS = 5 * 60_000; // that a cycle is over, for a Reserve that comes late
let limits = new Map<string, number>(); // by profile: the places of each node
let held = new Map<string, string>(); // cycle -> node; "": no place was free
const over = new Map<string, number>(); // cycle -> when it ended

/** Give back what a cycle holds. A cycle that is not known counts as ended. */
function end(cycle: string): void {
  held.delete(cycle);
  for (const [one, at] of over) if (Date.now() - at > REMEMBERS_MS) over.delete(one);
  over.set(cycle, Date.now());
}

/** Drop the cycles that hold nothing any more. Of the others the host says so itself, by Unreserve. */
function ended(cycles: CallContext["ended"]): void {
  for (const { cycleId, outcome } of cycles) {
    const node = held.get(cycleId);
    if (node !== undefined && (node === "" || outcome === CycleEnd_Outcome.OUTCOME_BOUND)) end(cycleId);
  }
}

//[/]
//[cycle]
/** The calls of SchedulingService. grpc-js answers UNIMPLEMENTED to the calls that are not there. */
export const scheduling: Partial<SchedulingServiceServer> = {
  preFilter: unary(preFilter), //[preFilter]
  filter: unary(filter), //[filter]
  postFilter: unary(postFilter), //[postFilter]
  preScore: unary(preScore), //[preScore]
  score: unary(score), //[score]
  normalizeScore: unary(normalizeScore), //[normalizeScore]
  reserve: unary(reserve), //[reserve]
  unreserve: unary(unreserve), //[reserve,permit]
  permit: unary(permit), //[permit]
  preBindPreFlight: unary(preBindPreFlight), //[preBind]
  preBind: unary(preBind), //[preBind]
  bind: unary(bind), //[bind]
  postBind: unary(postBind), //[postBind]
  endCycles: unary(endCycles),
};
//[/]
//[!cycle]
export const scheduling = {};
//[/]
//[reserve]
/** The calls of StateService. */
export const state: Partial<StateServiceServer> = { reconcile: streamed(reconcile) };
//[/]
//[!reserve]
export const state = {};
//[/]
//[queue]
/** The calls of QueueService. */
export const queue: Partial<QueueServiceServer> = {
  preEnqueue: unary(preEnqueue), //[preEnqueue]
  sortKeys: unary(sortKeys), //[queueSort]
};
//[/]
//[!queue]
export const queue = {};
//[/]
