"""The cases of `berth bench hostile`: their names, sizes and objects."""

from __future__ import annotations

import json

import pytest
from berth_bench.hostile.cases import CASES, Case, chosen, encoded, in_full, nested, without_nesting
from berth_bench.hostile.cluster import objects
from berth_host.model.clock import RealClock
from berth_sim.cluster.server import ApiServer

SMALL_BYTES = 20_000
IN_CLUSTER = {"node-0"}


def by_name(case: Case) -> str:
    return case.name


def test_names_are_unique_and_a_kind_means_all_of_its_cases() -> None:
    assert len({one.name for one in CASES}) == len(CASES)
    assert chosen(()) == CASES
    nodes = chosen(["node"])
    assert len(nodes) > 5
    assert all(one.about == "node" for one in nodes)
    assert chosen(["node/taints", "node"]) == nodes
    with pytest.raises(KeyError, match="nodes"):
        chosen(["node/taints", "nodes"])


@pytest.mark.parametrize("case", CASES, ids=by_name)
def test_largest_object_fills_the_allowed_bytes_and_a_short_one_is_admitted(case: Case) -> None:
    size = case.largest(SMALL_BYTES)
    size_bytes = len(encoded(case.make(size, 2).judged))
    assert size_bytes <= SMALL_BYTES
    # One opaque parameter, and one device with attributes, has thousands of bytes.
    filled = 0.5 if case.about in ("claim", "slice") else 0.9
    assert size == case.most or size_bytes > filled * SMALL_BYTES
    # The embedded cluster validates as the real one does; a case whose object is refused measures nothing.
    server = ApiServer(RealClock())
    for content in objects(2):
        server.create(content)
    made = case.make(1, 2)
    for content in (*made.before, *made.with_pod, made.pod):
        server.create(in_full(content))
    assert made.judged is made.pod or any(made.judged is one for one in made.before)


def test_nesting_is_written_in_full_and_can_be_cut_out() -> None:
    levels = 3
    content = {"a": {"b": nested(levels)}, "c": [1]}
    text = encoded(content).decode()
    assert json.loads(text) == in_full(content) == {"a": {"b": {"f:a": {"f:a": {"f:a": {}}}}}, "c": [1]}
    assert json.loads(without_nesting(text)) == {"a": {"b": {}}, "c": [1]}
    assert without_nesting('{"c":[1]}') == '{"c":[1]}'
    deep = encoded({"a": nested(50_000)}).decode()
    assert json.loads(without_nesting(deep)) == {"a": {}}
