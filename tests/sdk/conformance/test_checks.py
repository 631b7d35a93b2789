"""The kit's checks read the contract's test vectors as the host and the SDK do."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from berth_sdk.conformance import checks
from berth_sdk.conformance.case import BrokenError, Subject
from berth_sdk.conformance.host import Host, Target, bitmap_of
from berth_sdk.conformance.world import WorldNode
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import identity_pb2 as identity
from berth_sdk.plugin.v1 import scheduling_pb2 as scheduling
from support.places import ROOT


def vectors(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "proto" / "vectors" / f"{name}.json").read_text())
    return found


def each(name: str, part: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("vector", vectors(name)[part], ids=lambda vector: vector["name"])


@pytest.fixture
def host() -> Iterator[Host]:
    """Return a host that calls nobody: of a plugin in NAMES mode whose scores the host normalizes."""
    plugin = identity.PluginDescriptor(name="Kit", normalization=identity.SCORE_NORMALIZATION_HOST_MAX)
    found = Host(Target("127.0.0.1:1"), Subject(plugin, identity.HandshakeResponse()), 1.0)
    yield found
    found.close()


@each("node_sets", "bitmaps")
def test_kit_writes_bitmaps_as_the_vectors_have_them(vector: dict[str, Any]) -> None:
    assert bitmap_of(vector["indices"]) == bytes.fromhex(vector["hex"]).rstrip(b"\0")


@each("node_sets", "sets")
def test_kit_reads_sets_of_nodes_as_the_vectors_say(vector: dict[str, Any], host: Host) -> None:
    names = {item["index"]: item["name"] for item in vectors("node_sets")["snapshot"]}
    within = [WorldNode(index, names[index], 1) for index in vector["within"]]
    found = pb.NodeSet.FromString(base64.b64decode(vector["set"]["base64"]))
    assert sorted(checks.members("Filter", host, found, within, either=True)) == vector["indices"]


def scores(vector: dict[str, Any], host: Host) -> list[int]:
    within = [WorldNode(index, name, 1) for index, name in enumerate(vector["candidates"])]
    found = scheduling.Scores.FromString(base64.b64decode(vector["message"]["base64"]))
    return checks.scores("Score", host, found, within)


@each("scores", "forms")
def test_kit_reads_scores_as_the_vectors_say(vector: dict[str, Any], host: Host) -> None:
    assert scores(vector, host) == vector["scores"]


@each("scores", "violations")
def test_kit_refuses_the_scores_that_the_vectors_refuse(vector: dict[str, Any], host: Host) -> None:
    with pytest.raises(BrokenError):
        scores(vector, host)
