"""A whole host with HTTP extenders, over real sockets: what becomes of pods, figures and connections."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
from berth_bench.life.faulty_cluster import Faults
from berth_host.app import NodeTemplate, Simulate
from berth_host.app.reload import reload
from berth_host.config.loading import load_configuration
from berth_host.explain.diagnosis import Diagnosis, Outcome
from berth_host.metrics.exposition import Exposition
from berth_sdk.kube_object import ObjectRef
from berth_sim.commands.lapses import lapses_of
from support.accidents import no_accidents
from support.hosts import World, node, pod
from support.raw_http import RawServer, Request, answer, raw_server
from support.waiting import PATIENCE_S

Json = dict[str, Any]
Verb = Callable[[Json], Any]
"""The answer of an extender: an object, bytes, None for a closed connection, or a coroutine."""
ALL: Final = ("filter", "prioritize", "preempt", "bind")


class ScriptedExtender:
    """An extender that passes everything, until a test gives one of its verbs another answer."""

    def __init__(self) -> None:
        self.server: RawServer
        self.world: World
        self.verbs: dict[str, Verb] = {
            "filter": lambda body: {"NodeNames": body["NodeNames"]},
            "prioritize": lambda _: [],
            "preempt": lambda body: {"NodeNameToMetaVictims": body["NodeNameToMetaVictims"]},
            "bind": self.bind,
        }

    def bind(self, body: Json) -> Json:
        """Bind the pod in the cluster."""
        ref = ObjectRef(namespace=body["PodNamespace"], name=body["PodName"])
        self.world.server.bind(ref, body["Node"])
        return {}

    async def answering(self, request: Request) -> bytes | None:
        made = self.verbs[request.line.rpartition("/")[2]](request.json)
        if asyncio.iscoroutine(made):
            made = await made
        return made if made is None or isinstance(made, bytes) else answer(json.dumps(made))

    def calls(self, verb: str) -> list[Json]:
        """Return the bodies of the requests to a verb, in order."""
        return [request.json for request in self.server.requests if request.line.endswith(f"/{verb}")]


def configuration(url: str, verbs: Sequence[str], extender: str = "", more: str = "") -> str:
    capable = "" if "nodeCacheCapable" in extender else ", nodeCacheCapable: true"
    named = "".join(f"{verb}Verb: {verb}, " for verb in verbs)
    return (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        f"podInitialBackoffSeconds: 1\n{more}"
        f"extenders: [{{urlPrefix: '{url}', {named}weight: 1, httpTimeout: 30s{capable}{extender}}}]\n"
    )


@asynccontextmanager
async def running(
    *objects: Json,
    verbs: Sequence[str] = ("filter",),
    extender: str = "",
    more: str = "",
    may_be_unknown: bool = False,
    **options: Any,
) -> AsyncIterator[tuple[World, ScriptedExtender]]:
    """Run a host with one extender, without an error in its log.

    `extender`: more of its settings. `more`: of the configuration. `may_be_unknown`: the host may end without
    knowing whether a pod is bound, which it logs as an error.
    """
    scripted = ScriptedExtender()
    async with raw_server(scripted.answering) as scripted.server:
        text = configuration(scripted.server.url, verbs, extender, more)
        accidents = contextlib.nullcontext() if may_be_unknown else no_accidents()
        scripted.world = World(objects, configuration=text, faults=Faults(turns=0, reorder=False), **options)
        with accidents:
            async with scripted.world as world:
                yield world, scripted


def refusing(message: str, *names: str) -> Verb:
    """Refuse these nodes with a message."""
    return lambda body: {
        "NodeNames": [name for name in body["NodeNames"] if name not in names],
        "FailedNodes": dict.fromkeys(names, message),
    }


async def once_asked(extender: ScriptedExtender, verb: str, count: int = 1) -> None:
    """Wait until a verb was asked so often."""
    async with asyncio.timeout(PATIENCE_S):
        while len(extender.calls(verb)) < count:
            await asyncio.sleep(0.001)


def three_nodes() -> list[Json]:
    return [node("n0"), node("n1"), node("n2")]


# --- filter and prioritize -------------------------------------------------------------------------------


async def test_pod_goes_to_a_node_that_every_verb_leaves_and_prefers() -> None:
    async with running(*three_nodes(), verbs=ALL) as (world, extender):
        extender.verbs["filter"] = refusing("no", "n0")
        extender.verbs["prioritize"] = lambda _: [{"Host": "n2", "Score": 10}, {"Host": "n0", "Score": 99}]
        world.server.create(pod("web"))
        await world.settle()
        assert world.node_of("web") == "n2"
        assert extender.calls("prioritize")[0]["NodeNames"] == ["n1", "n2"]
        assert [body["Node"] for body in extender.calls("bind")] == ["n2"]


async def test_prioritize_is_not_asked_about_a_single_node() -> None:
    async with running(*three_nodes(), verbs=ALL) as (world, extender):
        extender.verbs["filter"] = refusing("no", "n0", "n1")
        world.server.create(pod("web"))
        await world.settle()
        assert world.node_of("web") == "n2"
        assert not extender.calls("prioritize")


async def test_message_counts_the_reasons_of_an_extender_beside_those_of_plugins() -> None:
    attempts: list[Diagnosis] = []
    objects = [*three_nodes(), node("n3"), node("small", cpu="50m")]
    async with running(*objects, on_attempt=attempts.append) as (world, extender):
        extender.verbs["filter"] = lambda _: {
            "FailedNodes": {"n0": "no gpu", "n1": "no gpu", "elsewhere": "no gpu"},
            "FailedAndUnresolvableNodes": {"n2": "broken gpu"},
        }
        world.server.create(pod("web"))
        await world.settle()
        # n3 is left out without a reason; a node that the cluster lacks counts, as in kube-scheduler.
        words = "0/5 nodes are available: 1 Insufficient cpu, 1 broken gpu, 3 no gpu. "
        assert world.message_of("web").startswith(words)
        assert attempts[0].outcome is Outcome.UNSCHEDULABLE
        assert attempts[0].unschedulable_plugins == {"Extender", "NodeResourcesFit"}
        (name,) = (client.name for client in world.host.extenders.clients)
        assert {(one.status.plugin, one.status.message) for one in attempts[0].rejections} >= {
            (name, "no gpu"),
            (name, "broken gpu"),
        }


async def test_any_event_requeues_a_pod_that_an_extender_rejected() -> None:
    async with running(*three_nodes()) as (world, extender):
        extender.verbs["filter"] = lambda _: {}
        world.server.create(pod("web"))
        await world.settle()
        assert world.node_of("web") == ""
        extender.verbs["filter"] = refusing("no", "n0")
        world.server.create(
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "default"}}
        )
        world.server.patch("nodes", ObjectRef(name="n0"), {"metadata": {"annotations": {"a": "b"}}})
        await world.settle()
        assert world.node_of("web") == "n1"


async def test_search_with_a_percentage_asks_the_extender_about_the_nodes_that_it_found() -> None:
    objects = [node(f"n{number:03}") for number in range(150)]
    async with running(*objects, more="percentageOfNodesToScore: 10\n") as (world, extender):
        for name in ("a", "b"):
            world.server.create(pod(name))
            await world.settle()
        first, second = (body["NodeNames"] for body in extender.calls("filter"))
        assert (len(first), len(second)) == (100, 100)
        assert set(first) | set(second) == {f"n{number:03}" for number in range(150)}


@pytest.mark.parametrize("verbs", [("filter",), ("prioritize",), ALL])
async def test_failing_ignorable_extender_is_passed_over_noted_and_a_lapse(verbs: Sequence[str]) -> None:
    attempts: list[Diagnosis] = []
    async with running(
        *three_nodes(), verbs=verbs, extender=", ignorable: true", on_attempt=attempts.append
    ) as (world, extender):
        for verb in verbs:
            extender.verbs[verb] = lambda _: answer(status=503)
        world.server.create(pod("web"))
        await world.settle()
        assert world.node_of("web") == "n0"
        asked = [verb for verb in ("filter", "prioritize", "bind") if verb in verbs]
        (last,) = attempts
        assert [f"at {verb} (" in note for verb, note in zip(asked, last.notes, strict=True)] == [True] * len(
            asked
        )
        name = f"extender {extender.server.address}"
        assert lapses_of(world.host) == [
            f"{name} failed in 1 of 1 calls of {verb}: -v and `berth why` show the errors" for verb in asked
        ]
        text = (await Exposition(lambda: world.host.metrics.sources, process=False).text()).decode()
        for verb in asked:
            labels = f'extension_point="{verb}"'
            lines = [line for line in text.splitlines() if name in line and labels in line]
            shown = {line.partition("{")[0]: line.rpartition(" ")[2] for line in lines}
            assert float(shown["berth_plugin_calls_total"]) == 1
            assert float(shown["berth_plugin_failures_total"]) == 1
            assert float(shown["berth_plugin_policies_total"]) == 1
            assert float(shown["berth_plugin_sent_bytes_total"]) > 100


async def test_failing_extender_is_an_error_of_the_attempt_and_the_pod_is_tried_again() -> None:
    async with running(*three_nodes()) as (world, extender):
        failures = iter([answer(status=500), None, answer("<html>")])
        extender.verbs["filter"] = lambda body: next(failures, {"NodeNames": body["NodeNames"]})
        world.server.create(pod("web"))
        await world.settle()
        assert world.node_of("web") == "n0"
        assert len(extender.calls("filter")) == 4
        assert world.everything_is_accounted_for()


# --- nominated nodes, preemption -------------------------------------------------------------------------


def nominate(world: World, name: str, node_name: str) -> None:
    """Create a pod with a nominated node. It is gated until it has the node."""
    made = pod(name)
    made["spec"]["schedulingGates"] = [{"name": "example.com/nominated"}]
    world.server.create(made)
    ref = ObjectRef(namespace="default", name=name)
    world.server.patch("pods", ref, {"status": {"nominatedNodeName": node_name}}, subresource="status")
    world.server.patch("pods", ref, {"spec": {"schedulingGates": []}})


async def test_nominated_node_is_asked_about_alone_and_taken() -> None:
    async with running(*three_nodes()) as (world, extender):
        nominate(world, "web", "n2")
        await world.settle()
        assert world.node_of("web") == "n2"
        assert [body["NodeNames"] for body in extender.calls("filter")] == [["n2"]]


@pytest.mark.parametrize("given", [{"FailedNodes": {"n2": "no"}}, {}, answer(status=500), answer("x"), None])
async def test_nominated_node_that_extenders_do_not_pass_is_one_of_all(given: Any) -> None:
    async with running(*three_nodes()) as (world, extender):
        answers = iter([given])
        extender.verbs["filter"] = lambda body: next(answers, {"NodeNames": body["NodeNames"][1:]})
        nominate(world, "web", "n2")
        await world.settle()
        assert [body["NodeNames"] for body in extender.calls("filter")] == [["n2"], ["n0", "n1", "n2"]]
        assert world.node_of("web") == "n1"


def low_and_high() -> list[Json]:
    return [
        node("n0", cpu="1"),
        node("n1", cpu="1"),
        *(pod(f"low{number}", cpu="900m", nodeName=f"n{number}", priority=1) for number in range(2)),
    ]


async def test_extender_chooses_the_node_of_a_preemption() -> None:
    async with running(*low_and_high(), verbs=("preempt", "filter")) as (world, extender):
        extender.verbs["preempt"] = lambda body: {
            "NodeNameToMetaVictims": {"n1": body["NodeNameToMetaVictims"]["n1"]}
        }
        world.server.create(pod("high", cpu="900m", priority=9))
        await world.settle()
        assert set(extender.calls("preempt")[0]["NodeNameToMetaVictims"]) == {"n0", "n1"}
        assert world.node_of("high") == "n1"
        assert world.pod("low1") is None
        assert world.pod("low0") is not None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "no candidate node for preemption"),
        ({"NodeNameToMetaVictims": {"n0": {"Pods": []}}}, 'expected at least one victim pod on node "n0"'),
        ({"NodeNameToMetaVictims": {"zz": {"Pods": []}}}, 'nodeinfo not found for node name "zz"'),
    ],
)
async def test_preemption_that_an_extender_ends_evicts_nobody(given: Json, message: str) -> None:
    async with running(*low_and_high(), verbs=("preempt",)) as (world, extender):
        extender.verbs["preempt"] = lambda _: given
        world.server.create(pod("high", cpu="900m", priority=9))
        await world.settle()
        assert world.node_of("high") == ""
        assert world.node_of("low0") == "n0"
        assert world.node_of("low1") == "n1"
        assert message in world.message_of("high")


async def test_extender_fills_nodes_that_need_no_victim_for_the_filters_since_1_38() -> None:
    """Only the extender counts the licences, and only it knows whose pod has one."""
    verbs = ("preempt", "filter")
    async with running(*low_and_high(), verbs=verbs, emulated_version="1.38") as (world, extender):
        holder = world.pod("low1")
        assert holder is not None
        extender.verbs["filter"] = refusing("no licence left", "n0", "n1")

        def preempted(_: Json) -> Json:
            extender.verbs["filter"] = refusing("no licence left", "n0")
            return {"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": holder.ref.uid}]}}}

        extender.verbs["preempt"] = preempted
        world.server.create(pod("high", cpu="50m", priority=9))
        await world.settle()
        assert extender.calls("preempt")[0]["NodeNameToMetaVictims"] == {
            name: {"Pods": None, "NumPDBViolations": 0} for name in ("n0", "n1")
        }
        assert world.pod("low1") is None
        assert world.node_of("high") == "n1"


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("1.38", "no candidate node for preemption"),
        ("", 'expected at least one victim pod on node "n0"'),
    ],
)
async def test_node_that_no_extender_fills_is_no_candidate(version: str, message: str) -> None:
    verbs = ("preempt", "filter")
    async with running(*low_and_high(), verbs=verbs, emulated_version=version) as (world, extender):
        extender.verbs["filter"] = refusing("no licence left", "n0", "n1")
        world.server.create(pod("high", cpu="50m", priority=9))
        await world.settle()
        assert world.node_of("high") == ""
        assert message in world.message_of("high")
        assert {world.node_of(name) for name in ("low0", "low1")} == {"n0", "n1"}


async def test_victims_are_those_that_the_extender_names() -> None:
    objects = [
        node("n0", cpu="2"),
        pod("small", cpu="900m", nodeName="n0", priority=1),
        pod("other", cpu="900m", nodeName="n0", priority=2),
    ]
    async with running(*objects, verbs=("preempt",)) as (world, extender):
        other = world.pod("other")
        assert other is not None
        extender.verbs["preempt"] = lambda _: {
            "NodeNameToMetaVictims": {"n0": {"Pods": [{"UID": other.get("metadata.uid")}]}}
        }
        world.server.create(pod("high", cpu="1", priority=9))
        await world.settle()
        assert world.node_of("high") == "n0"
        assert world.pod("other") is None
        assert world.pod("small") is not None


async def test_extender_that_names_a_victim_of_equal_priority_is_named_in_the_message() -> None:
    objects = [*low_and_high(), pod("equal", cpu="50m", nodeName="n0", priority=9)]
    async with running(*objects, verbs=("preempt",)) as (world, extender):
        equal = world.pod("equal")
        assert equal is not None
        uid = equal.get("metadata.uid")
        extender.verbs["preempt"] = lambda _: {"NodeNameToMetaVictims": {"n0": {"Pods": [{"UID": uid}]}}}
        world.server.create(pod("high", cpu="900m", priority=9))
        await world.settle()
        assert world.pod("equal") is not None
        said = "claims to preempt pod default/equal on node: n0, but its priority 9 is not below 9"
        assert said in world.message_of("high")


# --- bind ------------------------------------------------------------------------------------------------


class Bindings:
    """The bindings that an embedded cluster stores, in order."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[str] = []
        bind = world.server.bind

        def counted(ref: ObjectRef, node_name: str) -> Any:
            stored = bind(ref, node_name)
            self.made.append(f"{ref.name} {node_name}")
            return stored

        monkeypatch.setattr(world.server, "bind", counted)


