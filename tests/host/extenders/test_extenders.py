"""The rules for one and for several extenders at each verb, over real sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import numpy as np
import pytest
from berth_host.attempt.cycle import Cycle
from berth_host.config.decoding.types_v1 import Extender, ManagedResource
from berth_host.errors.extenders import ExtenderError
from berth_host.extenders.client import names_of
from berth_host.extenders.extenders import NO_EXTENDERS, Extenders
from berth_host.framework.score_table import ScoreTable
from berth_host.model.node_statuses import NodeStatuses
from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import Pod
from berth_sdk.status import Code
from berth_sdk.tables import NodeTable
from support.frameworks import cycle_of, table_of
from support.raw_http import RawServer, answer, raw_server

Json = dict[str, Any]
NODES: Final = ("a", "b", "c", "d")
POD: Final = Pod(name="p", namespace="ns", uid="uid-p")


def said(body: Any, status: int = 200) -> bytes:
    return answer(json.dumps(body), status)


class Asked:
    """Extenders behind one server, each under its own path, and one attempt over NODES."""

    def __init__(self, server: RawServer, configured: Sequence[Mapping[str, Any]], pod: Pod = POD) -> None:
        self.server = server
        verbs = {"filter_verb": "filter", "prioritize_verb": "prioritize"} | {
            "preempt_verb": "preempt",
            "bind_verb": "bind",
        }
        self.extenders = Extenders(
            [
                Extender(
                    **{
                        **verbs,
                        "url_prefix": f"{server.url}/{number}",
                        "given_http_timeout_s": 30.0,
                        "node_cache_capable": True,
                        "weight": 1,
                        **settings,
                    }
                )
                for number, settings in enumerate(configured)
            ]
        )
        self.table: NodeTable = table_of(*NODES)
        self.cycle: Cycle = cycle_of(pod, self.table)
        self.statuses = NodeStatuses(self.table)

    @property
    def asked(self) -> list[str]:
        """Return the paths that were asked, in order."""
        return [request.line.partition(" ")[2] for request in self.server.requests]

    def names(self, rows: Any) -> list[str]:
        return [self.table.name(int(row)) for row in rows]

    async def filter(self, names: Sequence[str] = NODES) -> tuple[list[str], str]:
        """Return the names of the nodes that pass, and the error."""
        rows = np.asarray([self.table.position(name) for name in names], dtype=np.intp)
        passed, status = await self.extenders.filter(self.cycle, self.statuses, rows)
        assert status.is_success or status.code is Code.ERROR
        return self.names(passed), status.message

    def refusals(self) -> dict[str, tuple[Code, str, str]]:
        """Return the code, the message and the extender of each refused node."""
        found = {}
        for row, group in enumerate(self.statuses.groups.tolist()):
            if group:
                status = self.statuses.statuses[group]
                found[self.table.name(row)] = (status.code, status.message, status.plugin)
        return found

    async def prioritize(self, before: Sequence[int] = (0, 0, 0, 0)) -> list[int]:
        """Return the totals of NODES. `before`: the totals of the Score plugins."""
        scores = ScoreTable(self.table, np.asarray(before, dtype=np.int64))
        await self.extenders.prioritize(self.cycle, scores)
        self.scores = scores
        totals: list[int] = scores.total.tolist()
        return totals

    async def preempt(self, victims: Mapping[str, Sequence[str]]) -> dict[str, tuple[list[str], int]]:
        """Return the victims' names and the broken budgets, by node. Each node has pods v-NODE and w-NODE."""
        pods = {
            name: [Pod(name=f"{kind}-{name}", uid=f"{kind}-{name}", priority=-1) for kind in "vw"]
            for name in NODES
        }
        given = {
            name: ([pod for pod in pods[name] if pod.name in chosen], 0) for name, chosen in victims.items()
        }

        def pods_on(node_name: str) -> Sequence[Pod] | None:
            return pods.get(node_name)

        left = await self.extenders.preempt(self.cycle, given, pods_on)
        return {name: ([pod.name for pod in chosen], broken) for name, (chosen, broken) in left.items()}


