"""The host's answer to a handshake: final values only, and HandleService for the plugins that ask for it."""

from __future__ import annotations

from dataclasses import replace

from berth_host.attach.configure import accept, refuse
from berth_host.attach.handshake import Introduction, read_handshake
from berth_host.attach.wanted import Place, WantedPlugin
from berth_host.rpc.call_rules import PointPolicy
from berth_sdk.plugin.v1 import identity_pb2
from google.protobuf.json_format import MessageToDict
from google.protobuf.timestamp_pb2 import Timestamp
from support.attached import wanted
from support.scripted_plugin import descriptor


def introduced(place: Place, *plugins: identity_pb2.PluginDescriptor) -> Introduction:
    reply = identity_pb2.HandshakeResponse(
        supported=[identity_pb2.ContractVersion(major=1)],
        plugins=plugins,
        instance_id="i",
        started_at=Timestamp(seconds=1),
    )
    return read_handshake(reply, place)


def one(plugin: WantedPlugin, message: identity_pb2.PluginDescriptor) -> identity_pb2.PluginArgs:
    place = Place(endpoint="unix:///p.sock", plugins=(plugin,))
    request = accept("a-1", place, introduced(place, message), lambda _: None)
    (args,) = request.plugins
    return args


def test_points_are_those_that_both_sides_name() -> None:
    args = one(wanted("Demo", "filter", "permit"), descriptor("Demo", "FILTER", "SCORE"))
    assert list(args.enabled) == [identity_pb2.EXTENSION_POINT_FILTER]


def test_normalize_score_comes_with_score() -> None:
    args = one(wanted("Demo", "score"), descriptor("Demo", "SCORE", "NORMALIZE_SCORE"))
    assert identity_pb2.EXTENSION_POINT_NORMALIZE_SCORE in args.enabled


def test_deadlines_are_clamped_by_the_operator() -> None:
    message = descriptor("Demo", "FILTER", "PRE_BIND", "BIND")
    message.deadlines["filter"].FromSeconds(5)
    message.deadlines["preBind"].FromSeconds(5)
    plugin = replace(wanted("Demo"), points={"filter": PointPolicy(0.1)})
    args = one(plugin, message)
    got = {point: duration.ToMilliseconds() for point, duration in args.deadlines.items()}
    assert got == {"filter": 100, "preBind": 5000, "bind": 10_000}


def test_arguments_travel_as_they_are_configured() -> None:
    args = one(wanted("Demo", args={"limit": 3, "names": ["a"]}), descriptor("Demo", "FILTER"))
    assert MessageToDict(args.args) == {"limit": 3, "names": ["a"]}
    assert not one(wanted("Demo"), descriptor("Demo", "FILTER")).HasField("args")


def test_concurrency_is_the_smaller_of_both_wishes() -> None:
    plugin = replace(wanted("Demo"), max_concurrency=4)
    assert one(plugin, descriptor("Demo", "BIND", max_concurrency=9)).max_concurrency == 4
    assert one(plugin, descriptor("Demo", "BIND", max_concurrency=2)).max_concurrency == 2
    assert one(wanted("Demo"), descriptor("Demo", "BIND")).max_concurrency == 64


def test_handle_service_is_granted_to_plugins_that_ask_for_it() -> None:
    place = Place(endpoint="unix:///p.sock", plugins=(wanted("A"), wanted("B")))
    both = introduced(place, descriptor("A", "FILTER", handle_client=True), descriptor("B", "FILTER"))
    asked: list[frozenset[str]] = []

    def grant(plugins: frozenset[str]) -> tuple[str, str]:
        asked.append(plugins)
        return "unix:///h.sock", "secret"

    request = accept("a-1", place, both, grant)
    assert asked == [frozenset({"A"})]
    assert (request.handle.target, request.handle.token) == ("unix:///h.sock", "secret")
    nobody = introduced(place, descriptor("B", "FILTER"))
    assert not accept("a-1", place, nobody, grant).HasField("handle")


def test_refusal_says_why() -> None:
    request = refuse("a-1", "not today")
    assert (request.accepted, request.reason, request.attachment_id) == (False, "not today", "a-1")
