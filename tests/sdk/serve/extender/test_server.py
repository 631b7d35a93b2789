"""A plugin behind HTTP, asked as a scheduler asks an extender: with Node objects, and with names alone."""

from __future__ import annotations

import asyncio
import json
import threading
from random import Random
from typing import Any

import pytest
from berth_sdk import (
    CycleState,
    Need,
    NodeMode,
    Plugin,
    PluginArgsError,
    PluginDefinitionError,
    Pod,
    PodSensitivity,
    Status,
    Verdicts,
)
from berth_sdk.serve.extender import server as serving
from berth_sdk.serve.server import ListenError
from berth_sdk.tables import NodeTable
from support.waiting import until

from sdk.serve.extender.serving import (
    Pools,
    about_names,
    about_nodes,
    about_victims,
    extender,
    names_in,
    node,
    pod,
    sent,
)


class Names(Plugin):
    """Knows nothing of nodes but their names."""

    node_mode = NodeMode.NAMES
    needs = ()

    def filter(self, state: CycleState, pod: Pod, node: Any) -> Status:
        return (
            Status.success() if node.name.endswith(pod.labels["end"]) else Status.unschedulable("other end")
        )


async def test_filter_answers_node_objects_as_they_came() -> None:
    good = node("n2", labels={"rank": "50"})
    spot, gone = node("n1", labels={"pool": "spot"}), node("n3", labels={"pool": "gone"})
    async with extender(Pools) as asking:
        answer = await asking.post("filter", about_nodes(spot, good, gone))
    assert answer == {
        "Nodes": {"metadata": {}, "items": [good]},
        "NodeNames": None,
        "FailedNodes": {"n1": "node is a spot node, and busy"},
        "FailedAndUnresolvableNodes": {"n3": "node is gone"},
        "Error": "",
    }


async def test_filter_answers_names_to_names() -> None:
    async with extender(Names, node_cache_capable=True) as asking:
        answer = await asking.post("filter", about_names("b1", "a2", "a1", of=pod(labels={"end": "1"})))
    assert answer == {
        "Nodes": None,
        "NodeNames": ["b1", "a1"],
        "FailedNodes": {"a2": "other end"},
        "FailedAndUnresolvableNodes": {},
        "Error": "",
    }


async def test_keys_match_in_any_case_and_unknown_keys_are_passed_over() -> None:
    request = {
        "pod": pod(),
        "nodes": {"Items": [node("n1")]},
        "nodeNames": None,
        "kubeletVersion": "v1.0",
    }
    async with extender(Pools) as asking:
        assert names_in(await asking.post("filter", request)) == ["n1"]


async def test_no_nodes_are_answered_with_no_nodes() -> None:
    async with extender(Pools) as asking:
        assert names_in(await asking.post("filter", about_nodes())) == []
        assert await asking.post("prioritize", about_nodes()) == []


# --- failures ----------------------------------------------------------------------------------------


class Failing(Plugin):
    def filter(self, state: CycleState, pod: Pod, node: Any) -> Status:
        if pod.name == "exits":
            raise SystemExit(3)
        if pod.name == "error":
            return Status.error("no licence")
        raise KeyError("key")


class FailingScore(Plugin):
    def score(self, state: CycleState, pod: Pod, node: Any) -> Any:
        return Status.unschedulable("no score") if pod.name == "refused" else 101