@asynccontextmanager
async def asking(
    answers: Callable[[str, Json], bytes | None], *configured: Mapping[str, Any], pod: Pod = POD
) -> AsyncIterator[Asked]:
    """Ask extenders that answer with `answers(path, body)`."""
    async with raw_server(lambda request: answers(request.line.partition(" ")[2], request.json)) as server:
        asked = Asked(server, configured or ({},), pod)
        try:
            yield asked
        finally:
            await asked.extenders.close()


# --- which extenders, in which order ---------------------------------------------------------------------


def test_ignorable_extenders_are_asked_last_and_otherwise_in_configured_order() -> None:
    configured = [Extender(url_prefix=f"http://h/{n}", ignorable=n in "ac") for n in "abcd"]
    assert [client.name for client in Extenders(configured).clients] == [
        f"extender h/{n}" for n in ("b", "d", "a", "c")
    ]


def test_names_tell_extenders_apart_and_hold_no_password_and_no_token() -> None:
    urls = ("http://h:1/x/", "https://user:secret@h:1/x", "http://h:1", "h", "", "http://h:1/x?token=a@b")
    assert names_of([Extender(url_prefix=url) for url in urls]) == [
        "extender h:1/x",
        "extender h:1/x #2",
        "extender h:1",
        "extender h",
        "extender without URL",
        "extender h:1/x #3",
    ]
    secret = Extender(url_prefix="http://h/x?token=hunter2&next=http://other/y")
    assert names_of([secret]) == ["extender h/x"]


def test_without_extenders_nobody_is_asked() -> None:
    assert not NO_EXTENDERS
    assert not NO_EXTENDERS.have_filters
    assert not NO_EXTENDERS.have_scores
    assert not NO_EXTENDERS.preempt_for(POD)


CONTAINER = {"name": "c", "image": "i"}
GPU = {"resources": {"requests": {"x.io/gpu": "1"}}}


@pytest.mark.parametrize(
    ("spec", "is_asked"),
    [
        ({"containers": [CONTAINER]}, False),
        ({"containers": [CONTAINER, CONTAINER | GPU]}, True),
        ({"containers": [CONTAINER | {"resources": {"limits": {"x.io/gpu": "0"}}}]}, True),
        ({"containers": [CONTAINER | {"resources": {"requests": {"x.io/other": "1"}}}]}, False),
        ({"containers": [CONTAINER], "initContainers": [CONTAINER | GPU]}, True),
        ({"containers": [CONTAINER | {"resources": None}], "initContainers": None}, False),
        # As in kube-scheduler, neither of these counts.
        ({"containers": [CONTAINER], "ephemeralContainers": [CONTAINER | GPU]}, False),
        ({"containers": [CONTAINER], "overhead": {"x.io/gpu": "1"}}, False),
    ],
)
async def test_managed_resources_decide_which_pods_are_asked_about(spec: Json, is_asked: bool) -> None:
    raw = {"metadata": {"name": "p", "uid": "u"}, "spec": spec}
    pod = Pod(name="p", uid="u", object=KubeObject("v1", "Pod", parsed=raw))

    def everything(path: str, body: Json) -> bytes:
        if "filter" in path:
            return said({"NodeNames": body["NodeNames"]})
        if "preempt" in path:
            return said({"NodeNameToMetaVictims": body["NodeNameToMetaVictims"]})
        return said([] if "prioritize" in path else {})

    managed = {"managed_resources": (ManagedResource(name="x.io/gpu"),)}
    async with asking(everything, managed, pod=pod) as extender:
        assert await extender.filter() == (list(NODES), "")
        assert await extender.prioritize() == [0, 0, 0, 0]
        assert extender.extenders.preempt_for(pod) == is_asked
        assert await extender.preempt({"a": ["v-a"]}) == {"a": (["v-a"], 0)}
        assert (await extender.extenders.bind(extender.cycle, "a") is not None) == is_asked
        paths = ["/0/filter", "/0/prioritize", "/0/preempt", "/0/bind"]
        assert extender.asked == (paths if is_asked else [])


# --- filter ----------------------------------------------------------------------------------------------