async def test_bind_that_is_claimed_and_not_done_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[Diagnosis] = []
    async with running(*three_nodes(), verbs=ALL, on_attempt=attempts.append) as (world, extender):
        bindings = Bindings(world, monkeypatch)
        first: Iterator[Json] = iter([{}])

        def claims_once(body: Json) -> Json:
            for claim in first:
                return claim
            return extender.bind(body)

        extender.verbs["bind"] = claims_once
        world.server.create(pod("web"))
        await world.settle()
        assert bindings.made == ["web n0"]
        name = f"extender {extender.server.address}"
        untrue = f"{name} answered that it bound the pod, but the pod is not on n0"
        assert [one.message for one in attempts] == [untrue, ""]
        assert attempts[-1].outcome is Outcome.BOUND
        assert world.everything_is_accounted_for()


@pytest.mark.parametrize("given", [None, answer(status=500), answer("<html>"), answer("")])
async def test_bind_that_happened_and_was_not_answered_is_seen_and_not_repeated(
    monkeypatch: pytest.MonkeyPatch, given: bytes | None
) -> None:
    attempts: list[Diagnosis] = []
    async with running(*three_nodes(), verbs=ALL, on_attempt=attempts.append) as (world, extender):
        bindings = Bindings(world, monkeypatch)

        def binds_and_fails(body: Json) -> bytes | None:
            extender.bind(body)
            return given

        extender.verbs["bind"] = binds_and_fails
        world.server.create(pod("web"))
        await world.settle()
        assert bindings.made == ["web n0"]
        assert len(extender.calls("bind")) == 1
        assert [one.outcome for one in attempts] == [Outcome.BOUND]
        assert world.host.cache.assumed_count == 0


