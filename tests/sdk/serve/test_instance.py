"""Attaching: handshake, configuration, refusals, probe and drain, over a real socket."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import grpc
import pytest
from berth_sdk import ExtensionPoint, Handle, Plugin, PluginArgsError, PluginDefinitionError, Pod, Status
from berth_sdk.node import Node
from berth_sdk.plugin.v1 import identity_pb2
from berth_sdk.serve.server import PluginServer
from support.by_arguments import ByArguments
from support.sdk_server import PROFILE, plugin_args, refused

from .conftest import Serve

POD = Pod(name="web", uid="u1")
FILTER = ExtensionPoint.FILTER


class Limited(Plugin):
    """Rejects every node when the limit is 0; counts how many of it were made."""

    made = 0

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        self.limit = args.get("limit", 1)
        if not isinstance(self.limit, int):
            raise PluginArgsError(f"limit must be a whole number, not {self.limit!r}")
        if self.limit > 1000:
            raise ConnectionError("no price list at hand")
        type(self).made += 1

    def filter(self, state: Any, pod: Any, node: Any) -> Status | None:
        return None if self.limit else Status.unschedulable("limit reached")


class Other(Plugin):
    """A second plugin in the same process."""

    def filter(self, state: Any, pod: Any, node: Any) -> Status | None:
        return Status.unschedulable("other")


@pytest.fixture(autouse=True)
def _fresh_count() -> None:
    Limited.made = 0


def test_the_handshake_names_every_plugin_and_stays_the_same(serve: Serve) -> None:
    host = serve(Limited, Other).host
    first, second = host.handshake("a1"), host.handshake("a2")
    assert [plugin.name for plugin in first.plugins] == ["Limited", "Other"]
    assert first == second
    assert [(version.major, version.minor) for version in first.supported] == [(1, 0)]
    assert first.instance_id
    assert first.started_at.seconds > 0


def test_two_processes_are_two_instances(serve: Serve, tmp_path: Any) -> None:
    first = serve(Limited).host.handshake().instance_id
    with PluginServer({"Limited": Limited}) as other:
        assert other.instance.instance_id != first


def test_before_configure_calls_are_unavailable_and_the_probe_says_so(serve: Serve) -> None:
    host = serve(Limited).host
    probe = host.identity.Probe(identity_pb2.ProbeRequest())
    assert (probe.ready, probe.message) == (False, "waiting for Configure")
    assert refused(lambda: host.filter("Limited", POD)).code() is grpc.StatusCode.UNAVAILABLE


def test_a_configured_instance_is_ready(serve: Serve) -> None:
    host = serve(Limited).host
    hello = host.attach()
    probe = host.identity.Probe(identity_pb2.ProbeRequest())
    assert (probe.ready, probe.instance_id, probe.in_flight) == (True, hello.instance_id, 0)


def test_arguments_reach_the_plugin_per_profile(serve: Serve) -> None:
    host = serve(Limited).host
    host.handshake()
    host.configure(
        [
            plugin_args("Limited", [FILTER], args={"limit": 1}),
            plugin_args("Limited", [FILTER], profile="strict", args={"limit": 0}),
        ]
    )
    host.give_nodes(Node(name="n0"))
    assert not host.filter("Limited", POD).verdicts.rejected
    strict = host.filter("Limited", POD, "c2", profile="strict")
    assert strict.verdicts.rejected[0].status.reasons == ["limit reached"]


def test_arguments_that_the_plugin_refuses_end_the_configuration_with_its_words(serve: Serve) -> None:
    host = serve(Limited).host
    host.handshake()
    reply = host.configure([plugin_args("Limited", [FILTER], args={"limit": "much"})])
    assert reply.error == (
        f"Limited in profile {PROFILE} refuses its arguments: limit must be a whole number, not 'much'"
    )
    assert not host.identity.Probe(identity_pb2.ProbeRequest()).ready


def test_a_constructor_that_breaks_is_an_error_of_the_transport(serve: Serve) -> None:
    host = serve(Limited).host
    host.handshake()
    error = refused(lambda: host.configure([plugin_args("Limited", [FILTER], args={"limit": 2000})]))
    assert error.code() is grpc.StatusCode.INTERNAL
    assert (error.details() or "").startswith(
        "Limited.__init__ raised ConnectionError: no price list at hand at sdk/serve/test_instance.py:"
    )


def test_a_trial_says_what_the_plugin_thinks_of_its_arguments_and_changes_nothing(serve: Serve) -> None:
    serving = serve(Limited)
    host = serving.host
    host.attach({"limit": 1})
    host.give_nodes(Node(name="n0"))
    assert "configure-trial" in host.handshake("trial").features
    for args, error in (
        ({"limit": 0}, ""),
        (
            {"limit": "much"},
            f"Limited in profile {PROFILE} refuses its arguments: limit must be a whole number, not 'much'",
        ),
    ):
        plugins = [plugin_args("Limited", [FILTER], args=args)]
        assert host.configure(plugins, "trial", trial=True).error == error
        # The attachment goes on, with the arguments that it has.
        host.attachment_id = "a1"
        assert not host.filter("Limited", POD).verdicts.rejected


def test_the_plugin_of_a_trial_serves_once_it_is_configured_with_the_same_arguments(serve: Serve) -> None:
    host = serve(Limited).host
    host.attach({"limit": 1})
    host.handshake("trial")
    host.configure([plugin_args("Limited", [FILTER], args={"limit": 0})], "trial", trial=True)
    assert Limited.made == 2
    host.attach({"limit": 0})
    host.give_nodes(Node(name="n0"))
    assert Limited.made == 2
    assert host.filter("Limited", POD).verdicts.rejected


def test_a_refused_configuration_ends_no_attachment_and_leaves_its_way_back(serve: Serve) -> None:
    serving = serve(Limited)
    host = serving.host
    first = identity_pb2.HandleEndpoint(target="unix:///first.sock", token="first")
    host.attach({"limit": 1}, handle=first)
    host.give_nodes(Node(name="n0"))
    for attachment_id, limit in (("b1", "much"), ("b2", 2000)):
        host.handshake(attachment_id)
        second = identity_pb2.HandleEndpoint(target="unix:///second.sock", token="second")
        plugins = [plugin_args("Limited", [FILTER], args={"limit": limit})]
        with contextlib.suppress(grpc.RpcError):
            host.configure(plugins, attachment_id, handle=second, max_message_bytes=70_000)
        host.attachment_id = "a1"
        assert not host.filter("Limited", POD).verdicts.rejected
        connection = serving.server.instance.connection
        assert connection.limit_bytes == 4 * 1024 * 1024
        _, metadata = connection.open()
        assert metadata == (("authorization", "Bearer first"),)


def test_a_point_that_the_plugin_does_not_have_is_a_warning(serve: Serve) -> None:
    host = serve(Limited).host
    host.handshake()
    reply = host.configure([plugin_args("Limited", [FILTER, ExtensionPoint.PRE_BIND, 99])])
    assert reply.warnings == ["Limited is enabled at preBind and does not take part in it"]


def test_a_refusal_leaves_the_instance_unconfigured(serve: Serve) -> None:
    host = serve(Limited).host
    host.attach()
    host.identity.Configure(
        identity_pb2.ConfigureRequest(attachment_id="a1", reason="contract 2.0 is needed")
    )
    assert not host.identity.Probe(identity_pb2.ProbeRequest()).ready


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        pytest.param(
            {"contract": identity_pb2.ContractVersion(major=2)}, "contract 2.0 was selected", id="contract"
        ),
        pytest.param({"plugins": [plugin_args("Missing", [FILTER])]}, "'Missing' is not served", id="plugin"),
    ],
)
def test_a_configuration_that_breaks_the_contract_is_refused(
    serve: Serve, fields: dict[str, Any], text: str
) -> None:
    host = serve(Limited).host
    host.handshake()
    error = refused(lambda: host.configure(**({"plugins": []} | fields)))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert text in (error.details() or "")


def test_configure_needs_one_of_the_last_64_attachment_ids(serve: Serve) -> None:
    host = serve(Limited).host
    host.handshake("first")
    host.handshake("second")
    for number in range(62):
        host.handshake(f"standby-{number}")
    host.handshake("first")  # repeated, as by a host that does not lead
    host.handshake("one more")
    for gone in ("stranger", "second"):
        error = refused(lambda gone=gone: host.configure([], gone))
        assert error.code() is grpc.StatusCode.PERMISSION_DENIED
        assert f"{gone!r} is none of the last 64 that a Handshake named" in (error.details() or "")
    assert not host.configure([], "first").error


def test_a_new_attachment_keeps_the_plugin_whose_arguments_did_not_change(serve: Serve) -> None:
    host = serve(Limited).host
    host.attach({"limit": 1})
    host.attach({"limit": 1})
    assert Limited.made == 1
    host.attach({"limit": 2})
    assert Limited.made == 2


def test_a_plugin_that_is_not_configured_is_the_hosts_fault(serve: Serve) -> None:
    host = serve(Limited, Other).host
    host.handshake()
    host.configure([plugin_args("Limited", [FILTER])])
    for plugin, profile in (("Other", PROFILE), ("Limited", "strict")):
        error = refused(lambda plugin=plugin, profile=profile: host.filter(plugin, POD, profile=profile))
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_drain_tells_the_open_cycles(serve: Serve) -> None:
    host = serve(Limited).host
    host.attach()
    host.give_nodes(Node(name="n0"))
    host.filter("Limited", POD, "c1")
    host.filter("Limited", POD, "c2")
    assert host.identity.Drain(identity_pb2.DrainRequest(reason="test")).open_cycles == 2


def test_an_answer_over_the_agreed_size_is_not_sent(serve: Serve) -> None:
    host = serve(Other).host
    host.attach()
    host.handshake("small")
    host.configure([plugin_args("Other", [FILTER])], "small", max_message_bytes=10)
    host.give_nodes(Node(name="n0"))
    error = refused(lambda: host.filter("Other", POD))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "and 10 are the limit: answer less, or raise the smaller one" in (error.details() or "")


def test_a_plugin_that_orders_by_comparison_alone_cannot_be_served() -> None:
    class Less(Plugin):
        def less(self, first: Any, second: Any) -> bool:
            return False

    with pytest.raises(PluginDefinitionError, match="write `sort_key`"):
        PluginServer({"Less": Less})


def test_configure_answers_with_the_descriptors_that_the_arguments_changed(serve: Serve) -> None:
    host = serve(ByArguments, Other).host
    host.handshake()
    plugins = [plugin_args("ByArguments", [FILTER], args={"claim": "c"}), plugin_args("Other", [FILTER])]
    (changed,) = host.configure(plugins).plugins
    assert changed.name == "ByArguments"
    assert [need.resource for need in changed.needs] == ["persistentvolumeclaims"]
    assert [event.resource for event in changed.events] == ["PersistentVolumeClaim"]
    host.handshake("a2")
    plugins = [plugin_args("ByArguments", [FILTER]), plugin_args("Other", [FILTER])]
    assert not host.configure(plugins, "a2").plugins


def test_the_copy_holds_what_the_arguments_need(serve: Serve) -> None:
    served = serve(ByArguments)
    host, copy = served.host, served.server.instance.copy
    host.attach()
    host.give_nodes(Node(name="n0"))
    assert copy.version is not None
    with pytest.raises(KeyError):
        copy.objects("persistentvolumeclaims")
    host.attach(args={"claim": "c"})
    assert copy.version is None
    assert copy.objects("persistentvolumeclaims").list() == []


def test_nodes_in_names_mode_are_made_once_and_given_as_asked(serve: Serve) -> None:
    instance = serve(Limited).server.instance
    every = [f"node-{number}" for number in range(100)]
    table = instance.named_nodes(every)
    assert table.names == every
    some = instance.named_nodes(["node-70", "node-3"])
    assert some.names == ["node-70", "node-3"]
    assert some.names_identity == table.names_identity  # no row was made again
    grown = instance.named_nodes(["new", "node-3"])
    assert grown.names == ["new", "node-3"]
    assert instance.named_nodes(every).names_identity == grown.names_identity
    assert table.names == every


def test_names_of_nodes_that_are_gone_are_forgotten(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("berth_sdk.serve.instance._NAMES_KEPT", 3)
    instance = serve(Limited).server.instance
    for number in range(10):
        table = instance.named_nodes([f"a-{number}", f"b-{number}"])
        assert table.names == [f"a-{number}", f"b-{number}"]
        assert table.snapshot_size <= 3
