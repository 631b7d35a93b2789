"""The test vectors of the contract: written as the files say, and read so by SDK and host."""

from __future__ import annotations

import base64
import json
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from berth_host.errors.plugins import PluginProtocolError
from berth_host.rpc.served.replies import ReplyReader
from berth_host.rpc.served.requests import encode_scenarios
from berth_sdk.extension_points import NodeMode, ScoreNormalization
from berth_sdk.kube_object import KubeObject
from berth_sdk.needs import Need
from berth_sdk.node import Node
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import identity_pb2, queue_pb2, scheduling_pb2, state_pb2  # noqa: F401  (types)
from berth_sdk.pod import Pod
from berth_sdk.runtime.normalization import normalized as normalized_by_sdk
from berth_sdk.scenarios import Scenario, Scenarios
from berth_sdk.serve.state_copy import StateCopy, Taken
from berth_sdk.sort_keys import descending, integer, string, time
from berth_sdk.tables import NodeColumns, NodeTable
from berth_sdk.tables.node_columns import changed_usage
from berth_sdk.wire import records as wire
from berth_sdk.wire.scenarios import decode_scenario, decode_scenario_usages
from google.protobuf import symbol_database
from google.protobuf.json_format import ParseDict
from support.places import ROOT

NAMES = (
    "digests",
    "frames",
    "node_sets",
    "scenarios",
    "scores",
    "sort_keys",
    "state",
    "usage",
    "zero_values",
)
OUTCOMES = {Taken.APPLIED: "applied", Taken.HELD: "held", Taken.MISSING_STATE: "missing"}


def vectors(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "proto" / "vectors" / f"{name}.json").read_text())
    return found


