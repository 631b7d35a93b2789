"""Every answer recorded from kube-scheduler's secure port, asked again of ours over HTTPS.

Differences that are meant: the component's name, its version (the recording is of 1.36, which is emulated),
the language's version, and the flags' values, which are put in from the recording.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from berth_host import log
from berth_host.config.loading import load_configuration
from berth_host.endpoints.options import ServingOptions
from support.hosts import World, node, pod
from support.serving import FakeProcess, FakeSettings, KnownUsers, Reply, Served, recorded, served

RECORDED = recorded("endpoints")
USERS = {"none": "system:anonymous", "authenticatedWithoutRights": "someuser"} | RECORDED["users"]
MASKED_LINES = ("Started", "Up", "Python version", "Binary version")


def configuration_text() -> str:
    """Return the configuration with which `/configz` was recorded, as a file's text."""
    answers = RECORDED["endpoints"]["/configz"]["answers"]
    shown = next(
        one["answer"]["json"] for one in answers if "componentconfig" in one["answer"].get("json", {})
    )
    return json.dumps(shown["componentconfig"])


def flags() -> list[tuple[str, str]]:
    variant = RECORDED["variants"]["/flagz Accept: application/json;as=Flagz;v=v1beta1;g=config.k8s.io"]
    # A mask for host names has struck in the middle of a word.
    return [
        (name.replace("<host>odule", "vmodule"), value) for name, value in variant["json"]["flags"].items()
    ]


@pytest.fixture(autouse=True)
def kept_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore the log level, which is global."""
    monkeypatch.setattr(log, "change_level", lambda _: None)


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    async with World([node("n1"), pod("a"), pod("big", cpu="40")], configuration="") as world:
        yield await world.settle()


@pytest_asyncio.fixture
async def process(world: World) -> FakeProcess:
    loaded = load_configuration(configuration_text(), source="recorded.yaml", emulated_version="1.36")
    return FakeProcess(loaded, world.host)


@pytest_asyncio.fixture
async def port(process: FakeProcess) -> AsyncIterator[Served]:
    settings = FakeSettings(serving=ServingOptions(), flags=flags())
    async with served(process, KnownUsers(), settings) as port:
        yield port


def token(credentials: str) -> str:
    return "" if credentials == "none" else credentials


def ours(value: str) -> str:
    return (
        value.replace("kube-scheduler statusz", "berth statusz")
        .replace("kube-scheduler flagz", "berth flagz")
        .replace("Go version", "Python version")
        .replace("<host>odule", "vmodule")
    )


def masked(body: str) -> str:
    """Return the answer without values that differ at every start."""
    lines = [line for line in body.split("\n") if not line.startswith(MASKED_LINES)]
    return "\n".join(lines)


def check(reply: Reply, wanted: dict[str, Any], credentials: str = "clusterAdmin") -> None:
    """Assert that the reply equals the recorded one."""
    assert (reply.status, reply.content_type) == (wanted["status"], wanted["contentType"])
    if "body" in wanted:
        assert masked(reply.body) == masked(ours(wanted["body"]))
    elif "json" in wanted:
        text = (
            json.dumps(wanted["json"]).replace("<user>", USERS.get(credentials, "")).replace("<host>o", "vmo")
        )
        found, expected = json.loads(reply.body), json.loads(text)
        if expected["kind" if "kind" in expected else "componentconfig"] in ("Statusz", "Flagz"):
            expected["metadata"] = {"name": "berth"}
            for varying in ("startTime", "uptimeSeconds", "goVersion", "binaryVersion"):
                assert (varying in expected) == (varying in found)
                expected.pop(varying, None), found.pop(varying, None)
        assert found == expected
    elif wanted["shape"] == "empty":
        assert reply.body == ""
    elif wanted["shape"].startswith("Prometheus"):
        names = [line.split()[2] for line in reply.body.splitlines() if line.startswith("# TYPE")]
        assert names == sorted(names)
    elif wanted["shape"] == "as GET":
        assert reply.body
    else:
        assert wanted["shape"] in ("pprof index page (HTML)", "pprof text profile")
        assert reply.body


@pytest.mark.sampled(every=5)
@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(RECORDED["endpoints"]))
async def test_every_path_answers_each_user_as_recorded(port: Served, path: str) -> None:
    found = RECORDED["endpoints"][path]
    for group in found["answers"]:
        for credentials in group["credentials"]:
            reply = await port.ask("GET", path, token=token(credentials))
            check(reply, group["answer"], credentials)
    headers = (await port.ask("GET", path, token="clusterAdmin")).headers
    for name in ("Cache-Control", "Content-Type", "X-Content-Type-Options"):
        assert headers.get(name) == found["headersForClusterAdmin"].get(name), name
    check(await port.ask("GET", path, token="wrong"), RECORDED["wrongToken"])


@pytest.mark.sampled(every=4)
@pytest.mark.slow
@pytest.mark.parametrize("variant", sorted(RECORDED["variants"]))
async def test_other_methods_and_forms_answer_as_recorded(port: Served, variant: str) -> None:
    first, _, rest = variant.partition(" ")
    if first.startswith("/"):
        method, path, headers = "GET", first, {"Accept": rest.removeprefix("Accept: ")}
    else:
        method, path, headers = first, rest, {}
    data = b"2" if method == "PUT" else None
    reply = await port.ask(method, path, token="clusterAdmin", headers=headers, data=data)
    check(reply, RECORDED["variants"][variant])


async def test_a_replica_that_does_not_lead_answers_as_recorded(port: Served, process: FakeProcess) -> None:
    process.is_leading = False
    for path, wanted in RECORDED["follower"].items():
        check(await port.ask("GET", path, token="clusterAdmin"), wanted)


@pytest.mark.parametrize("elects", [False, True])
async def test_endpoints_without_an_api_server_answer_as_recorded(world: World, elects: bool) -> None:
    process = FakeProcess(world.host.configuration, world.host, is_connected=False)
    if not elects:
        process.elector = None
    users = KnownUsers()
    users.is_reachable = False
    async with served(process, users) as port:
        key = f"leader election {'on' if elects else 'off'}"
        for path, wanted in RECORDED["apiServerUnreachable"][key].items():
            check(await port.ask("GET", path), wanted)


async def test_endpoints_without_leader_election_and_profiling_answer_as_recorded(world: World) -> None:
    text = (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "enableProfiling: false\n"
    )
    process = FakeProcess(load_configuration(text, source="test.yaml"), world.host, elector=None)
    async with served(process, KnownUsers()) as port:
        for path, answer in RECORDED["withoutLeaderElection"].items():
            reply = await port.ask("GET", path, token="clusterAdmin")
            assert (reply.status, reply.body) == (answer["status"], answer["body"])
        for path, status in RECORDED["enableProfilingFalse"].items():
            assert (await port.ask("GET", path, token="clusterAdmin")).status == status, path
