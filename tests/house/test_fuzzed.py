"""The parts of the fuzzer itself: its parser, its recount, its trees, and how a failure gets smaller."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fuzzed.objects import Fuzz, Step
from support.fuzzed.reading import Number, parsed
from support.fuzzed.recount import MOST, by_node, requests_of
from support.fuzzed.shrinking import shrunk
from support.fuzzed.trees import DIGITS, KEYS, MOST_BYTES, NEST, PAIRS, RAW, REPEAT, encoded, smaller

values = st.recursive(
    st.none() | st.booleans() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


@given(values, st.sampled_from((None, 1)))
def test_parser_reads_what_the_standard_library_reads(value: object, indent: int | None) -> None:
    assert parsed(json.dumps(value, indent=indent)) == value


@pytest.mark.parametrize("text", ["", "{", "[1,]", '{"a"}', "{1:2}", "[1] 2", "nul", '"a', "[1 2]", "01"])
def test_parser_refuses_what_is_no_json(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parsed(text)


def test_parser_reads_any_depth_and_keeps_numbers_as_text() -> None:
    deep = parsed(encoded({NEST: [50_000, '{"a":', "}"]}).decode())
    assert list(deep) == ["a"]
    assert parsed('{"a":1,"a":-2.50e3}') == {"a": Number("-2.50e3")}


def test_trees_hold_what_a_dict_cannot() -> None:
    assert encoded({PAIRS: [["a", 1], ["a", {RAW: "\xff"}]]}) == b'{"a":1,"a":\xff}'
    assert encoded({REPEAT: [{"name": "c@@"}, 3]}) == b'[{"name":"c0"},{"name":"c1"},{"name":"c2"}]'
    assert encoded({KEYS: ["v", 2]}) == b'{"k0":"v","k1":"v"}'
    assert encoded({DIGITS: ["0", 3, "1"]}) == b'"0001"'
    assert encoded({NEST: [2, "[", "]"]}) == b"[[{}]]"


def test_every_smaller_tree_is_shorter_and_none_goes_on_for_ever() -> None:
    tree = {"a": [1, {REPEAT: [{"b": {NEST: [9, "[", "]"]}}, 4]}], "c": {PAIRS: [["d", {}], ["d", []]]}}
    seen = 0
    while (less := next(iter(smaller(tree)), None)) is not None:
        assert len(encoded(less)) < len(encoded(tree))
        tree, seen = less, seen + 1
    assert encoded(tree) == b"{}"
    assert seen < 50


async def test_failure_is_shrunk_to_the_steps_and_the_part_that_cause_it() -> None:
    steps = Fuzz(3).steps(80)
    steps[20]["body"] = {"a": {"b": [1, {"bad": {NEST: [1100, "[", "]"]}}, 2]}, "c": "d"}
    tried = 0

    async def fails(some: Sequence[Step]) -> bool:
        nonlocal tried
        tried += 1
        return any(b'"bad"' + b":" + b"[" * 1025 in encoded(one.get("body", {})) for one in some)

    (found,) = await shrunk(steps, fails, 600)
    assert found["body"] == {"a": {"b": [{"bad": {NEST: [1025, "[", "]"]}}]}}
    assert tried <= 600


def test_same_seed_makes_the_same_steps_and_a_case_can_be_stored() -> None:
    steps = Fuzz(5).steps(300)
    assert json.loads(json.dumps(steps)) == steps == Fuzz(5).steps(300)
    assert steps != Fuzz(6).steps(300)
    assert {step["do"] for step in steps} == {"create", "patch", "status", "delete"}


def pod(*requests: str, **spec: object) -> dict[str, object]:
    containers = [{"resources": {"requests": {"cpu": one, "memory": one}}} for one in requests]
    return {"spec": {"containers": containers, **spec}}


@pytest.mark.parametrize(
    ("requests", "cpu", "memory"),
    [
        (("1",), 1000, 1),
        (("1m", "1m"), 2, 1),  # the sum is rounded up, not its parts
        (("0.5",), 500, 1),
        (("1Ki",), 1024_000, 1024),
        (("1e3",), 1000_000, 1000),
        (("9" * 5000,), MOST, MOST),
        (("0" * 5000 + "1",), 1000, 1),
        (("0." + "0" * 5000 + "1",), 0, 0),
    ],
)
def test_recount_follows_kubernetes_arithmetic(requests: tuple[str, ...], cpu: int, memory: int) -> None:
    found = requests_of(pod(*requests))
    assert (found["cpu"], found["memory"]) == (cpu, memory)


def test_recount_of_init_containers_sidecars_and_overhead() -> None:
    asked = {"resources": {"requests": {"cpu": "3"}}}
    inits = [asked, {**asked, "restartPolicy": "Always"}, {"resources": {"requests": {"cpu": "2"}}}]
    # The last init container runs beside the sidecar: 5, and the containers beside it: 4.
    assert requests_of(pod("1", initContainers=inits))["cpu"] == 5000
    assert requests_of(pod("1", initContainers=inits, overhead={"cpu": "1"}))["cpu"] == 6000


def test_pods_that_have_ended_or_have_no_node_do_not_count() -> None:
    pods = [
        pod("1", nodeName="n1"),
        pod("1", nodeName="n1") | {"status": {"phase": "Succeeded"}},
        pod("1"),
        pod("2", nodeName="n2"),
    ]
    found = by_node(pods)
    assert {name: (one["cpu"], one["pods"]) for name, one in found.items()} == {
        "n1": (1000, 1),
        "n2": (2000, 1),
    }


def test_list_of_long_lists_ends_soon_after_what_an_api_server_admits() -> None:
    tree = {REPEAT: [{KEYS: [{REPEAT: ["@@", 100_000]}, 100_000]}, 100_000]}
    assert MOST_BYTES < len(encoded(tree)) < 4 * MOST_BYTES
