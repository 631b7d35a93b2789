"""NodeName: a pod that names its node."""

from __future__ import annotations

from berth_plugins.node_name import NodeName
from berth_sdk.status import Status
from berth_sdk.testing import make_node, make_pod, make_table
from support.asking import Ask, Plug

PLUG = Plug(NodeName)
NODES = make_table([make_node("a"), make_node("b"), make_node("c")])
REJECTED = Status.unresolvable("node(s) didn't match the requested node name")


async def test_pod_without_a_node_name_fits_on_every_node(ask: Ask) -> None:
    assert await ask.filter(PLUG, make_pod("web"), NODES) == [Status.success()] * 3


async def test_search_is_narrowed_to_the_named_node(ask: Ask) -> None:
    anywhere = await ask.pre_filter(PLUG, make_pod("web"), NODES)
    assert (anywhere.status, anywhere.eligible) == (Status.success(), None)
    named = await ask.pre_filter(PLUG, make_pod("web", node="b"), NODES)
    assert (named.status, named.eligible) == (Status.success(), frozenset({"b"}))


async def test_pod_fits_only_on_its_named_node(ask: Ask) -> None:
    got = await ask.filter(PLUG, make_pod("web", node="b"), NODES)
    assert got == [REJECTED, Status.success(), REJECTED]


async def test_pod_of_a_missing_node_fits_nowhere(ask: Ask) -> None:
    assert await ask.filter(PLUG, make_pod("web", node="z"), NODES) == [REJECTED] * 3


async def test_node_outside_the_candidates_is_not_found(ask: Ask) -> None:
    got = await ask.filter(PLUG, make_pod("web", node="b"), NODES.take([0, 2]))
    assert got == [REJECTED] * 2