async def test_each_extender_sees_what_those_before_it_left() -> None:
    def answers(path: str, body: Json) -> bytes:
        return said({"NodeNames": body["NodeNames"][1:]})

    async with asking(answers, {"ignorable": True}, {}, {}) as extender:
        assert await extender.filter() == (["d"], "")
        assert extender.asked == ["/1/filter", "/2/filter", "/0/filter"]
        assert [request.json["NodeNames"] for request in extender.server.requests] == [
            ["a", "b", "c", "d"],
            ["b", "c", "d"],
            ["c", "d"],
        ]


async def test_nobody_is_asked_about_no_nodes() -> None:
    async with asking(lambda *_: said({"NodeNames": []}), {}, {}) as extender:
        assert await extender.filter() == ([], "")
        assert extender.asked == ["/0/filter"]
        assert await extender.filter([]) == ([], "")
        assert extender.asked == ["/0/filter"]


@pytest.mark.parametrize(
    ("result", "passed"),
    [
        ({"NodeNames": ["c", "a"]}, ["a", "c"]),
        ({"NodeNames": ["a", "a", "c", "a"]}, ["a", "c"]),
        ({"NodeNames": []}, []),
        ({"NodeNames": None}, []),
        ({}, []),
        ({"Nodes": {"items": [{"metadata": {"name": "b"}}]}}, ["b"]),
        ({"Nodes": {"items": [{"metadata": {"name": "b"}}]}, "NodeNames": ["a"]}, ["a"]),
        ({"Nodes": {"items": [{"metadata": {"name": "b"}}]}, "NodeNames": []}, []),
    ],
)
async def test_named_nodes_pass_an_extender_with_a_copy_of_the_nodes(result: Json, passed: list[str]) -> None:
    async with asking(lambda *_: said(result)) as extender:
        assert await extender.filter() == (passed, "")
        assert extender.refusals() == {}


@pytest.mark.parametrize(
    ("result", "passed"),
    [
        ({"Nodes": {"items": [{"metadata": {"name": "d"}}, {"metadata": {"name": "b"}}]}}, ["b", "d"]),
        ({"Nodes": {"items": []}, "NodeNames": ["a"]}, []),
        ({"Nodes": {}}, []),
        ({"NodeNames": ["a"]}, []),
    ],
)
async def test_without_a_copy_of_the_nodes_only_whole_nodes_pass(result: Json, passed: list[str]) -> None:
    async with asking(lambda *_: said(result), {"node_cache_capable": False}) as extender:
        assert await extender.filter() == (passed, "")


@pytest.mark.parametrize("name", ["z", "", "a"])
async def test_node_that_was_not_asked_about_is_an_error(name: str) -> None:
    async with asking(lambda *_: said({"NodeNames": ["b", name]})) as extender:
        _, error = await extender.filter(["b", "c"])
        url = f"{extender.server.url}/0"
        words = f'extender "{url}" claims a filtered node "{name}" which is not found in the input node list'
        assert error == words
        assert extender.extenders.clients[0].stats.of("filter").failures == {"violation": 1}


async def test_stronger_of_two_refusals_counts_and_a_refused_node_may_pass() -> None:
    result = {
        "NodeNames": ["a", "b"],
        "FailedNodes": {"b": "weak", "c": "weak", "d": ""},
        "FailedAndUnresolvableNodes": {"c": "strong"},
    }
    async with asking(lambda *_: said(result)) as extender:
        # kube-scheduler goes by the nodes that pass; a refusal of one of them is a word in the message alone.
        assert await extender.filter() == (["a", "b"], "")
        name = extender.extenders.clients[0].name
        assert extender.refusals() == {
            "b": (Code.UNSCHEDULABLE, "weak", name),
            "c": (Code.UNSCHEDULABLE_AND_UNRESOLVABLE, "strong", name),
            "d": (Code.UNSCHEDULABLE, "", name),
        }


async def test_refusals_of_unknown_nodes_are_strays() -> None:
    result = {
        "NodeNames": list(NODES),
        "FailedNodes": {"z": "gone"},
        "FailedAndUnresolvableNodes": {"y": "x"},
    }
    async with asking(lambda *_: said(result)) as extender:
        assert await extender.filter() == (list(NODES), "")
        assert {name: status.message for name, status in extender.cycle.unknown_nodes.items()} == {
            "z": "gone",
            "y": "x",
        }


