"""The host's answer to a handshake: effective values, and HandleService for the plugins that use it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from berth_host.attach.configure import accept, lacks_way_back, refuse, way_back_of
from berth_host.attach.configured_places import Place, WantedPlugin
from berth_host.attach.handshake import ArgumentsRefusedError, Introduction, read_handshake
from berth_host.attach.interfaces import WayBack
from berth_host.config.berth.configuration import TlsFiles
from berth_host.rpc.call_rules import PointPolicy
from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.plugin.v1 import identity_pb2
from berth_sdk.wire.certificate import FEATURE as HANDLE_TLS
from berth_sdk.wire.message_limit import DEFAULT_BYTES
from google.protobuf.json_format import MessageToDict
from google.protobuf.timestamp_pb2 import Timestamp
from support.attached import wanted
from support.scripted_plugin import descriptor


def introduced(
    place: Place, *plugins: identity_pb2.PluginDescriptor, features: Sequence[str] = ()
) -> Introduction:
    reply = identity_pb2.HandshakeResponse(
        supported=[identity_pb2.ContractVersion(major=1)],
        plugins=plugins,
        features=features,
        instance_id="i",
        started_at=Timestamp(seconds=1),
    )
    return read_handshake(reply, place)


def one(plugin: WantedPlugin, message: identity_pb2.PluginDescriptor) -> identity_pb2.PluginArgs:
    place = Place(endpoint="unix:///p.sock", plugins=(plugin,))
    request = accept("a-1", place, introduced(place, message))
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
    message.deadlines.add(point=identity_pb2.EXTENSION_POINT_FILTER).deadline.FromSeconds(5)
    message.deadlines.add(point=identity_pb2.EXTENSION_POINT_PRE_BIND).deadline.FromSeconds(5)
    plugin = replace(wanted("Demo"), points={"filter": PointPolicy(0.1)})
    args = one(plugin, message)
    got = {ExtensionPoint(wish.point): wish.deadline.ToMilliseconds() for wish in args.deadlines}
    assert got == {
        ExtensionPoint.FILTER: 100,
        ExtensionPoint.PRE_BIND: 5000,
        ExtensionPoint.BIND: 10_000,
    }


def test_arguments_travel_as_they_are_configured() -> None:
    args = one(wanted("Demo", args={"limit": 3, "names": ["a"]}), descriptor("Demo", "FILTER"))
    assert MessageToDict(args.args) == {"limit": 3, "names": ["a"]}
    assert not one(wanted("Demo"), descriptor("Demo", "FILTER")).HasField("args")


@pytest.mark.parametrize("levels", [34, 40, 90])
def test_arguments_that_no_message_can_bring_are_refused(levels: int) -> None:
    nested: dict[str, Any] = {}
    for _ in range(levels):
        nested = {"a": nested}
    plugin = wanted("Demo", args=nested)
    with pytest.raises(ArgumentsRefusedError, match="refuses its arguments: they are nested too deeply"):
        one(plugin, descriptor("Demo", "FILTER"))


def test_concurrency_is_the_smaller_of_both_wishes() -> None:
    plugin = replace(wanted("Demo"), max_concurrency=4)
    assert one(plugin, descriptor("Demo", "BIND", max_concurrency=9)).max_concurrency == 4
    assert one(plugin, descriptor("Demo", "BIND", max_concurrency=2)).max_concurrency == 2
    assert one(wanted("Demo"), descriptor("Demo", "BIND")).max_concurrency == 64


class Grants:
    """Grants that accept and record every request."""

    def __init__(self, *, over_tls: bool = False) -> None:
        self.over_tls = over_tls
        self.asked: list[tuple[frozenset[str], bool, str]] = []

    async def grant(
        self,
        attachment_id: str,
        plugins: frozenset[str],
        *,
        loopback_tcp: bool = False,
        tls_name: str = "",
        max_message_bytes: int = DEFAULT_BYTES,
    ) -> WayBack:
        self.asked.append((plugins, loopback_tcp, tls_name))
        return WayBack(target="t", token="secret", server_name="host.example" if tls_name else "")

    def revoke(self, attachment_id: str, plugin: str = "") -> None:
        raise AssertionError("nobody ends")


SOCKET, LOOPBACK, REMOTE = "unix:///p.sock", "127.0.0.1:7001", "gpu.example:8443"


def tls(name: str = "") -> TlsFiles:
    return TlsFiles(ca_file="/ca", cert_file="/cert", key_file="/key", server_name=name)


@pytest.mark.parametrize(
    ("place", "asked"),
    [
        pytest.param(Place(endpoint=SOCKET, plugins=()), (False, ""), id="socket"),
        pytest.param(Place(endpoint=LOOPBACK, plugins=()), (True, ""), id="loopback"),
        pytest.param(Place(endpoint=REMOTE, tls=tls(), plugins=()), (False, "gpu.example"), id="tls"),
        pytest.param(Place(endpoint=REMOTE, tls=tls("gpu"), plugins=()), (False, "gpu"), id="its name"),
    ],
)
async def test_the_way_back_is_for_plugins_that_ask_for_it(place: Place, asked: tuple[bool, str]) -> None:
    place = replace(place, plugins=(wanted("A"), wanted("B")))
    both = introduced(
        place,
        descriptor("A", "FILTER", handle_client=True),
        descriptor("B", "FILTER"),
        features=[HANDLE_TLS],
    )
    grants = Grants(over_tls=True)
    found = await way_back_of(grants, "a-1", place, both, place.endpoint)
    assert grants.asked == [(frozenset({"A"}), *asked)]
    request = accept("a-1", place, both, found)
    name = "host.example" if place.tls else ""
    assert (request.handle.target, request.handle.token, request.handle.server_name) == ("t", "secret", name)
    assert lacks_way_back(place, both, over_tls=True) == []
    nobody = introduced(place, descriptor("B", "FILTER"))
    assert await way_back_of(grants, "a-1", place, nobody, place.endpoint) is None
    assert not accept("a-1", place, nobody).HasField("handle")


@pytest.mark.parametrize(
    ("over_tls", "words"),
    [(True, 'does not know the feature "handle-tls"'), (False, "give it `handle` in its BerthConfiguration")],
)
async def test_a_plugin_behind_tls_gets_no_token_where_it_would_travel_in_plaintext(
    over_tls: bool, words: str
) -> None:
    """The plugin's server has no way back over TLS and would dial in plaintext, or the host serves none."""
    place = Place(endpoint=REMOTE, tls=tls(), plugins=(wanted("A"),))
    asks = introduced(place, descriptor("A", "FILTER", handle_client=True))
    grants = Grants(over_tls=over_tls)
    assert await way_back_of(grants, "a-1", place, asks, REMOTE) is None
    assert grants.asked == []
    (warning,) = lacks_way_back(place, asks, over_tls=over_tls)
    assert warning.startswith("plugin A gets no way back to its host")
    assert words in warning


def test_refusal_says_why() -> None:
    request = refuse("a-1", "not today")
    assert (request.accepted, request.reason, request.attachment_id) == (False, "not today", "a-1")
