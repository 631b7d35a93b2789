"""Secrets are in none of the places where a host shows what it does: each of them is searched for there.

A whole host with a child and a plugin behind a credential, both with the way back, lives through good times
and bad.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import structlog
from berth_host import log
from berth_host.attach import retrying
from berth_host.config.loading import load_configuration
from berth_host.endpoints.pages import plugins_answer
from berth_host.errors.plugins import PluginLoadError
from berth_host.log.hidden import MASK
from berth_host.metrics.exposition import Exposition
from berth_sdk.cycle_state import CycleState
from berth_sdk.errors import HandleError
from berth_sdk.extension_points import Plugin
from berth_sdk.handle import Handle
from berth_sdk.pod import Pod
from berth_sdk.serve.server import PluginServer
from berth_sdk.status import Status
from berth_sdk.tables import NodeTable, NodeView
from google.protobuf.text_encoding import CEscape
from support.hosts import World, node, pod
from support.places import ROOT
from support.plugin_processes import plugin_environment, serve_command
from support.waiting import PATIENCE_S, until

CREDENTIAL = "needle-in-a-credential-file"
QUOTED = 'needle "with" quotes, a\\\\slash and wörds'


class Asks(Plugin):
    """Asks its host back at each Filter."""

    asked: ClassVar[list[object]] = []
    handles: ClassVar[list[Handle]] = []

    def __init__(self, args: object, handle: Handle) -> None:
        self.handle = handle
        self.handles.append(handle)

    def filter(self, state: CycleState, pod: Pod, node: Any) -> None:
        self.asked.append(self.handle.waiting_pods())


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """Everything that is logged, by host and SDK, down to each attempt."""
    text = io.StringIO()
    monkeypatch.setattr("sys.stderr", text)
    before = structlog.get_config()
    log.configure("DEBUG", "json")
    handler = logging.StreamHandler(text)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield text
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
        structlog.configure(**before)


def configuration(folder: Path) -> str:
    listed = "".join(f"      - name: {name}\n" for name in ("Asks", "Echo"))
    command = json.dumps(list(serve_command("support.echo_plugin:Echo")))
    return (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        f"profiles:\n- plugins:\n    multiPoint:\n      enabled:\n{listed}"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\nplugins:\n"
        f"- {{name: Asks, endpoint: 'unix://{folder}/p.sock', credentialFile: {folder}/credential,"
        " required: true, points: {filter: {deadline: 10s}}}\n"
        f"- {{name: Echo, command: {command}, required: true}}\n"
    )


async def shown(world: World) -> str:
    """Return all output of the host except its log."""
    host = world.host
    places = host.attachments.attached_places
    metrics = await Exposition(lambda: host.metrics.sources, process=False).text()
    parts: list[object] = [metrics.decode(), places.conditions()]
    for place in places.places:
        parts += [place.place, place.child, place.link, place.peer, place, place.task]
    parts += [
        host.handle_server,
        vars(host.handle_server.grants),
        [repr(task) for task in asyncio.all_tasks()],
    ]
    return "\n".join(map(repr, parts))


@pytest.mark.slow
async def test_no_secret_is_shown_anywhere(
    tmp_path: Path, said: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrying, "FIRST_S", 0.05)
    monkeypatch.setattr(retrying, "MAX_S", 0.1)
    monkeypatch.setenv("PYTHONPATH", plugin_environment()["PYTHONPATH"])
    (tmp_path / "credential").write_text("wrong-needle")
    text = configuration(tmp_path)
    needles = {"the credential": CREDENTIAL, "a wrong credential": "wrong-needle"}
    found = [json.dumps(load_configuration(text, source="t").berth.to_json())]
    server = PluginServer({"Asks": Asks}, CREDENTIAL)
    server.listen(f"unix://{tmp_path}/p.sock")
    try:
        async with World([node("n0"), pod("web")], configuration=text) as world:
            places = world.host.attachments.attached_places.places
            found.append(await shown(world))
            (tmp_path / "credential").write_text(CREDENTIAL)
            await until(lambda: all(place.link is not None for place in places))
            await world.host.attachments.attached_places.settled(60)
            await world.settle()
            assert world.node_of("web") == "n0"
            assert Asks.asked
            needles |= secrets_of(world)
            found.append(await shown(world))
            link = places[0].link
            assert link is not None
            world.host.handle_server.revoke(link.identity.attachment_id)
            with pytest.raises(HandleError) as caught:
                await asyncio.to_thread(Asks.handles[-1].waiting_pods)
            found += [str(caught.value), repr(caught.value), repr(server.instance.connection)]
            await asyncio.to_thread(server.stop, 0.5)
            await until(lambda: places[0].link is None)
            found.append(await shown(world))
    finally:
        await asyncio.to_thread(server.stop, 0.5)
    found.append(said.getvalue())
    assert len(needles) == 6
    for what, needle in needles.items():
        assert len(needle) > 10
        assert [text[:200] for text in found if needle in text] == [], what
    assert "audit.call_refused" in found[-1]
    assert "does not accept the credential" in found[-1]


def showing(folder: Path, way: str) -> str:
    """Two plugins that show the debug print of every message: a child, and one behind a credential."""
    listed = "".join(f"      - name: {name}\n" for name in ("Child", "Guarded"))
    child = json.dumps([sys.executable, "-m", "support.prints_messages", "Child", way, f"{folder}/secrets"])
    return (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        f"profiles:\n- plugins:\n    multiPoint:\n      enabled:\n{listed}"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 60s\nplugins:\n"
        f"- {{name: Guarded, endpoint: 'unix://{folder}/p.sock', credentialFile: {folder}/credential}}\n"
        f"- {{name: Child, command: {child}}}\n"
    )


@pytest.mark.sampled(every=3)
@pytest.mark.slow
@pytest.mark.parametrize("way", ["answers", "Handshake", "Configure", "arguments", "exit"])
async def test_debug_print_of_a_message_in_what_a_plugin_says_shows_no_secret(
    way: str, tmp_path: Path, said: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrying, "FIRST_S", 0.05)
    monkeypatch.setattr(retrying, "MAX_S", 0.1)
    monkeypatch.setenv("PYTHONPATH", plugin_environment()["PYTHONPATH"])
    (tmp_path / "credential").write_text(QUOTED)
    guarded = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "support.prints_messages", "Guarded", way, str(tmp_path / "secrets")),
        f"unix://{tmp_path}/p.sock",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert guarded.stdout is not None
        await guarded.stdout.readline()
        world = World([node("n0"), pod("web")], configuration=showing(tmp_path, way))
        try:
            async with world:
                for place in world.host.attachments.attached_places.places:
                    await asyncio.wait_for(place.tried.wait(), PATIENCE_S)
                await world.settle()
                found = [await shown(world), json.dumps(plugins_answer(world.host), ensure_ascii=False)]
                found.append(world.message_of("web"))
                found += [f"{event}" for event in world.server.events.recent]
        except PluginLoadError as err:
            found = [str(err)]
            await world.host.stop()
    finally:
        if guarded.returncode is None:
            guarded.kill()
        await guarded.wait()
    found.append(said.getvalue())
    needles = set((tmp_path / "secrets").read_text().splitlines())
    assert len(needles) >= (3 if way == "Handshake" else 5)
    assert QUOTED in needles
    written = {json.dumps(one, ensure_ascii=is_ascii)[1:-1] for one in needles for is_ascii in (True, False)}
    written |= {
        CEscape(one, as_utf8=as_utf8)  # type: ignore[arg-type]  # it takes text too
        for one in needles
        for as_utf8 in (True, False)
    }
    for needle in needles | written:
        assert [text[:200] for text in found if needle in text] == []
    assert MASK in found[-1]
    # A child that ended says no more than its last line.
    assert way == "exit" or any(MASK in text for text in found[:-1])


class Says(Plugin):
    """Rejects each pod at the point `args["at"]`, with its password as the reason."""

    def _said(self, point: str) -> Status:
        text = f"asked with {self.args['password']}"
        return Status.unschedulable(text) if self.args["at"] == point else Status.success()

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        return self._said("pre_filter")

    def filter(self, state: CycleState, pod: Pod, node: NodeView) -> Status:
        return self._said("filter")

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        return self._said("reserve")

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        return self._said("permit")

    def pre_bind(self, state: CycleState, pod: Pod, node_name: str, patched: object) -> Status:
        return self._said("pre_bind")


@pytest.mark.parametrize("at", ["pre_filter", "filter", "reserve", "permit", "pre_bind"])
@pytest.mark.parametrize("where", ["in process", "served"])
async def test_reason_is_shown_without_the_secrets_of_the_arguments(
    where: str, at: str, tmp_path: Path
) -> None:
    password = "needle-of-the-arguments"
    with PluginServer({"Says": Says}) as server:
        server.listen(f"unix:{tmp_path}/p.sock")
        place = (
            f"endpoint: 'unix://{tmp_path}/p.sock'"
            if where == "served"
            else "inProcess: 'host.app.test_secrets:Says'"
        )
        text = (
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n"
            "- plugins: {multiPoint: {enabled: [{name: Says}]}}\n"
            f"  pluginConfig: [{{name: Says, args: {{password: {password}, at: {at}}}}}]\n"
            "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 60s\n"
            f"plugins:\n- {{name: Says, {place}}}\n"
        )
        async with World([node("n0"), pod("web")], configuration=text) as world:
            await world.settle()
            assert world.node_of("web") == ""
            shown = [world.message_of("web"), *(f"{event}" for event in world.server.events.recent)]
    assert f"asked with {MASK}" in shown[0]
    assert [text for text in shown if password in text] == []


def secrets_of(world: World) -> dict[str, str]:
    """Every secret that the host holds while both are attached."""
    grants: Any = world.host.handle_server.grants
    tokens = [grant.token.decode() for grant in vars(grants)["_grants"].values()]
    (child,) = [one.child for one in world.host.attachments.attached_places.places if one.child]
    assert len(tokens) == 2
    return {
        "a token": tokens[0],
        "another token": tokens[1],
        "a child's credential": child.credential,
        "a child's cookie": vars(child)["_cookie"],
    }


def test_secrets_are_compared_in_constant_time() -> None:
    """In attaching and on the way back: those of tokens, credentials and cookies."""
    root = ROOT
    word = r"(?:token|credential|cookie)\b"
    secret = re.compile(rf"{word}\s*(?:==|!=)|(?:==|!=)\s*[\w.]*{word}")
    compared, plain = set(), []
    for top in ("host/berth_host/attach", "host/berth_host/handle", "sdk/berth_sdk/serve"):
        for path in (root / top).rglob("*.py"):
            source = path.read_text()
            if "hmac.compare_digest(" in source:
                compared.add(path.relative_to(root).as_posix())
            plain += [f"{path.name}: {line.strip()}" for line in source.splitlines() if secret.search(line)]
    plain = [line for line in plain if "MEMORY_TOKEN" not in line]  # a reservation's, which is no secret
    assert compared == {
        "host/berth_host/attach/child.py",
        "host/berth_host/handle/grants.py",
        "sdk/berth_sdk/serve/instance.py",
    }
    assert plain == []