@pytest.mark.parametrize("given", [None, answer(status=500), {"Error": "no"}])
async def test_bind_that_failed_is_tried_again(monkeypatch: pytest.MonkeyPatch, given: Any) -> None:
    async with running(*three_nodes(), verbs=ALL) as (world, extender):
        bindings = Bindings(world, monkeypatch)
        first = iter([given])

        def fails_once(body: Json) -> Any:
            for failure in first:
                return failure
            return extender.bind(body)

        extender.verbs["bind"] = fails_once
        world.server.create(pod("web"))
        await world.settle()
        assert bindings.made == ["web n0"]
        assert len(extender.calls("bind")) == 2
        assert world.everything_is_accounted_for()


async def test_ignorable_binder_that_bound_and_did_not_say_so_is_no_second_binding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running(*three_nodes(), verbs=ALL, extender=", ignorable: true") as (world, extender):
        bindings = Bindings(world, monkeypatch)
        extender.verbs["bind"] = lambda body: extender.bind(body) and None
        world.server.create(pod("web"))
        await world.settle()
        assert bindings.made == ["web n0"]
        assert world.everything_is_accounted_for()
        assert world.host.cache.assumed_count == 0


async def test_bind_to_another_node_than_the_chosen_one_leaves_nothing_on_the_chosen_one() -> None:
    async with running(*three_nodes(), verbs=ALL) as (world, extender):
        extender.verbs["bind"] = lambda body: extender.bind({**body, "Node": "n2"})
        world.server.create(pod("web"))
        await world.settle()
        assert world.node_of("web") == "n2"
        assert world.everything_is_accounted_for()
        assert world.host.cache.assumed_count == 0


