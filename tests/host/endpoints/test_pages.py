"""`/berth/v1` over HTTPS: who may read it, and what goes wrong."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from berth_host.app import Host
from berth_host.cli.rendering.running_plugins import running_plugins_text
from berth_host.endpoints.pages import plugins_answer
from berth_host.model.user import User
from support.holding_world import holding_world
from support.hosts import World, pod
from support.serving import FakeProcess, KnownUsers, Served, served

READER = User(name="reader")
ASKER = User(name="asker")


class Readers(KnownUsers):
    """Reviews as with the default roles, and a user with a role that allows GET on /berth/v1/*."""

    def __init__(self) -> None:
        super().__init__({"reads": READER, "asks": ASKER, "other": User(name="other")})

    async def may(self, user: User, verb: str, path: str) -> bool:
        return await super().may(user, verb, path) or (
            (user.name == "reader" and verb == "get" and path.startswith("/berth/v1/"))
            or (user.name, verb, path) == ("asker", "post", "/berth/v1/fit")
        )


@pytest_asyncio.fixture
async def process(tmp_path: Path) -> AsyncIterator[FakeProcess]:
    async with holding_world("in_process", tmp_path) as world:
        yield FakeProcess(world.host.configuration, world.host)


@pytest_asyncio.fixture
async def port(process: FakeProcess) -> AsyncIterator[Served]:
    async with served(process, Readers()) as port:
        yield port


async def test_pod_and_plugins_are_answered(port: Served) -> None:
    reply = await port.ask("GET", "/berth/v1/pods/default/huge?node=small-0&attempts=5", token="reads")
    assert (reply.status, reply.content_type) == (200, "application/json")
    value = json.loads(reply.body)
    assert (value["pod"], value["state"], value["onNode"]["verdict"]) == (
        "default/huge",
        "unschedulable",
        "rejected",
    )
    reply = await port.ask("GET", "/berth/v1/plugins", token="reads")
    assert {item["name"] for item in json.loads(reply.body)["plugins"]} > {"Holding", "NodeResourcesFit"}


async def test_queue_is_answered_with_parameters(port: Served) -> None:
    reply = await port.ask("GET", "/berth/v1/queue?part=gated&reason=Holding&limit=5", token="reads")
    assert (reply.status, reply.content_type) == (200, "application/json")
    value = json.loads(reply.body)
    assert [item["key"] for item in value["pods"]] == ["default/kept-out"]
    assert (value["parts"]["unschedulable"], value["parts"]["gated"]) == (1, 2)


async def test_question_about_a_pod_is_answered_to_those_who_may_post(port: Served) -> None:
    manifest = json.dumps(pod("new", cpu="1"))
    reply = await port.ask("POST", "/berth/v1/fit", token="asks", data=manifest)
    assert (reply.status, reply.content_type) == (200, "application/json"), reply.body
    value = json.loads(reply.body)
    assert (value["pod"], value["node"], value["feasible"], value["nodes"]) == (
        "default/new",
        "small-1",
        2,
        3,
    )
    assert value["rejections"][0]["plugin"] == "TaintToleration"
    assert value["answeredAt"].startswith("2026-01-01T")
    assert value["gates"] == []
    kept_out = json.dumps(pod("late", labels={"gate": "closed"}))
    value = json.loads((await port.ask("POST", "/berth/v1/fit", token="asks", data=kept_out)).body)
    assert (value["node"], [gate["plugin"] for gate in value["gates"]]) == ("small-0", ["Holding"])
    reply = await port.ask("POST", "/berth/v1/fit", token="reads", data=manifest)
    assert reply.status == 403


async def test_question_about_a_pod_of_the_cluster_has_a_row_for_every_node(port: Served) -> None:
    reply = await port.ask("GET", "/berth/v1/pods/default/web/fit?watch=true", token="reads")
    assert (reply.status, reply.content_type) == (200, "application/json"), reply.body
    value = json.loads(reply.body)
    rows = {row[0]: dict(zip(value["columns"], row, strict=True)) for row in value["nodes"]}
    assert (sorted(rows), value["feasible"]) == (["small-0", "small-1", "tainted"], 2)
    assert (value["on"], value["node"]) == ("small-0", "small-0")
    assert (rows["small-0"]["verdict"], rows["small-1"]["verdict"]) == ("best", "fits")
    assert rows["small-0"]["score"] == sum(rows["small-0"]["scores"]) > rows["small-1"]["score"]
    assert len(rows["small-1"]["scores"]) == len(value["scorePlugins"]) > 3
    assert (rows["tainted"]["verdict"], rows["tainted"]["plugin"]) == ("rejected", "TaintToleration")
    assert (rows["tainted"]["score"], "untolerated taint" in rows["tainted"]["reason"]) == (None, True)


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"", 400, "the body is not a JSON object"),
        (b"[1]", 400, "the body is not a JSON object"),
        (b'{"kind":"Node","apiVersion":"v1"}', 400, "must be a Pod"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, 400, "the body is not a JSON object"),
        (b" " * (256 * 1024 + 1), 413, "more than 262144 bytes"),
    ],
    ids=["empty", "list", "node", "deep", "large"],
)
async def test_body_that_is_no_pod_is_refused(port: Served, body: bytes, status: int, said: str) -> None:
    reply = await port.ask("POST", "/berth/v1/fit", token="asks", data=body)
    assert (reply.status, said in reply.body) == (status, True), reply.body


async def test_drain_is_answered_and_an_unknown_node_is_not_found(port: Served) -> None:
    value = json.loads((await port.ask("GET", "/berth/v1/nodes/small-1/drain", token="reads")).body)
    assert [(item["pod"], item["to"]) for item in value["moves"]] == [("default/old", "small-0")]
    assert (value["blocked"], value["moves"][0]["round"], value["notes"]) == (0, 1, [])
    assert (value["unmanaged"], value["moves"][0]["hasController"]) == (1, False)
    reply = await port.ask("GET", "/berth/v1/nodes/small-9/drain", token="reads")
    assert (reply.status, "there is no node small-9: did you mean small-" in reply.body) == (404, True)


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize(
    ("path", "token", "status", "said"),
    [
        ("/berth/v1/plugins", "", 403, 'User "system:anonymous" cannot get path "/berth/v1/plugins"'),
        ("/berth/v1/plugins", "other", 403, 'User "other" cannot get path'),
        ("/berth/v1/plugins", "wrong", 401, "Unauthorized"),
        ("/berth/v1/pods/default/none", "reads", 404, "no pod default/none is known here"),
        ("/berth/v1/pods/default/elsewhere", "reads", 404, "its schedulerName is 'other'"),
        ("/berth/v1/pods/default/huge?attempts=9", "reads", 400, "attempts=9 is not a number from 1 to 5"),
        ("/berth/v1/pods/default/huge?attempts=-1", "reads", 400, "attempts=-1 is not"),
        (f"/berth/v1/pods/default/huge?attempts={'9' * 5000}", "reads", 400, "attempts=9"),
        ("/berth/v1/pods/default", "reads", 404, "page not found"),
        ("/berth/v1/podgroups/default/none", "reads", 404, "no podgroup default/none is known here"),
        ("/berth/v1/podgroups/default/none?kind=job", "reads", 400, "kind=job is none of podgroup, "),
        ("/berth/v1/podgroups/default", "reads", 404, "page not found"),
        ("/berth/v1/queue", "other", 403, 'User "other" cannot get path'),
        ("/berth/v1/queue?limit=0", "reads", 400, "limit=0 is not a number from 1 to 10000"),
        ("/berth/v1/queue?limit=x", "reads", 400, "limit=x is not"),
        (f"/berth/v1/queue?limit={'9' * 5000}", "reads", 400, "limit=9"),
        ("/berth/v1/queue?offset=-1", "reads", 400, "offset=-1 is not a number from 0 to 10000000"),
        ("/berth/v1/queue?order=age", "reads", 400, "order=age is none of oldest, newest, "),
        ("/berth/v1/pods/default/none/fit", "reads", 404, "no pod default/none is known here"),
        ("/berth/v1/pods/default/elsewhere/fit", "reads", 400, "has the schedulerName 'other'"),
        ("/berth/v1/pods/default/huge/fits", "reads", 404, "page not found"),
        ("/berth/v1/pods/default/huge/fit", "other", 403, 'User "other" cannot get path'),
        ("/berth/v1/queue?part=pool", "reads", 400, "part=pool is none of active, backoff, "),
        ("/berth/v1/nothing", "reads", 404, "page not found"),
    ],
)
async def test_error_answers_name_the_problem(
    port: Served, path: str, token: str, status: int, said: str
) -> None:
    reply = await port.ask("GET", path, token=token)
    assert reply.status == status
    assert said in reply.body.replace('\\"', '"')


async def test_pages_refuse_methods_that_write(port: Served) -> None:
    reply = await port.ask("POST", "/berth/v1/plugins", token="reads")
    assert reply.status == 403


async def test_standby_replica_refers_to_the_leader(port: Served, process: FakeProcess) -> None:
    process.is_leading = False
    reply = await port.ask("GET", "/berth/v1/pods/default/huge", token="reads")
    assert reply.status == 503
    assert "it is on standby, and only the leader schedules pods" in reply.body
    assert (await port.ask("GET", "/berth/v1/plugins", token="reads")).status == 200
    process.host = None
    reply = await port.ask("GET", "/berth/v1/plugins", token="reads")
    assert (reply.status, "just been started" in reply.body) == (503, True)


def plugin(host: Host, name: str) -> dict[str, Any]:
    found = [item for item in plugins_answer(host)["plugins"] if item["name"] == name]
    assert len(found) == 1
    value: dict[str, Any] = found[0]
    return value


async def test_plugin_in_process_has_points_and_calls(tmp_path: Path) -> None:
    async with holding_world("in_process", tmp_path) as world:
        found = plugin(world.host, "Holding")
        assert (found["runs"], found["available"], found["attachment"]) == ("inProcess", True, None)
        assert found["profiles"] == [
            {
                "schedulerName": "default-scheduler",
                "points": ["preEnqueue", "permit"],
                "failing": False,
                "declares": {
                    "nodeMode": "NAMES",
                    "needs": [],
                    "events": None,
                    "podSensitivity": "NONE",
                    "dependsOn": None,
                    "normalization": "PLUGIN",
                    "readsShared": [],
                    "accounts": [],
                },
            }
        ]
        calls = {item["call"]: item["calls"] for item in found["calls"]}
        assert calls["Permit"] == 2


async def test_attached_plugin_is_listed_with_its_place_and_with_the_reason_of_its_loss(
    tmp_path: Path,
) -> None:
    async with holding_world("socket", tmp_path) as world:
        found = plugin(world.host, "Holding")
        assert (found["runs"], found["available"], found["required"]) == ("attached", True, True)
        place = found["attachment"]
        assert (place["place"], place["state"]) == (f"unix://{tmp_path}/p.sock", "Active")
        assert (place["transport"], bool(place["instance"])) == ("framed", True)
        assert (place["contract"], "frames" in place["features"]) == ("1.0", True)
        rows = running_plugins_text(plugins_answer(world.host)).splitlines()
        assert rows[1].split()[:4] == ["Holding", place["place"], "Active", "framed"]
        assert found["policies"] == {
            "preEnqueue": {"deadlineMs": 10000.0, "policy": None},
            "permit": {"deadlineMs": 10000.0, "policy": "Fail"},
        }
        calls = {item["call"]: item for item in found["calls"]}
        assert calls["Permit"]["calls"] == 2
        assert calls["Permit"]["bytesSent"] > 0


async def test_plugin_that_was_never_attached_is_listed_with_the_reason(tmp_path: Path) -> None:
    configuration = (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles:\n- plugins: {permit: {enabled: [{name: Away}]}}\n"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n"
        f"plugins: [{{name: Away, endpoint: 'unix://{tmp_path}/nobody.sock'}}]\n"
    )
    async with World([pod("web")], configuration=configuration) as world:
        found = plugin(world.host, "Away")
        assert not found["available"]
        assert found["attachment"]["state"] in ("BackOff", "Connecting")
        assert found["attachment"]["reason"]
        assert found["attachment"]["transport"] == ""
        assert (found["attachment"]["contract"], found["attachment"]["features"]) == (None, [])
