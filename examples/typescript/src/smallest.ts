// Maintenance keeps pods off the nodes that its argument `nodes` names. It is in NAMES mode: it gets names of nodes,
// and no state.

import { PluginStatus_Code } from "./generated/berth/plugin/v1/common.js";
import { DependsOn, ExtensionPoint, PluginDescriptor } from "./generated/berth/plugin/v1/identity.js";
import { EndCyclesResponse, FilterResponse } from "./generated/berth/plugin/v1/scheduling.js";
import { serve, unary } from "./serve.js";

let closed = new Map<string, Set<string>>(); // by profile

const me = PluginDescriptor.fromPartial({
  name: "Maintenance",
  points: [ExtensionPoint.EXTENSION_POINT_FILTER],
  dependsOn: DependsOn.DEPENDS_ON_NODE,
  signFields: {}, // no field of the pod counts
  hostKeepsAnswers: true,
});

await serve(
  me,
  (request) => {
    const read = new Map<string, Set<string>>();
    for (const { args, profile } of request.plugins) {
      const nodes: unknown = args?.nodes ?? [];
      if (!Array.isArray(nodes) || !nodes.every((name) => typeof name === "string")) {
        return "nodes: must be a list of names of nodes";
      }
      read.set(profile, new Set(nodes));
    }
    closed = read;
    return "";
  },
  {
    filter: unary((request) => {
      const shut = (request.candidates?.names ?? []).filter((name) => closed.get(request.ctx!.profile)?.has(name));
      const status = { code: PluginStatus_Code.CODE_UNSCHEDULABLE, reasons: ["under maintenance"] };
      return FilterResponse.fromPartial({
        ctx: { cycleId: request.ctx?.cycleId },
        verdicts: { rejected: shut.length > 0 ? [{ status, nodes: { names: shut } }] : [] },
      });
    }),
    endCycles: unary(() => EndCyclesResponse.fromPartial({})), // the plugin keeps nothing of a cycle
  },
);