# --- calls that are cut short ----------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["filter", "prioritize", "bind"])
async def test_pod_that_is_deleted_during_a_call_leaves_nothing_behind(verb: str) -> None:
    async with running(*three_nodes(), verbs=ALL) as (world, extender):
        honest, release = extender.verbs[verb], asyncio.Event()

        async def waits(body: Json) -> Any:
            await release.wait()
            extender.verbs[verb] = honest
            return {} if verb == "bind" else honest(body)

        extender.verbs[verb] = waits
        world.server.create(pod("web"))
        await once_asked(extender, verb)
        world.server.delete("pods", ObjectRef(namespace="default", name="web"))
        release.set()
        await world.settle()
        world.server.create(pod("next"))
        await world.settle()
        assert world.node_of("next") == "n0"
        assert world.host.cache.assumed_count == 0
        assert world.everything_is_accounted_for()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


@pytest.mark.parametrize("verb", ALL)
async def test_host_that_stops_during_a_call_leaves_no_task_and_no_connection(verb: str) -> None:
    objects = low_and_high() if verb == "preempt" else three_nodes()
    before = asyncio.all_tasks(), descriptors()
    async with running(*objects, verbs=ALL, may_be_unknown=verb == "bind") as (world, extender):

        async def hangs(_: Json) -> Any:
            await asyncio.get_running_loop().create_future()

        extender.verbs[verb] = hangs
        world.server.create(pod("web", cpu="900m", priority=9))
        await once_asked(extender, verb)
        async with asyncio.timeout(PATIENCE_S):
            await world.host.stop()
        left = asyncio.all_tasks() - before[0]
        # What is left is the server's: a task for each connection that it has not seen the end of.
        assert all("raw_http" in repr(task) for task in left), left
    await asyncio.sleep(0.01)
    assert asyncio.all_tasks() == before[0]
    assert descriptors() <= before[1]


