import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { inspect } from "node:util";
import * as common from "./generated/berth/plugin/v1/common.js";
import * as identity from "./generated/berth/plugin/v1/identity.js";
import * as scheduling from "./generated/berth/plugin/v1/scheduling.js";
import * as state from "./generated/berth/plugin/v1/state.js";
import { bitmapOf, joined, type Node, Table } from "./table.js";

/** One message of the vectors: its bytes, in base64 or in hex. */
interface Message {
  type: string;
  base64?: string;
  hex?: string;
}

interface Codec {
  decode(bytes: Uint8Array): any;
}

const codecs = { ...common, ...identity, ...scheduling, ...state } as unknown as Record<string, Codec>;

/** Read a file of proto/vectors. */
function vectors(name: string): any {
  return JSON.parse(readFileSync(new URL(`../../../proto/vectors/${name}.json`, import.meta.url), "utf8"));
}

function read(message: Message): any {
  const bytes = message.hex === undefined ? Buffer.from(message.base64!, "base64") : Buffer.from(message.hex, "hex");
  return codecs[message.type.split(".").at(-1)!]!.decode(bytes);
}

/** Return a value as the vectors write it: numbers for bigint, base64 for bytes. */
function plain(value: any): any {
  if (typeof value === "bigint") return Number(value);
  if (value instanceof Uint8Array) return Buffer.from(value).toString("base64");
  if (Array.isArray(value)) return value.map(plain);
  if (value !== null && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, plain(one)]));
  }
  return value;
}

function tableOf(nodes: [number, Node][]): Table {
  const made = new Table();
  for (const [index, node] of nodes) made.set(index, node);
  return made;
}

test("node sets and bitmaps", () => {
  const { bitmaps, sets } = vectors("node_sets");
  for (const { name, indices, hex } of bitmaps) {
    // The plugin leaves out zero bytes at the end.
    assert.equal(Buffer.from(bitmapOf(indices)).toString("hex"), hex.replace(/(00)+$/, ""), name);
  }
  for (const { name, set, within, indices } of sets) {
    const decoded: common.NodeSet = read(set);
    if (decoded.names.length > 0) continue; // not in SNAPSHOT mode
    const node = { name: "n", generation: 1n, allocatable: 0n, requested: 0n };
    assert.deepEqual(tableOf(within.map((index: number) => [index, node])).chosen(decoded), indices, name);
  }
});

test("deltas and chunks", () => {
  for (const { name, steps } of vectors("state").cases) {
    if (steps[0].copy?.object_count > 0) continue; // the plugin declares no objects, and gets none
    const table = new Table();
    steps.forEach((step: any, number: number) => {
      const where = `${name}, step ${number}`;
      const delta =
        step.in === "call" ? read(step.delta) : joined(step.chunks.map((one: Message) => read(one).chunk));
      const isHeld = table.apply(delta);
      assert.equal(isHeld, step.outcome !== "missing", where);
      if (step.answer) {
        const answer = state.SyncStateResponse.fromPartial({ have: table.version, needFull: !isHeld });
        assert.deepEqual(answer, read(step.answer), where);
      }
      if (step.copy === null) return assert.equal(table.version, undefined, where);
      const { version, nodes, generation_sum } = step.copy;
      assert.deepEqual(plain(table.version), version, where);
      const held = table.nodes.map((node, index) => ({ index, ...plain(node) })).filter((one) => "name" in one);
      const wanted = nodes.map(({ index, name: called, generation, allocatable, requested }: any) => {
        return { index, name: called, generation, allocatable: allocatable.cpu ?? 0, requested: requested.cpu ?? 0 };
      });
      assert.deepEqual(held, wanted, where);
      // The sum of two numbers below 2^53 may be above it: sums need bigint.
      const sum = table.nodes.reduce((total, node) => total + (node?.generation ?? 0n), 0n);
      assert.equal(Number(sum % 2n ** 53n), generation_sum, where);
    });
  }
});

test("digests", () => {
  for (const { name, steps, wrong } of vectors("digests").cases) {
    if (steps.some((step: any) => step.object_count > 0)) continue; // the plugin declares no objects, and gets none
    const after = (some: any[]) => {
      const table = new Table();
      for (const { delta } of some) assert.equal(table.apply(read(delta)), true, name);
      return table;
    };
    steps.forEach((step: any, number: number) => {
      const nodes = after(steps.slice(0, number + 1)).nodes.filter((node) => node !== undefined);
      assert.equal(nodes.length, step.node_count, name);
      const sum = nodes.reduce((total, node) => total + node!.generation, 0n);
      assert.equal(sum % 2n ** 53n, BigInt(step.generation_sum), name);
    });
    for (const { why, delta } of wrong) {
      assert.equal(after(steps.slice(0, -1)).apply(read(delta)), false, `${name}: ${why}`);
    }
  }
});

test("scenarios", () => {
  const file = vectors("scenarios");
  const table = new Table();
  assert.equal(table.apply(read(file.state)), true);
  for (const { name, by_index, free } of file.scenarios) {
    assert.equal(table.freeIn(read(by_index).node), BigInt(free.cpu), name);
  }
});

test("scores", () => {
  const forms = vectors("scores").forms.filter(({ message }: any) => read(message).dense.length > 0);
  assert.notEqual(forms.length, 0);
  for (const { name, message } of forms) {
    const { dense } = read(message);
    const sent = scheduling.Scores.encode(scheduling.Scores.fromPartial({ dense })).finish();
    assert.equal(Buffer.from(sent).toString("base64"), message.base64, name);
  }
});

// What README.md says of zero values, enums, 64 bits and unknown fields.
test("zero values", () => {
  const { messages, unknown } = vectors("zero_values");
  for (const one of [...messages, ...unknown]) {
    for (const { path, value, present } of one.fields) {
      const names = path.split(".").map((name: string) => name.replace(/_(.)/g, (_, letter) => letter.toUpperCase()));
      const got = names.reduce((holder: any, name: string) => holder[name], read(one.message ?? one));
      if (present !== undefined) assert.equal(got !== undefined, present, `${one.name}: ${path}`);
      if (value !== undefined) assert.deepEqual(plain(got), value, `${one.name}: ${path}`);
    }
  }
});

// With a generator that leaves secrets out, this fails: then change README.md.
test("debug print shows secrets", () => {
  const secrets = vectors("zero_values").messages.filter((one: any) => one.name.startsWith("a secret"));
  assert.equal(secrets.length, 2);
  for (const { message } of secrets) {
    assert.match(inspect(read(message)), /open-sesame/);
  }
});
