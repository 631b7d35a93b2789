// Slots limits how many pods are bound at one time, and lets pods wait for company.
//
//   slots.example.com/use: "true"   on the pod: it takes one of the slots until it is bound
//   slots.example.com/wait: "true"  on the pod: it waits until another pod of its namespace takes a slot
//   slots.example.com/slot: "2"     on the pod, before it is bound: the number of its slot, from 1

import { credentials, Metadata } from "@grpc/grpc-js";
import {
  type CycleEnd,
  CycleEnd_Outcome,
  type ObjectRef,
  PluginStatus_Code,
  ReplyContext,
} from "./generated/berth/plugin/v1/common.js";
import {
  DecideWaitingPodsRequest,
  HandleServiceClient,
  WaitDecision_Verdict,
} from "./generated/berth/plugin/v1/handle.js";
import { type ConfigureRequest, ExtensionPoint, PluginDescriptor } from "./generated/berth/plugin/v1/identity.js";
import {
  EndCyclesResponse,
  ObjectPatch_Action,
  PatchResult_Outcome,
  PermitResponse,
  PostBindResponse,
  PreBindPreFlightResponse,
  PreBindResponse,
  ReserveResponse,
  UnreserveResponse,
} from "./generated/berth/plugin/v1/scheduling.js";
import { ReconcileResponse } from "./generated/berth/plugin/v1/state.js";
import { serve, streamed, unary } from "./serve.js";

const NAME = "Slots";
const WAIT_S = 30n; // a pod waits
const REMEMBERS_MS = 5 * 60_000; // that a cycle is over

/**
 * What the plugin holds for one cycle. The token of the cycle is the number of its slot, so that PreBind needs no
 * memory, and a restarted process takes the slot up.
 */
interface Cycle {
  namespace: string;
  uid: string;
  slot: number; // 0: none
  isWaiting: boolean;
  reserved?: ReserveResponse; // the answer, for a duplicate; unset: not asked
  permitted?: PermitResponse;
}

let slotsOf = new Map<string, number>(); // the argument, by profile
let host: { client: HandleServiceClient; metadata: Metadata } | undefined; // unset: the host offers no HandleService
const cycles = new Map<string, Cycle>();
const over = new Map<string, number>(); // when each cycle ended, for a Reserve that comes late

function configure(request: ConfigureRequest): string {
  const read = new Map<string, number>();
  for (const { args, profile } of request.plugins) {
    const slots: unknown = args?.slots;
    if (typeof slots !== "number" || !Number.isInteger(slots) || slots < 1) {
      return "slots: must be a whole number above 0";
    }
    read.set(profile, slots);
  }
  slotsOf = read;
  host?.client.close();
  host = undefined;
  if (request.handle) {
    const metadata = new Metadata();
    metadata.set("authorization", `Bearer ${request.handle.token}`);
    metadata.set("berth-plugin", NAME);
    host = { client: new HandleServiceClient(request.handle.target, credentials.createInsecure()), metadata };
  }
  return "";
}

function decided(cycleId: string, code: PluginStatus_Code, ...reasons: string[]): ReplyContext {
  return ReplyContext.fromPartial({ cycleId, status: { code, reasons } });
}

/** Return what is held for a cycle, which may be new. */
function cycleOf(id: string, pod: ObjectRef | undefined): Cycle {
  const known = cycles.get(id);
  if (known) return known;
  const made: Cycle = { namespace: pod?.namespace ?? "", uid: pod?.uid ?? "", slot: 0, isWaiting: false };
  cycles.set(id, made);
  return made;
}

/** Return the lowest of so many slots that no cycle has; 0: there is none. */
function freeSlot(count: number): number {
  const taken = new Set([...cycles.values()].map(({ slot }) => slot));
  for (let slot = 1; slot <= count; slot += 1) if (!taken.has(slot)) return slot;
  return 0;
}

/** Drop what is held for a cycle. A cycle that is not known counts as ended. */
function end(id: string): void {
  cycles.delete(id);
  for (const [one, at] of over) if (Date.now() - at > REMEMBERS_MS) over.delete(one);
  over.set(id, Date.now());
}

/** Drop the cycles that hold nothing any more. Of the others the host says so itself, by Unreserve. */
function ended(ends: CycleEnd[]): void {
  for (const { cycleId, outcome } of ends) {
    const held = cycles.get(cycleId);
    if (held && (held.slot === 0 || outcome === CycleEnd_Outcome.OUTCOME_BOUND)) end(cycleId);
  }
}

/**
 * Allow the pods that wait in the namespace of a cycle. If the call fails, they wait for the next Reserve or for the
 * end of their time.
 */
function allowOthers(reserved: Cycle): void {
  const waiting = [...cycles].filter(
    ([, one]) => one.isWaiting && one.namespace === reserved.namespace && one.uid !== reserved.uid,
  );
  if (waiting.length === 0 || host === undefined) return;
  const verdict = WaitDecision_Verdict.VERDICT_ALLOW;
  const decisions = waiting.map(([cycleId, one]) => ({ podUid: one.uid, cycleId, verdict }));
  const request = DecideWaitingPodsRequest.fromPartial({ plugin: NAME, decisions });
  // The answer of Reserve does not wait for the host.
  host.client.decideWaitingPods(request, host.metadata, { deadline: Date.now() + 5000 }, (error) => {
    if (error) console.error(`the pods that wait could not be allowed: ${error.message}`);
    else for (const [, one] of waiting) one.isWaiting = false;
  });
}