async def test_reload_during_a_call_closes_the_old_connections_and_loses_no_pod() -> None:
    async with running(*three_nodes(), verbs=("filter",)) as (world, extender):
        release = asyncio.Event()

        async def waits(body: Json) -> Any:
            await release.wait()
            return {"NodeNames": body["NodeNames"]}

        extender.verbs["filter"] = waits
        for number in range(3):
            world.server.create(pod(f"web{number}"))
        await once_asked(extender, "filter")
        old = world.host
        changing = configuration(extender.server.url, ("filter", "prioritize"), ", ignorable: true")
        reloading = asyncio.ensure_future(
            reload(old, load_configuration(changing, source="new.yaml", registered={}))
        )
        release.set()
        world.host = await reloading
        await world.settle()
        assert {world.node_of(f"web{number}") for number in range(3)} <= {"n0", "n1", "n2"}
        assert extender.calls("prioritize")
        await asyncio.sleep(0.01)
        assert len(extender.server.open_now) <= 2


# --- questions about nodes that do not exist ---------------------------------------------------------------


async def simulated(world: World, *pods: Json, **options: Any) -> tuple[list[str], list[str]]:
    """Ask about pods on two nodes of a template; return the places, and the notes of the summary."""
    template = NodeTemplate(name="new", node=node("new"), count=2)
    asked = Simulate(pods=pods, templates=[template], **options)
    simulation = await world.host.ask(asked)
    found = [one async for part in simulation.run() for one in part]
    places = [one.node_name or (f"{one.template}/{one.ordinal}" if one.template else "") for one in found]
    return places, list(simulation.summary().notes)