def each(name: str, part: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("vector", vectors(name)[part], ids=lambda vector: vector["name"])


def message(written: dict[str, Any]) -> Any:
    """Return the message of a vector, whose two forms say the same."""
    kind = symbol_database.Default().GetSymbol(written["type"])
    found = kind.FromString(base64.b64decode(written["base64"]))
    assert ParseDict(written["json"], kind()) == found
    return found


@pytest.mark.parametrize("name", NAMES)
def test_vectors_are_what_their_script_writes(name: str) -> None:
    from vectors import writing
    from write_vectors import DOCUMENTS

    assert set(DOCUMENTS) == set(NAMES)
    written = writing.text(DOCUMENTS[name]())
    assert written == (writing.FOLDER / f"{name}.json").read_text(), (
        f"run `python proto/write_vectors.py {name}`"
    )


# --- state ------------------------------------------------------------------------------------------


@each("state", "cases")
def test_copy_of_the_sdk_is_what_the_vector_says_after_each_delta(vector: dict[str, Any]) -> None:
    copy = StateCopy([Need.nodes(), Need.pods(), Need.objects("persistentvolumeclaims")])
    for step in vector["steps"]:
        if step["in"] == "call":
            outcome = OUTCOMES[copy.apply(message(step["delta"]))]
        else:
            stream = copy.begin_sync()
            for chunk in step["chunks"]:
                stream.add(message(chunk))
            answer = stream.response()
            assert answer == message(step["answer"])
            outcome = "missing" if answer.need_full else "applied"
        assert (outcome, shown(copy)) == (step["outcome"], step["copy"])


@pytest.mark.parametrize("keeps", [True, False], ids=["keeps the copy", "drops the copy"])
@each("state", "cases")
def test_program_passes_with_the_copy_of_the_step_before_or_none_after_wrong_sums(
    vector: dict[str, Any], keeps: bool
) -> None:
    from vectors.state import Copy

    copy = Copy()
    for step in vector["steps"]:
        chunks = [message(one) for one in step.get("chunks", [])]
        deltas = [chunk.chunk for chunk in chunks] or [message(step["delta"])]
        base = deltas[0].base
        fits = not deltas[0].HasField("base") or copy.version == {
            "epoch": base.epoch,
            "generation": base.generation,
        }
        before = deepcopy(copy)
        outcome = copy.take(deltas)
        assert outcome == step["outcome"]
        if outcome == "missing" and fits:
            copy = before if keeps else Copy()
            assert step["copy"] in (before.document(), None)
        else:
            assert copy.document() == step["copy"]


def shown(copy: StateCopy) -> dict[str, Any] | None:
    if copy.version is None:
        return None
    columns, store = copy._held.columns, copy.store("persistentvolumeclaims")  # noqa: SLF001
    nodes = []
    for view in copy.nodes:
        slot = columns.index_of[view.name]
        usage = columns.usages[slot]
        nodes.append(
            {
                "index": slot,
                "name": view.name,
                "generation": int(columns.generation[slot]),
                "allocatable": dict(view.node.allocatable),
                "labels": dict(view.node.labels),
                "requested": dict(usage.requested),
                "pod_count": usage.pod_count,
                "pods": [pod.uid for pod in copy._held.pods.pods_of(slot)],  # type: ignore[union-attr]  # noqa: SLF001
            }
        )
    objects = [
        {
            "resource": "persistentvolumeclaims",
            "namespace": item.ref.namespace,
            "name": item.ref.name,
            "generation": item.generation,
        }
        for item in sorted(store.changed_since(0), key=lambda item: item.ref.key)
    ]
    node_count, object_count, generation_sum = copy._held._digests()  # noqa: SLF001
    return {
        "version": {"epoch": copy.version.epoch, "generation": copy.version.generation},
        "node_count": node_count,
        "object_count": object_count,
        "generation_sum": generation_sum,
        "nodes": sorted(nodes, key=lambda node: node["index"]),
        "objects": objects,
    }


# --- digests ----------------------------------------------------------------------------------------


def copy_at(steps: list[dict[str, Any]]) -> StateCopy:
    """Return a copy of the SDK after these steps of a vector of digests."""
    copy = StateCopy([Need.pods(), Need.objects("persistentvolumeclaims")])
    for step in steps:
        assert copy.apply(message(step["delta"])) is Taken.APPLIED
    return copy


@each("digests", "cases")
def test_copy_of_the_sdk_has_the_digests_of_the_vector_after_each_delta(vector: dict[str, Any]) -> None:
    for number, step in enumerate(vector["steps"], 1):
        copy = copy_at(vector["steps"][:number])
        held = shown(copy)
        assert held is not None
        keys = ("node_count", "object_count", "generation_sum")
        assert {key: held[key] for key in keys} == {key: step[key] for key in keys}
        for kind, names in (("nodes", ("index", "generation")), ("objects", ("name", "generation"))):
            assert [{name: item[name] for name in names} for item in held[kind]] == step[kind]


@each("digests", "cases")
def test_copy_of_the_sdk_refuses_each_wrong_digest(vector: dict[str, Any]) -> None:
    assert len(vector["wrong"]) >= 3
    for wrong in vector["wrong"]:
        copy = copy_at(vector["steps"][:-1])
        assert copy.apply(message(wrong["delta"])) is Taken.MISSING_STATE, wrong["why"]


# --- sets of nodes ----------------------------------------------------------------------------------

SNAPSHOT: list[dict[str, Any]] = vectors("node_sets")["snapshot"]


def table(indices: list[int]) -> NodeTable:
    columns = NodeColumns()
    for item in SNAPSHOT:
        columns.add(Node(name=item["name"]), item["index"])
    nodes = NodeTable.of(columns)
    return nodes.take(np.isin(nodes.slots, indices))


@each("node_sets", "bitmaps")
def test_bitmap_and_indices_are_the_same_set(vector: dict[str, Any]) -> None:
    bitmap = bytes.fromhex(vector["hex"])
    assert wire.decode_bitmap(bitmap).tolist() == vector["indices"]
    assert wire.encode_bitmap(vector["indices"]) == bitmap.rstrip(b"\0")


@each("node_sets", "sets")
def test_sdk_and_host_read_a_set_alike(vector: dict[str, Any]) -> None:
    node_set, within = message(vector["set"]), table(vector["within"])
    slots = {item["name"]: item["index"] for item in SNAPSHOT}
    assert wire.decode_rows(node_set, within.slots, slots).tolist() == vector["indices"]
    mode = NodeMode.NAMES if node_set.names else NodeMode.SNAPSHOT
    reader = ReplyReader("Demo", "PreFilter", mode, within)
    assert reader.eligible(node_set) == set(vector["names"])


# --- scores -----------------------------------------------------------------------------------------


def candidates(names: list[str]) -> NodeTable:
    columns = NodeColumns()
    for name in names:
        columns.add(Node(name=name))
    return NodeTable.of(columns)


def read_scores(vector: dict[str, Any]) -> list[int]:
    nodes = candidates(vector["candidates"])
    reader = ReplyReader("Demo", "Score", NodeMode.NAMES, nodes)
    scores = reader.scores(message(vector["message"]).SerializeToString())
    if len(scores) != len(nodes):
        raise PluginProtocolError("Demo", "Score", "the length differs")
    found: list[int] = scores.tolist()
    return found


@each("scores", "forms")
def test_scores_are_read_from_each_form(vector: dict[str, Any]) -> None:
    assert read_scores(vector) == vector["scores"]


@each("scores", "violations")
def test_scores_that_break_the_contract_are_refused(vector: dict[str, Any]) -> None:
    with pytest.raises(PluginProtocolError):
        read_scores(vector)


@each("scores", "normalizations")
def test_sdk_normalizes_scores_as_the_host_does(vector: dict[str, Any]) -> None:
    raw = np.array(vector["raw"], dtype=np.int64)
    for name, final in vector["final"].items():
        how = getattr(ScoreNormalization, name.removeprefix("SCORE_NORMALIZATION_"), None)
        if how is None:
            continue
        found = normalized_by_sdk(raw, how).tolist()
        assert (found if all(0 <= score <= 100 for score in found) else None) == final


# --- sort keys --------------------------------------------------------------------------------------


def test_parts_of_sort_keys_have_the_order_of_their_values() -> None:
    found = vectors("sort_keys")
    for part, field, encode in (
        ("integers", "value", integer),
        ("times", "seconds", time),
        ("strings", "value", string),
    ):
        values = [row[field] for row in found[part]]
        assert sorted(values, key=encode) == sorted(values)
        assert [encode(value).hex() for value in values] == [row["hex"] for row in found[part]]
    for row in found["descending"]:
        assert descending(bytes.fromhex(row["part"])).hex() == row["hex"]


@each("sort_keys", "queues")
def test_keys_order_pods_bytewise(vector: dict[str, Any]) -> None:
    keys = list(message(vector["answer"]).keys)
    assert sorted(range(len(keys)), key=lambda number: (keys[number], number)) == vector["order"]


# --- usage ------------------------------------------------------------------------------------------

PODS: dict[str, dict[str, Any]] = {vector["name"]: vector for vector in vectors("usage")["pods"]}


def summed(before: pb.NodeUsage, gone: list[str], come: list[str]) -> pb.NodeUsage:
    def pods(names: list[str]) -> list[Pod]:
        return [wire.decode_pod(message(PODS[name]["summary"])) for name in names]

    after = wire.encode_usage(changed_usage(wire.decode_usage(before), pods(gone), pods(come)))
    for amounts in (after.requested, after.non_zero_requested):
        for name in [name for name, amount in amounts.items() if not amount]:
            del amounts[name]  # no key: 0
    return after


@each("usage", "pods")
def test_manifest_comes_to_its_summary(vector: dict[str, Any]) -> None:
    pod = wire.encode_pod(Pod.from_object(KubeObject.of(vector["manifest"])))
    want = message(vector["summary"])
    assert (pod.requests, pod.non_zero_requests) == (want.requests, want.non_zero_requests)


@each("usage", "nodes")
def test_pods_come_to_the_usage_of_their_node(vector: dict[str, Any]) -> None:
    assert summed(pb.NodeUsage(), [], vector["pods"]) == message(vector["usage"])


@each("usage", "changes")
def test_usage_after_pods_left_and_came(vector: dict[str, Any]) -> None:
    found = summed(message(vector["usage"]), vector["removed"], vector["added"])
    assert found == message(vector["after"])


# --- scenarios --------------------------------------------------------------------------------------


def snapshot(*needs: Need) -> NodeTable:
    """Return the nodes of the scenarios' vectors, as a plugin with these needs has them."""
    copy = StateCopy(needs)
    assert copy.apply(message(vectors("scenarios")["state"])) is Taken.APPLIED
    return copy.nodes


def scenario_of(vector: dict[str, Any], nodes: NodeTable) -> Scenario:
    """Return the scenario of a vector, whose two messages name the same node."""
    found = decode_scenario(message(vector["by_index"]), nodes, NodeMode.SNAPSHOT)
    assert found == decode_scenario(message(vector["by_name"]), nodes, NodeMode.NAMES)
    assert found.node_name == vector["node"]
    return found


@each("scenarios", "scenarios")
def test_sdk_reads_the_usage_of_a_scenario_without_the_pods(vector: dict[str, Any]) -> None:
    nodes, sent = snapshot(Need.nodes()), message(vector["by_index"])
    usages = decode_scenario_usages([sent])
    assert usages is not None
    changed = Scenarios(nodes, [scenario_of(vector, nodes)], usages)
    assert free_on(changed, vector) == vector["free"]


@each("scenarios", "scenarios")
def test_usage_of_a_scenario_follows_from_the_pods_too(vector: dict[str, Any]) -> None:
    nodes = snapshot(Need.nodes(), Need.pods())
    changed = Scenarios(nodes, [scenario_of(vector, nodes)])
    assert free_on(changed, vector) == vector["free"]


def free_on(changed: Scenarios, vector: dict[str, Any]) -> dict[str, int]:
    """Return what the changed node has free of each resource that it has."""
    node, usage = changed.nodes.node(0), changed.nodes.usages()[0]
    return {
        name: amount - (usage.pod_count if name == "pods" else usage.requested.get(name, 0))
        for name, amount in node.node.allocatable.items()
    }


@each("scenarios", "scenarios")
def test_host_writes_a_scenario_with_the_usage_of_the_vector(vector: dict[str, Any]) -> None:
    nodes = snapshot(Need.nodes(), Need.pods())
    changed = Scenarios(nodes, [scenario_of(vector, nodes)])
    for mode, name in ((NodeMode.SNAPSHOT, "by_index"), (NodeMode.NAMES, "by_name")):
        (found,) = encode_scenarios(changed, mode, whole=False, usage=True)
        want = message(vector[name])
        assert (found.node.node_index, found.node.node_name) == (want.node.node_index, want.node.node_name)
        assert list(found.node.removed) == list(want.node.removed)
        assert [one.pod.ref for one in found.node.added] == [one.pod.ref for one in want.node.added]
        for amounts in (found.node.usage.requested, found.node.usage.non_zero_requested):
            for key in [key for key, amount in amounts.items() if not amount]:
                del amounts[key]  # no key: 0
        assert found.node.usage == want.node.usage


# --- zero values ------------------------------------------------------------------------------------


@each("zero_values", "messages")
def test_fields_read_as_the_vector_says(vector: dict[str, Any]) -> None:
    check_fields(message(vector["message"]), vector["fields"])


@each("zero_values", "unknown")
def test_unknown_values_and_fields_can_be_read(vector: dict[str, Any]) -> None:
    kind = symbol_database.Default().GetSymbol(vector["type"])
    check_fields(kind.FromString(bytes.fromhex(vector["hex"])), vector["fields"])


def check_fields(found: Any, fields: list[dict[str, Any]]) -> None:
    for field in fields:
        *parents, name = field["path"].split(".")
        owner = found
        for parent in parents:
            owner = getattr(owner, parent)
        if "present" in field:
            assert owner.HasField(name) is field["present"], field
            continue
        value = getattr(owner, name)
        kind = owner.DESCRIPTOR.fields_by_name[name]
        if kind.message_type is not None and kind.message_type.GetOptions().map_entry:
            value = dict(value)
        elif kind.is_repeated:
            value = list(value)
        elif isinstance(value, bytes):
            value = base64.b64encode(value).decode()
        assert value == field["value"], field
        if "enum" in field:
            assert kind.enum_type.values_by_number[value].name == field["enum"]