async def test_exception_is_the_error_of_a_filter_and_the_server_lives(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with extender(Failing) as asking:
        answer = await asking.post("filter", about_nodes(node("n1")))
        assert answer["Error"].startswith("Failing.filter raised KeyError: 'key' at ")
        assert answer["Nodes"] is None
        assert "Failing.filter failed" in caplog.text
        answer = await asking.post("filter", about_nodes(node("n1"), of=pod("exits")))
        assert answer["Error"].startswith("Failing.filter raised SystemExit: 3")
        answer = await asking.post("filter", about_nodes(node("n1"), of=pod("error")))
        assert answer["Error"] == 'running "Failing" filter plugin: no licence'
        await asking.post("filter", about_nodes(node("n1")))
        status, text = await asking.reply("preempt", about_victims({"n1": []}))
        assert (status, "raised KeyError" in text) == (500, True)


async def test_failed_score_is_status_500() -> None:
    async with extender(FailingScore) as asking:
        status, text = await asking.reply("prioritize", about_nodes(node("n1"), of=pod("refused")))
        assert (status, text) == (
            500,
            'running Score plugins: plugin "FailingScore" failed with: no score\n',
        )
        status, text = await asking.reply("prioritize", about_nodes(node("n1")))
        assert status == 500
        assert "returns an invalid score 101 for node n1" in text


@pytest.mark.parametrize(
    ("verb", "body", "said"),
    [
        ("filter", b"{", "the request is not JSON"),
        ("filter", b"\xff\xfe", "the request is not JSON"),
        ("filter", b"[" * 200_000, "the request is not JSON"),
        ("filter", b"[]", "the request must be an object, not a list"),
        ("filter", {"Nodes": {"items": []}}, "the request has no Pod"),
        ("filter", {"Pod": None, "Nodes": {"items": []}}, "the request has no Pod"),
        ("filter", {"Pod": [], "Nodes": None}, "Pod must be an object, not a list"),
        ("filter", {"Pod": {"metadata": 3}, "NodeNames": []}, "Pod: metadata: must be a map"),
        ("filter", {"Pod": {}}, "neither Nodes nor NodeNames"),
        ("filter", {"Pod": {}, "NodeNames": "n1"}, "NodeNames must be a list, not a string"),
        ("filter", {"Pod": {}, "NodeNames": [1]}, "NodeNames[0] must be a string, not 1"),
        ("prioritize", {"Pod": {}, "Nodes": {"items": [{}]}}, "Nodes.items[0].metadata must be an object"),
        ("filter", {"Pod": {}, "Nodes": {"items": [{"metadata": {}}]}}, "Nodes.items[0].metadata.name"),
        (
            "filter",
            {"Pod": {}, "Nodes": {"items": [{"metadata": {"name": "n1"}, "spec": 1}]}},
            "node n1: spec: must be a map",
        ),
        ("preempt", {"Pod": {}}, "neither NodeNameToVictims nor NodeNameToMetaVictims"),
        ("preempt", {"Pod": {}, "NodeNameToMetaVictims": {"n1": 1}}, "NodeNameToMetaVictims.n1 must be"),
        (
            "preempt",
            {"Pod": {}, "NodeNameToMetaVictims": {"n1": {"NumPDBViolations": "1"}}},
            "NumPDBViolations must be an integer",
        ),
    ],
)
async def test_bad_request_is_status_400_with_the_field(verb: str, body: Any, said: str) -> None:
    async with extender(Pools) as asking:
        status, text = await asking.reply(verb, body)
        assert (status, said in text) == (400, True), text
        assert await asking.get("/healthz") == (200, "ok\n")


VALUES: list[Any] = [None, True, -1, 1.5, 2**70, "", "x", [], {}, [None], {"": None}, [[]]]


def spoilt(request: Any, random: Random) -> bytes:
    """Return a request with one value replaced, or with some bytes replaced or cut off."""
    if random.random() < 0.5:
        raw = bytearray(sent(request))
        for _ in range(random.randrange(1, 4)):
            raw[random.randrange(len(raw))] = random.randrange(256)
        return bytes(raw[: random.choice([len(raw), random.randrange(len(raw))])])
    at = copy = json.loads(sent(request))
    while True:
        key = random.choice(list(at) if isinstance(at, dict) else range(len(at)))
        if not at[key] or not isinstance(at[key], dict | list) or random.random() < 0.2:
            at[key] = random.choice(VALUES)
            return sent(copy)
        at = at[key]


async def test_spoilt_requests_are_answered_or_refused_and_the_server_lives() -> None:
    good = {
        "filter": about_nodes(node("n1", taints=["a=b:NoSchedule"]), node("n2"), of=pod(cpu=1)),
        "prioritize": about_nodes(node("n1"), node("n2")),
        "preempt": about_victims({"n1": [pod("a", cpu=1)], "n2": []}),
    }
    random = Random(1)
    statuses = set()
    async with extender(Pools) as asking:
        for _ in range(300):
            for verb, request in good.items():
                body = spoilt(request, random)
                status, text = await asking.reply(verb, body)
                # A list of names in place of null is a request of a scheduler with nodeCacheCapable.
                assert status in (200, 400) or "needs Node objects" in text, (verb, body, text)
                statuses.add((verb, status))
        assert names_in(await asking.post("filter", good["filter"])) == ["n1", "n2"]
    assert statuses >= {(verb, status) for verb in good for status in (200, 400)}


async def test_other_paths_and_methods_are_not_served() -> None:
    async with extender(Names) as asking:
        assert (await asking.reply("prioritize", about_names("n1")))[0] == 404
        assert (await asking.get("/filter"))[0] == 405


async def test_request_over_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "MAX_BODY_BYTES", 1000)
    async with extender(Pools) as asking:
        status, text = await asking.reply("filter", about_nodes(*(node(f"n{i}") for i in range(20))))
        assert (status, text) == (
            413,
            "the request has more than 1000 bytes: use --node-cache-capable for so many nodes\n",
        )
        assert names_in(await asking.post("filter", about_nodes(node("n1")))) == ["n1"]