async def test_extender_with_nodes_of_its_own_is_not_asked_about_nodes_of_templates() -> None:
    async with running(node("n0"), node("n1"), verbs=ALL) as (world, extender):
        extender.verbs["filter"] = refusing("no", "n0", "n1")
        places, notes = await simulated(world, pod("a", cpu="3"), pod("b", cpu="3"), pod("c", cpu="3"))
        assert places == ["new/0", "new/1", ""]
        assert [body["NodeNames"] for body in extender.calls("filter")] == [["n0", "n1"]] * 3
        assert not extender.calls("prioritize")  # no node that it knows is left
        (note,) = notes
        (client,) = world.host.extenders.clients
        assert note.startswith(f"{client.name} was not asked about nodes of templates: it knows nodes by")
        assert note.endswith("set nodeCacheCapable: false if it can judge whole nodes")
        extender.verbs["filter"] = refusing("no", "n0")
        extender.verbs["prioritize"] = lambda _: [{"Host": "n1", "Score": 10}]
        places, _ = await simulated(world, pod("a"))
        assert places == ["n1"]
        assert [body["NodeNames"] for body in extender.calls("prioritize")] == [["n1"]]
        places, _ = await simulated(world, pod("a"), only_templates=True)
        assert places == ["new/0"]
        assert len(extender.calls("filter")) == 4


async def test_extender_that_reads_whole_nodes_gets_those_of_templates() -> None:
    whole = ", nodeCacheCapable: false"
    async with running(node("n0"), extender=whole) as (world, extender):
        extender.verbs["filter"] = lambda body: {
            "Nodes": {"items": [one for one in body["Nodes"]["items"] if one["metadata"]["name"] != "n0"]},
            "FailedNodes": {"n0": "no"},
        }
        places, notes = await simulated(world, pod("a"), pod("b"))
        assert (set(places), notes) == ({"new/0", "new/1"}, [])
        assert [one["metadata"]["name"] for one in extender.calls("filter")[0]["Nodes"]["items"]] == [
            "n0",
            "berth-template-0-0",
            "berth-template-0-1",
        ]