BAD_FILTERS: Final = [
    (said({"Error": "no", "NodeNames": ["a"]}), "no", "error"),
    (said({}, 500), "failed filter with extender at URL URL/0/filter, code 500", "refused"),
    (answer("<html>"), "invalid character '<' looking for beginning of value", "violation"),
    (None, 'Post "URL/0/filter": EOF', "unavailable"),
]


@pytest.mark.parametrize(("given", "words", "outcome"), BAD_FILTERS)
async def test_failing_filter_ends_the_attempt_and_nobody_else_is_asked(
    given: bytes | None, words: str, outcome: str
) -> None:
    async with asking(lambda *_: given, {}, {}) as extender:
        _, error = await extender.filter()
        assert error.replace(extender.server.url, "URL") == words
        assert extender.asked == ["/0/filter"]
        figures = extender.extenders.clients[0].stats.of("filter")
        assert (figures.calls, figures.failures, figures.policies) == (1, {outcome: 1}, {})


@pytest.mark.parametrize(("given", "words", "outcome"), BAD_FILTERS)
async def test_ignorable_filter_that_fails_is_passed_over_noted_and_counted(
    given: bytes | None, words: str, outcome: str
) -> None:
    def answers(path: str, body: Json) -> bytes | None:
        return given if path == "/0/filter" else said({"NodeNames": body["NodeNames"][2:]})

    async with asking(answers, {"ignorable": True}, {}) as extender:
        assert await extender.filter() == (["c", "d"], "")
        assert extender.asked == ["/1/filter", "/0/filter"]
        figures = extender.extenders.stats[extender.extenders.clients[1].name].of("filter")
        assert (figures.failures, figures.policies) == ({outcome: 1}, {"Ignore": 1})
        (note,) = extender.cycle.account.notes
        assert words in note.replace(extender.server.url, "URL")
        assert "ignorable: true" in note


async def test_same_answer_about_other_nodes_is_read_for_these() -> None:
    async with asking(lambda *_: said({"NodeNames": ["b"], "FailedNodes": {"a": "no"}})) as extender:
        assert await extender.filter() == (["b"], "")
        assert await extender.filter(["b", "c"]) == (["b"], "")
        _, error = await extender.filter(["a", "c"])
        assert 'claims a filtered node "b"' in error
        # Another snapshot, in which the same names have other places.
        extender.table = table_of("x", "b", "a")
        extender.statuses = NodeStatuses(extender.table)
        assert await extender.filter(["a", "b"]) == (["b"], "")
        assert list(extender.refusals()) == ["a"]


# --- prioritize ------------------------------------------------------------------------------------------


def scored(**scores: int) -> bytes:
    return said([{"Host": host, "Score": score} for host, score in scores.items()])


async def test_scores_count_ten_times_their_weight_on_top_of_the_plugins() -> None:
    def answers(path: str, _: Json) -> bytes:
        return scored(a=1, b=10) if path.startswith("/0") else scored(b=3, d=-2)

    async with asking(answers, {"weight": 2}, {"weight": 5}) as extender:
        assert await extender.prioritize([1, 2, 3, 4]) == [21, 2 + 200 + 150, 3, 4 - 100]
        assert sorted(extender.asked) == ["/0/prioritize", "/1/prioritize"]
        assert [(one.plugin, one.weight, one.raw.tolist()) for one in extender.scores.plugins] == [
            (extender.extenders.clients[0].name, 2, [1, 10, 0, 0]),
            (extender.extenders.clients[1].name, 5, [0, 3, 0, -2]),
        ]


async def test_all_prioritizers_are_asked_at_the_same_time() -> None:
    everybody = asyncio.Barrier(3)

    async def answering(_: Any) -> bytes:
        await everybody.wait()
        return scored(a=1)

    async with raw_server(answering) as server:
        extender = Asked(server, ({}, {}, {}))
        assert await extender.prioritize() == [30, 0, 0, 0]
        await extender.extenders.close()