const me = PluginDescriptor.fromPartial({
  name: NAME,
  points: [
    ExtensionPoint.EXTENSION_POINT_RESERVE,
    ExtensionPoint.EXTENSION_POINT_PERMIT,
    ExtensionPoint.EXTENSION_POINT_PRE_BIND,
    ExtensionPoint.EXTENSION_POINT_POST_BIND,
  ],
  handleClient: true,
  // No call comes about a pod with neither annotation. The methods read them all the same: a host may ask about more.
  scope: { terms: [{ annotationKeys: ["slots.example.com/use", "slots.example.com/wait"] }] },
});

await serve(
  me,
  configure,
  {
    reserve: unary(({ ctx }) => {
      const [id, pod] = [ctx!.cycleId, ctx!.pod?.summary];
      ended(ctx!.ended);
      if (over.has(id)) {
        return ReserveResponse.fromPartial({ ctx: decided(id, PluginStatus_Code.CODE_ERROR, "the cycle is over") });
      }
      if (pod?.annotations["slots.example.com/use"] !== "true") {
        return ReserveResponse.fromPartial({ ctx: decided(id, PluginStatus_Code.CODE_SKIP) });
      }
      const held = cycleOf(id, pod.ref);
      if (held.reserved === undefined) {
        held.slot = freeSlot(slotsOf.get(ctx!.profile) ?? 0);
        const head =
          held.slot > 0
            ? { ...decided(id, PluginStatus_Code.CODE_SUCCESS), pluginToken: Buffer.from(`${held.slot}`) }
            : decided(id, PluginStatus_Code.CODE_UNSCHEDULABLE, "no slot is free");
        held.reserved = ReserveResponse.fromPartial({ ctx: head });
        if (held.slot > 0) allowOthers(held);
      }
      return held.reserved;
    }),
    permit: unary(({ ctx }) => {
      const [id, pod] = [ctx!.cycleId, ctx!.pod?.summary];
      ended(ctx!.ended);
      if (over.has(id)) {
        return PermitResponse.fromPartial({ ctx: decided(id, PluginStatus_Code.CODE_ERROR, "the cycle is over") });
      }
      if (pod?.annotations["slots.example.com/wait"] !== "true") {
        return PermitResponse.fromPartial({ ctx: decided(id, PluginStatus_Code.CODE_SUCCESS) });
      }
      const held = cycleOf(id, pod.ref);
      if (held.permitted === undefined) {
        held.isWaiting = true;
        held.permitted = PermitResponse.fromPartial({
          ctx: decided(id, PluginStatus_Code.CODE_WAIT, "waits for another pod of its namespace"),
          waitTimeout: { seconds: WAIT_S },
        });
      }
      return held.permitted;
    }),
    preBindPreFlight: unary(({ ctx }) => {
      const code = ctx!.pluginToken.length > 0 ? PluginStatus_Code.CODE_SUCCESS : PluginStatus_Code.CODE_SKIP;
      return PreBindPreFlightResponse.fromPartial({ ctx: decided(ctx!.cycleId, code) });
    }),
    // Write the number of the slot to the pod.
    preBind: unary(({ ctx, patched }) => {
      const success = decided(ctx!.cycleId, PluginStatus_Code.CODE_SUCCESS);
      if (patched.length > 0) {
        const isApplied = patched[0]!.outcome === PatchResult_Outcome.OUTCOME_APPLIED;
        if (isApplied) return PreBindResponse.fromPartial({ ctx: success });
        const reason = `the slot could not be written to the pod: ${patched[0]!.message}`;
        return PreBindResponse.fromPartial({ ctx: decided(ctx!.cycleId, PluginStatus_Code.CODE_ERROR, reason) });
      }
      const slot = Buffer.from(ctx!.pluginToken).toString();
      if (slot === "") return PreBindResponse.fromPartial({ ctx: success });
      const annotations = { "slots.example.com/slot": slot };
      return PreBindResponse.fromPartial({
        ctx: success,
        patches: [
          {
            resource: "pods",
            ref: ctx!.pod?.summary?.ref,
            mergePatchJson: Buffer.from(JSON.stringify({ metadata: { annotations } })),
            action: ObjectPatch_Action.ACTION_MERGE,
          },
        ],
        doneWhenApplied: true,
      });
    }),
    postBind: unary(({ items }) => {
      for (const { cycleId } of items) end(cycleId);
      return PostBindResponse.fromPartial({});
    }),
    unreserve: unary(({ items }) => {
      for (const { cycleId } of items) end(cycleId);
      return UnreserveResponse.fromPartial({ doneCycleIds: items.map(({ cycleId }) => cycleId) });
    }),
    endCycles: unary((request) => {
      ended(request.ended);
      return EndCyclesResponse.fromPartial({});
    }),
  },
  {
    // Keep exactly the cycles that the pages list. A cycle that this process does not remember has its slot in its
    // token.
    reconcile: streamed((pages) => {
      const unknownCycleIds: string[] = [];
      const kept = new Map<string, Cycle>();
      for (const { cycleId, pod, pluginToken, waitingOnPermit } of pages.flatMap(({ live }) => live)) {
        const slot = Number(Buffer.from(pluginToken).toString() || "0");
        if (Number.isInteger(slot)) {
          kept.set(cycleId, Object.assign(cycleOf(cycleId, pod), { slot, isWaiting: waitingOnPermit }));
          over.delete(cycleId);
        } else {
          unknownCycleIds.push(cycleId);
        }
      }
      for (const id of [...cycles.keys()]) if (!kept.has(id)) end(id);
      return ReconcileResponse.fromPartial({ unknownCycleIds });
    }),
  },
);