async def test_names_alone_are_an_error_for_a_plugin_that_reads_nodes() -> None:
    async with extender(Pools) as asking:
        answer = await asking.post("filter", about_names("n1"))
    assert "Pools needs Node objects" in answer["Error"]
    assert "nodeCacheCapable: false" in answer["Error"]


class Usage(Plugin):
    def filter(self, state: CycleState, pod: Pod, node: Any) -> Status:
        return Status.unschedulable("full") if node.requested.get("cpu", 0) else Status.success()


class TableUsage(Plugin):
    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Any:
        return Verdicts.reject_where(nodes.pod_count > 0, Status.unschedulable("full"))


@pytest.mark.parametrize("plugin", [Usage, TableUsage])
async def test_usage_that_is_not_known_is_an_error_and_not_zero(plugin: type) -> None:
    async with extender(plugin) as asking:
        answer = await asking.post("filter", about_nodes(node("n1")))
        assert "reads the usage of nodes by pods" in answer["Error"]
        assert "with --server or --in-cluster" in answer["Error"]


# --- many requests -----------------------------------------------------------------------------------


async def test_node_is_read_once_until_its_version_is_another() -> None:
    async with extender(Pools) as asking:
        for _ in range(3):
            await asking.post("filter", about_nodes(node("n1"), node("n2")))
            await asking.post("prioritize", about_nodes(node("n2")))
        assert asking.server.cache.reads == 2
        answer = await asking.post(
            "filter", about_nodes(node("n1", "2", labels={"pool": "spot"}), node("n2"))
        )
        assert names_in(answer) == ["n2"]
        assert asking.server.cache.reads == 3


class Slow(Plugin):
    """Holds each request until the test lets it go; counts those that run at a time."""

    may_go = threading.Event()
    running = most = calls = 0

    def filter(self, state: CycleState, pod: Pod, node: Any) -> None:
        Slow.calls += 1
        Slow.running += 1
        Slow.most = max(Slow.most, Slow.running)
        Slow.may_go.wait(30)
        Slow.running -= 1


async def test_filters_run_one_at_a_time_and_a_client_that_leaves_is_not_asked_about() -> None:
    Slow.may_go.clear()
    Slow.running = Slow.most = Slow.calls = 0
    async with extender(Slow) as asking:
        first, second, third = (
            asyncio.create_task(asking.post("filter", about_nodes(node("n1")))) for _ in range(3)
        )
        await until(lambda: asking.server.in_flight.count == 1 and asking.server.waiting == 3)
        second.cancel()
        await until(lambda: asking.server.waiting == 2)
        assert (await asking.get("/healthz"))[0] == 200
        Slow.may_go.set()
        await asyncio.gather(first, third)
    assert (Slow.most, Slow.calls) == (1, 2)


async def test_too_many_requests_at_a_time_are_refused() -> None:
    Slow.may_go.clear()
    async with extender(Slow) as asking:
        tasks = [
            asyncio.create_task(asking.post("filter", about_nodes(node("n1"))))
            for _ in range(serving.MAX_REQUESTS)
        ]
        await until(lambda: asking.server.waiting == serving.MAX_REQUESTS)
        status, text = await asking.reply("filter", about_nodes(node("n1")))
        assert (status, "requests are being answered already" in text) == (503, True)
        Slow.may_go.set()
        await asyncio.gather(*tasks)


class Hanging(Plugin):
    begun = threading.Event()
    cancelled = threading.Event()

    async def filter(self, state: CycleState, pod: Pod, node: Any) -> None:
        if pod.name == "hangs":
            Hanging.begun.set()
            try:
                await asyncio.sleep(600)
            finally:
                Hanging.cancelled.set()