@pytest.mark.parametrize(
    ("answered", "totals"),
    [
        ([], [0, 0, 0, 0]),
        (None, [0, 0, 0, 0]),
        ([{"Host": "z", "Score": 5}, {"Score": 7}], [0, 0, 0, 0]),
        ([{"Host": "a", "Score": 1}, {"Host": "a", "Score": 2}], [30, 0, 0, 0]),
        ([{"Host": "c", "Score": 1000}], [0, 0, 10_000, 0]),
        ([{"Host": "b"}], [0, 0, 0, 0]),
    ],
)
async def test_unknown_missing_and_repeated_hosts(answered: Any, totals: list[int]) -> None:
    async with asking(lambda *_: said(answered)) as extender:
        assert await extender.prioritize() == totals


async def test_scores_wrap_around_as_gos_do() -> None:
    async with asking(lambda *_: scored(a=2**63 - 1, b=2**62), {"weight": 3}) as extender:
        wrapped = [((value * 30 + 2**63) % 2**64) - 2**63 for value in (2**63 - 1, 2**62)]
        assert await extender.prioritize() == [*wrapped, 0, 0]


@pytest.mark.parametrize(
    "given", [said({}, 500), answer("["), None, said([{"Host": "a", "Score": 1.5}]), said({"a": 1})]
)
async def test_prioritizer_that_fails_has_no_scores_and_fails_nobody(given: bytes | None) -> None:
    def answers(path: str, _: Json) -> bytes | None:
        return given if path.startswith("/0") else scored(b=1)

    async with asking(answers, {}, {}) as extender:
        assert await extender.prioritize([5, 5, 5, 5]) == [5, 15, 5, 5]
        figures = extender.extenders.clients[0].stats.of("prioritize")
        assert (figures.failed, figures.policies) == (1, {"Ignore": 1})
        (note,) = extender.cycle.account.notes
        assert "its scores are not required" in note


# --- preempt ---------------------------------------------------------------------------------------------


def left(**victims: Any) -> bytes:
    return said(
        {
            "NodeNameToMetaVictims": {
                name: uids
                if uids is None
                else {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": 3}
                for name, uids in victims.items()
            }
        }
    )


async def test_preempt_may_leave_fewer_nodes_and_other_victims_and_name_other_nodes() -> None:
    async with asking(lambda *_: left(a=["w-a"], b=["w-b", "v-b"], d=["v-d"])) as extender:
        assert await extender.preempt({"a": ["v-a"], "b": ["v-b"], "c": ["v-c"]}) == {
            "a": (["w-a"], 3),
            "b": (["w-b", "v-b"], 3),
            "d": (["v-d"], 3),
        }
        assert extender.server.requests[0].json["NodeNameToMetaVictims"]["c"] == {
            "Pods": [{"UID": "v-c"}],
            "NumPDBViolations": 0,
        }


async def test_each_preempter_sees_what_those_before_it_left_until_nothing_is_left() -> None:
    def answers(path: str, body: Json) -> bytes:
        named = body["NodeNameToMetaVictims"]
        return said({"NodeNameToMetaVictims": {name: named[name] for name in list(named)[1:]}})

    async with asking(answers, {}, {}, {}) as extender:
        assert await extender.preempt({"a": ["v-a"], "b": ["v-b"]}) == {}
        assert extender.asked == ["/0/preempt", "/1/preempt"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (left(z=["v-a"]), 'nodeinfo not found for node name "z"'),
        (
            left(a=["v-b"]),
            "extender: URL/0 claims to preempt pod (UID: &{v-b}) on node: a, but the pod is not found on"
            " that node",
        ),
        (left(a=[]), 'expected at least one victim pod on node "a"'),
        (left(a=None), 'expected at least one victim pod on node "a"'),
        (
            said({"NodeNameToMetaVictims": {"a": {"Pods": None}}}),
            'expected at least one victim pod on node "a"',
        ),
        (said({}, 500), "failed preempt with extender at URL URL/0/preempt, code 500"),
        (answer("{"), "unexpected EOF"),
        (None, 'Post "URL/0/preempt": EOF'),
    ],
)
async def test_bad_preemption_is_an_error_or_passed_over(given: bytes | None, words: str) -> None:
    async with asking(lambda *_: given) as extender:
        with pytest.raises(ExtenderError) as caught:
            await extender.preempt({"a": ["v-a"], "b": ["v-b"]})
        assert str(caught.value).replace(extender.server.url, "URL") == words
    async with asking(lambda *_: given, {"ignorable": True}) as extender:
        kept = await extender.preempt({"a": ["v-a"], "b": ["v-b"]})
        drops = words.startswith("expected at least")
        # An ignorable extender may leave a node without victims: the node is no candidate any more.
        assert kept == ({} if drops else {"a": (["v-a"], 0), "b": (["v-b"], 0)})
        assert len(extender.cycle.account.notes) == (0 if drops else 1)


