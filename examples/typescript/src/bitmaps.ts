// FreeCpu keeps pods off nodes without enough free cpu, and prefers the nodes with most of it. It is in SNAPSHOT mode:
// it keeps a copy of the nodes, gets sets of nodes as bitmaps, and answers with bitmaps.

import { status } from "@grpc/grpc-js";
import {
  type CallContext,
  type CycleEnd,
  Missing,
  PluginStatus_Code,
  ReplyContext,
  StateDelta,
} from "./generated/berth/plugin/v1/common.js";
import {
  DeclaredNeed_Kind,
  ExtensionPoint,
  NodeMode,
  PluginDescriptor,
  PodSensitivity,
  ScoreNormalization,
} from "./generated/berth/plugin/v1/identity.js";
import {
  EndCyclesResponse,
  FilterResponse,
  type ScenarioNode,
  ScoreResponse,
  SimulateFilterResponse,
} from "./generated/berth/plugin/v1/scheduling.js";
import { SyncStateResponse } from "./generated/berth/plugin/v1/state.js";
import { Refusal, serve, streamed, unary } from "./serve.js";
import { bitmapOf, joined, same, Table } from "./table.js";

const MOST_CYCLES = 4096; // of which the plugin keeps the pod; it asks for a pod again that it has dropped

const table = new Table();
const pods = new Map<string, bigint>(); // what the pod of each open cycle requests

function end(ended: CycleEnd[]): void {
  for (const { cycleId } of ended) pods.delete(cycleId);
}

/**
 * Do what every call of a cycle begins with. Return the head of the answer, and what the pod requests; undefined: the
 * plugin lacks something, which the head says.
 */
function begin(ctx: CallContext | undefined): { head: ReplyContext; cpu: bigint | undefined } {
  if (ctx === undefined) throw new Refusal(status.INVALID_ARGUMENT, "ctx is missing");
  end(ctx.ended);
  if (ctx.delta) table.apply(ctx.delta);
  const missing: Missing[] = [];
  if (!same(table.version, ctx.version)) missing.push(Missing.MISSING_STATE);
  if (ctx.pod?.complete) {
    if (pods.size >= MOST_CYCLES) pods.clear();
    pods.set(ctx.cycleId, ctx.pod.summary?.requests.cpu ?? 0n);
  }
  const cpu = pods.get(ctx.cycleId);
  if (cpu === undefined) missing.push(Missing.MISSING_POD);
  const have = missing.length > 0 ? table.version : undefined;
  const head = ReplyContext.fromPartial({ cycleId: ctx.cycleId, missing, have });
  return { head, cpu: missing.length > 0 ? undefined : cpu };
}

/** Return the free cpu of each node of a set, with its index, in ascending order. */
function free(candidates: Parameters<Table["chosen"]>[0]): [number, bigint][] {
  return table.chosen(candidates).map((index) => {
    const node = table.nodes[index]!;
    return [index, node.allocatable - node.requested];
  });
}

/** Return the free cpu of a node with other pods on it. */
function freeIn(scenario: ScenarioNode | undefined): bigint {
  const free = table.freeIn(scenario);
  if (free === undefined) throw new Refusal(status.INVALID_ARGUMENT, `no node has the index ${scenario?.nodeIndex}`);
  return free;
}

const verdict = { code: PluginStatus_Code.CODE_UNSCHEDULABLE, reasons: ["not enough free cpu"] };

const me = PluginDescriptor.fromPartial({
  name: "FreeCpu",
  points: [ExtensionPoint.EXTENSION_POINT_FILTER, ExtensionPoint.EXTENSION_POINT_SCORE],
  nodeMode: NodeMode.NODE_MODE_SNAPSHOT,
  needs: [{ kind: DeclaredNeed_Kind.KIND_NODE_SUMMARY }],
  podSensitivity: PodSensitivity.POD_SENSITIVITY_NODE,
  normalization: ScoreNormalization.SCORE_NORMALIZATION_HOST_MAX,
});

await serve(
  me,
  () => "", // there are no arguments
  {
    filter: unary((request) => {
      const { head, cpu } = begin(request.ctx);
      if (cpu === undefined) return FilterResponse.fromPartial({ ctx: head });
      const full = free(request.candidates).filter(([, has]) => has < cpu).map(([index]) => index);
      const rejected = full.length > 0 ? [{ status: verdict, nodes: { bitmap: bitmapOf(full) } }] : [];
      return FilterResponse.fromPartial({ ctx: head, verdicts: { rejected } });
    }),
    simulateFilter: unary((request) => {
      const { head, cpu } = begin(request.ctx);
      if (cpu === undefined) return SimulateFilterResponse.fromPartial({ ctx: head });
      const statuses = request.scenarios.map(({ node }) =>
        freeIn(node) < cpu ? verdict : { code: PluginStatus_Code.CODE_SUCCESS },
      );
      return SimulateFilterResponse.fromPartial({ ctx: head, statuses });
    }),
    // What is free on each node with the pod on it, and 0 where the pod does not fit.
    score: unary((request) => {
      const { head, cpu } = begin(request.ctx);
      if (cpu === undefined) return ScoreResponse.fromPartial({ ctx: head });
      const dense = free(request.candidates).map(([, has]) => (has > cpu ? has - cpu : 0n));
      return ScoreResponse.fromPartial({ ctx: head, scores: { dense } });
    }),
    endCycles: unary((request) => {
      end(request.ended);
      return EndCyclesResponse.fromPartial({});
    }),
  },
  {
    // The copy changes when the last chunk has arrived, which has the counts.
    syncState: streamed((requests) => {
      const isHeld = table.apply(joined(requests.map(({ chunk }) => chunk ?? StateDelta.fromPartial({}))));
      return SyncStateResponse.fromPartial({ have: table.version, needFull: !isHeld });
    }),
  },
);