async def test_coroutine_ends_when_the_scheduler_no_longer_waits() -> None:
    async with extender(Hanging) as asking:
        task = asyncio.create_task(asking.post("filter", about_nodes(node("n1"), of=pod("hangs"))))
        await until(Hanging.begun.is_set)
        task.cancel()
        await until(Hanging.cancelled.is_set)
        assert names_in(await asking.post("filter", about_nodes(node("n1")))) == ["n1"]


# --- start -------------------------------------------------------------------------------------------


class Picky(Plugin):
    def __init__(self, args: Any, handle: Any) -> None:
        if "zone" not in args:
            raise PluginArgsError("zone: missing")
        self.zone = args["zone"]
        if args.get("break"):
            raise ValueError("broken")

    def filter(self, state: CycleState, pod: Pod, node: Any) -> Status:
        return Status.success() if node.labels.get("zone") == self.zone else Status.unschedulable("zone")


async def test_arguments_are_given_to_the_plugin() -> None:
    async with extender(Picky, args={"zone": "a"}) as asking:
        answer = await asking.post(
            "filter", about_nodes(node("n1", labels={"zone": "a"}), node("n2", labels={"zone": "b"}))
        )
        assert names_in(answer) == ["n1"]


async def test_bad_start_is_refused_with_its_cause() -> None:
    with pytest.raises(PluginArgsError, match=r"Picky refuses its arguments .*zone: missing"):
        async with extender(Picky):
            pass
    with pytest.raises(PluginDefinitionError, match=r"Picky\.__init__ raised ValueError: broken"):
        async with extender(Picky, args={"zone": "a", "break": True}):
            pass


@pytest.mark.parametrize(
    "address", ["8888", "127.0.0.1", "127.0.0.1:http", "127.0.0.1:70000", ":1", "unix:/x"]
)
async def test_address_must_be_host_and_port(address: str) -> None:
    with pytest.raises(ListenError, match="write HOST:PORT"):
        async with extender(Pools, listen=address):
            pass


async def test_plaintext_is_for_loopback_alone() -> None:
    with pytest.raises(ListenError, match="give --tls-cert and --tls-key"):
        async with extender(Pools, listen="0.0.0.0:0"):
            pass


async def test_port_in_use_is_an_error_with_the_address() -> None:
    async with extender(Pools) as asking:
        address = asking.url.removeprefix("http://")
        with pytest.raises(ListenError, match=f"cannot listen at {address}: .*is the address free"):
            async with extender(Pools, listen=address):
                pass


class Calling(Plugin):
    needs = (Need.nodes(),)
    pod_sensitivity = PodSensitivity.NONE

    def filter(self, state: CycleState, pod: Pod, node: Any) -> None:
        if pod.name == "asks":
            self.handle.waiting_pods()
        self.handle.snapshot()


async def test_handle_has_no_host() -> None:
    async with extender(Calling) as asking:
        answer = await asking.post("filter", about_nodes(node("n1"), of=pod("asks")))
        assert "handle.waiting_pods: kube-scheduler offers its extenders no such call" in answer["Error"]
        answer = await asking.post("filter", about_nodes(node("n1")))
        assert "handle.snapshot: an extender without access to the API server" in answer["Error"]


async def test_plugin_is_closed_once_when_the_extender_stops() -> None:
    closed: list[str] = []

    class Closes(Names):
        def close(self) -> None:
            closed.append("closed")

    class ClosesLater(Names):
        async def close(self) -> None:
            closed.append("closed later")

    for cls in (Closes, ClosesLater):
        async with extender(cls, node_cache_capable=True) as asking:
            before = list(closed)
            await asking.post("filter", about_names("a1", of=pod(labels={"end": "1"})))
            assert closed == before
    assert closed == ["closed", "closed later"]


async def test_close_gets_what_open_requests_have_left_of_the_grace(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    let_go = threading.Event()

    class Hangs(Names):
        def close(self) -> None:
            let_go.wait(60.0)

    now_s = iter([100.0, 100.3])
    monkeypatch.setattr(serving, "LEAST_CLOSE_S", 0.1)
    monkeypatch.setattr(serving, "monotonic_s", lambda: next(now_s))
    try:
        async with extender(Hangs, node_cache_capable=True, grace_s=0.35):
            caplog.clear()
        assert caplog.messages == ["Hangs: close has not ended after 0.1 s"]
    finally:
        let_go.set()