@pytest.mark.parametrize("given", [said({}), said(None), said({"NodeNameToMetaVictims": None})])
async def test_preempt_that_names_no_node_leaves_none(given: bytes) -> None:
    async with asking(lambda *_: given) as extender:
        assert await extender.preempt({"a": ["v-a"]}) == {}


async def test_node_without_victims_goes_from_extender_to_extender_until_one_names_victims() -> None:
    def answers(path: str, body: Json) -> bytes:
        named = body["NodeNameToMetaVictims"]
        assert named["a"] == {"Pods": None, "NumPDBViolations": 0}
        if path.startswith("/1/"):
            named["b"] = {"Pods": [{"UID": "v-b"}], "NumPDBViolations": 0}
        return said({"NodeNameToMetaVictims": {name: named[name] for name in named if name != "c"}})

    async with asking(answers, {}, {}) as extender:
        assert await extender.preempt({"a": [], "b": [], "c": []}) == {"b": (["v-b"], 0)}
        assert set(extender.server.requests[1].json["NodeNameToMetaVictims"]) == {"a", "b"}


# --- bind ------------------------------------------------------------------------------------------------


async def test_extender_that_binds_gets_the_binding() -> None:
    async with asking(lambda *_: said({"Error": ""})) as extender:
        bound = await extender.extenders.bind(extender.cycle, "b")
        assert bound is not None
        assert bound[0] == extender.extenders.clients[0].name
        assert (bound[1].is_success, bound[2]) == (True, True)
        (request,) = extender.server.requests
        assert request.json == {"PodName": "p", "PodNamespace": "ns", "PodUID": "uid-p", "Node": "b"}


@pytest.mark.parametrize(
    ("given", "words", "is_known"),
    [
        (said({"Error": "no"}), "no", True),
        (said({"Error": "no"}, 500), "failed bind with extender at URL URL/0/bind, code 500", False),
        (answer("{"), "unexpected EOF", False),
        (None, 'Post "URL/0/bind": EOF', False),
    ],
)
async def test_failing_bind_says_whether_the_pod_may_be_bound(
    given: bytes | None, words: str, is_known: bool
) -> None:
    async with asking(lambda *_: given) as extender:
        bound = await extender.extenders.bind(extender.cycle, "b")
        assert bound is not None
        assert bound[1].message.replace(extender.server.url, "URL") == words
        assert (bound[1].code, bound[2]) == (Code.ERROR, is_known)
        assert len(extender.asked) == 1


@pytest.mark.parametrize("given", [said({"Error": "no"}), said({}, 500), None])
async def test_ignorable_binder_that_fails_leaves_the_pod_to_the_next_binder(given: bytes | None) -> None:
    async with asking(lambda *_: given, {"ignorable": True}) as extender:
        assert await extender.extenders.bind(extender.cycle, "b") is None
        assert len(extender.cycle.account.notes) == 1
        assert extender.extenders.clients[0].stats.of("bind").policies == {"Ignore": 1}


# --- figures ---------------------------------------------------------------------------------------------


async def test_bytes_and_time_of_every_call_are_counted_by_verb() -> None:
    async with asking(lambda *_: said({"NodeNames": ["a"]})) as extender:
        await extender.filter()
        await extender.filter()
        figures = extender.extenders.clients[0].stats.of("filter")
        assert (figures.calls, figures.messages, figures.failed) == (2, 2, 0)
        assert figures.bytes_sent == sum(len(request.body) for request in extender.server.requests)
        assert figures.bytes_received == 2 * len(b'{"NodeNames": ["a"]}')
        assert list(extender.cycle.account.timings_s) == [(extender.extenders.clients[0].name, "filter")]
