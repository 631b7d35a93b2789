"""Which plugins try their arguments before a new configuration is used, and what counts as a refusal."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from berth_host.attach import identity_calls
from berth_host.attach.argument_check import changed_places, try_place
from berth_host.attach.configured_places import Place
from berth_host.attach.interfaces import AttachSeams
from berth_host.attach.state import Refusal
from berth_sdk.plugin.v1 import identity_pb2
from berth_sdk.wire.requests import TRIAL
from support.attached import ClusterState, Witness, at_socket, wanted
from support.scripted_plugin import ScriptedError, ScriptedPlugin, descriptor

LIMIT = {"limit": 1}


def seams() -> AttachSeams:
    return AttachSeams(state=ClusterState(), listener=Witness())


def knowing_trials() -> ScriptedPlugin:
    plugin = ScriptedPlugin(descriptor("Demo", "FILTER"))
    plugin.features = (TRIAL,)  # type: ignore[misc]  # of this one
    return plugin


def place(endpoint: str = "unix:///p.sock", **args: object) -> Place:
    return Place(endpoint=endpoint, plugins=(wanted("A", args=LIMIT), wanted("B", args=args)))


def names(places: list[Place]) -> list[tuple[str, list[str]]]:
    return [(place.title, [plugin.name for plugin in place.plugins]) for place in places]


def test_plugins_whose_arguments_differ_are_tried() -> None:
    assert names(list(changed_places([place(tier=1)], [place(tier=1)]))) == []
    assert names(list(changed_places([place(tier=2)], [place(tier=1)]))) == [("unix:///p.sock", ["B"])]
    assert names(list(changed_places([place()], []))) == [("unix:///p.sock", ["A", "B"])]


def test_a_plugin_at_another_place_is_tried_there() -> None:
    moved = list(changed_places([place("unix:///q.sock", tier=1)], [place(tier=1)]))
    assert names(moved) == [("unix:///q.sock", ["A", "B"])]


def test_a_plugin_in_another_profile_is_tried() -> None:
    one = wanted("A", args=LIMIT)
    more = replace(one, profiles=(*one.profiles, replace(one.profiles[0], scheduler_name="other")))
    before, after = (Place(endpoint="unix:///p.sock", plugins=(plugin,)) for plugin in (one, more))
    assert names(list(changed_places([after], [before]))) == [("unix:///p.sock", ["A"])]


async def test_an_absent_instance_refuses_nothing(tmp_path: Path) -> None:
    assert await try_place(at_socket(tmp_path / "p.sock", "Demo"), seams()) is None
    folder = Place(endpoint=f"unix://{tmp_path}", is_open=True, plugins=(wanted("Demo"),))
    assert await try_place(folder, seams()) is None
    assert await try_place(Place(command=("/nowhere",), plugins=(wanted("Demo"),)), seams()) is None


async def test_an_instance_that_cannot_be_introduced_is_not_asked_to_configure(tmp_path: Path) -> None:
    plugin, path = knowing_trials(), tmp_path / "p.sock"
    async with plugin.serving(path):
        assert await try_place(at_socket(path, "Other"), seams()) is None
    assert plugin.requests("Configure") == []


@pytest.mark.parametrize("folder", [False, True])
async def test_a_refusal_has_the_words_of_the_plugin(tmp_path: Path, *, folder: bool) -> None:
    plugin, path = knowing_trials(), tmp_path / "p.sock"
    plugin.on("Configure", lambda _: identity_pb2.ConfigureResponse(error="no such tier"))
    asked = at_socket(path, "Demo")
    if folder:
        asked = replace(asked, endpoint=f"unix://{tmp_path}", is_open=True)
    async with plugin.serving(path):
        refusal = await try_place(asked, seams())
    want = Refusal(plugins="Demo", place=f"unix://{path}", reason="refuses its arguments: no such tier")
    assert refusal == want
    (request,) = plugin.requests("Configure")
    assert (request.trial, request.HasField("handle")) == (True, False)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (grpc.StatusCode.INTERNAL, "cannot be configured (INTERNAL: scripted)"),
        (grpc.StatusCode.INVALID_ARGUMENT, "refuses its configuration: scripted"),
    ],
)
async def test_a_configure_that_fails_is_a_refusal(
    tmp_path: Path, code: grpc.StatusCode, reason: str
) -> None:
    plugin, path = knowing_trials(), tmp_path / "p.sock"

    def fail(_: object) -> object:
        raise ScriptedError(code)

    plugin.on("Configure", fail)
    async with plugin.serving(path):
        refusal = await try_place(at_socket(path, "Demo"), seams())
    assert refusal == Refusal(plugins="Demo", place=f"unix://{path}", reason=reason)


async def test_a_configure_without_an_answer_is_a_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity_calls, "CONFIGURE_S", 0.05)
    plugin, path = knowing_trials(), tmp_path / "p.sock"
    plugin.on("Configure", lambda _: asyncio.Event().wait())
    async with plugin.serving(path):
        refusal = await try_place(at_socket(path, "Demo"), seams())
    assert refusal is not None
    assert refusal.reason.startswith("did not answer Configure within 0.05 s")
