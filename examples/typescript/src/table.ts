// The copy of the host's nodes that FreeCpu keeps. StateDelta brings it up to date.

import type { NodeSet, StateDelta, StateVersion } from "./generated/berth/plugin/v1/common.js";
import type { ScenarioNode } from "./generated/berth/plugin/v1/scheduling.js";

/** What the plugin keeps of one node. Cpu is in thousandths of a core. */
export interface Node {
  name: string;
  generation: bigint;
  allocatable: bigint;
  requested: bigint;
}

export class Table {
  /** Unset: there is no copy. */
  version: StateVersion | undefined;
  /** By index; unset: no node has the index. */
  nodes: (Node | undefined)[] = [];
  private count = 0;
  private sum = 0n; // of the nodes' generations

  /**
   * Bring the copy to the delta's target. Return false if the copy is at neither version of the delta, or if the
   * outcome does not have the counts of the delta. The copy then stays as it was, or is dropped if the delta has
   * changed it.
   */
  apply(delta: StateDelta): boolean {
    const isFull = delta.base === undefined;
    if (!isFull && same(this.version, delta.target)) return true;
    if (!isFull && !same(this.version, delta.base)) return false;
    const next = isFull ? new Table() : this;
    for (const index of delta.removed) next.set(index, undefined);
    let isWhole = true;
    for (const state of delta.upserts) {
      const known = next.nodes[state.index];
      const name = state.name || (known?.name ?? "");
      isWhole &&= name !== "" && name === (known?.name ?? name);
      next.set(state.index, {
        name,
        generation: state.generation,
        allocatable: (state.summary ? state.summary.allocatable.cpu : known?.allocatable) ?? 0n,
        requested: (state.usage ? state.usage.requested.cpu : known?.requested) ?? 0n,
      });
    }
    next.version = delta.target;
    isWhole &&= next.count === delta.nodeCount && delta.objectCount === 0; // objects are not declared
    isWhole &&= next.sum % 2n ** 53n === delta.generationSum;
    if (isWhole || !isFull) Object.assign(this, isWhole ? next : new Table());
    return isWhole;
  }

  /** Return the indices of the nodes in a set, in ascending order. */
  chosen(set: NodeSet | undefined): number[] {
    const listed = set?.bitmap ?? new Uint8Array();
    const complement = set?.complement ?? false;
    const indices: number[] = [];
    this.nodes.forEach((_, index) => {
      const isListed = (((listed[index >> 3] ?? 0) >> (index & 7)) & 1) === 1;
      if (this.nodes[index] !== undefined && isListed !== complement) indices.push(index);
    });
    return indices;
  }

  /** Return the free cpu of a node with the usage of a scenario; undefined: the copy has no such node. No key: 0. */
  freeIn(scenario: ScenarioNode | undefined): bigint | undefined {
    const known = scenario?.nodeIndex === undefined ? undefined : this.nodes[scenario.nodeIndex];
    return known && known.allocatable - (scenario?.usage?.requested.cpu ?? 0n);
  }

  /** Put a node in the place of the one with that index; undefined removes it. */
  set(index: number, node: Node | undefined): void {
    const old = this.nodes[index];
    if (old !== undefined) {
      this.count -= 1;
      this.sum -= old.generation;
    }
    if (node !== undefined) {
      this.count += 1;
      this.sum += node.generation;
    }
    this.nodes[index] = node;
  }
}

/** Return the chunks of a stream as one delta. The last chunk has the counts. */
export function joined(chunks: StateDelta[]): StateDelta {
  return {
    ...chunks[chunks.length - 1]!,
    upserts: chunks.flatMap((chunk) => chunk.upserts),
    removed: chunks.flatMap((chunk) => chunk.removed),
  };
}

/** Return the bitmap with these indices, which ascend. */
export function bitmapOf(indices: number[]): Uint8Array {
  const bitmap = new Uint8Array(indices.length > 0 ? (indices[indices.length - 1] >> 3) + 1 : 0);
  for (const index of indices) bitmap[index >> 3] |= 1 << (index & 7);
  return bitmap;
}

export function same(one: StateVersion | undefined, other: StateVersion | undefined): boolean {
  return one !== undefined && one.epoch === other?.epoch && one.generation === other.generation;
}
