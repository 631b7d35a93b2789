"""The handshake: versions, names, needs, and values that the host does not know."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from berth_host.attach.configured_places import Place
from berth_host.attach.handshake import (
    LONGEST_WISH_S,
    MAX_NAME_LENGTH,
    DescriptorRefusedError,
    RefusedError,
    read_handshake,
    with_arguments,
)
from berth_host.attach.remarks import MAX_REMARKS
from berth_host.config.berth.configuration import TlsFiles
from berth_sdk.events import EventInterest, Hint
from berth_sdk.extension_points import (
    Account,
    DependsOn,
    ExtensionPoint,
    NodeColumn,
    NodeLabel,
    NodeMode,
    PodSensitivity,
    ScoreNormalization,
)
from berth_sdk.needs import Need
from berth_sdk.plugin.v1 import identity_pb2
from berth_sdk.pod_fields import PodField
from berth_sdk.runtime.descriptor import Descriptor
from berth_sdk.scope import Scope
from berth_sdk.wire import results as wire_results
from berth_sdk.wire.certificate import FEATURE as HANDLE_TLS
from google.protobuf.timestamp_pb2 import Timestamp
from support.attached import wanted
from support.scripted_plugin import descriptor

PLACE = Place(endpoint="unix:///run/p.sock", plugins=(wanted("Demo"), wanted("Other")))


def reply(*plugins: identity_pb2.PluginDescriptor, **fields: Any) -> identity_pb2.HandshakeResponse:
    fields.setdefault("supported", [identity_pb2.ContractVersion(major=1, minor=7)])
    fields.setdefault("instance_id", "i-1")
    fields.setdefault("started_at", Timestamp(seconds=1))
    return identity_pb2.HandshakeResponse(plugins=plugins or [descriptor("Demo", "FILTER")], **fields)


def test_highest_common_version_is_selected() -> None:
    versions = [identity_pb2.ContractVersion(major=2), identity_pb2.ContractVersion(major=1, minor=7)]
    assert read_handshake(reply(supported=versions), PLACE).contract == (1, 0)


def test_refusal_of_a_foreign_contract_names_both_versions() -> None:
    versions = [identity_pb2.ContractVersion(major=2, minor=3), identity_pb2.ContractVersion(major=3)]
    with pytest.raises(RefusedError) as caught:
        read_handshake(reply(supported=versions), PLACE)
    assert caught.value.reason.startswith(
        "incompatible contract: the host supports 1.0, the plugin supports 2.3, 3.0;"
    )


@pytest.mark.parametrize(
    ("message", "words"),
    [
        pytest.param(reply(instance_id=""), "names no instance_id", id="no instance"),
        pytest.param(reply(started_at=None), "does not say when the process started", id="no start"),
        pytest.param(
            reply(descriptor("Demo", "FILTER"), descriptor("Demo", "SCORE")),
            "names a plugin twice",
            id="twice",
        ),
        pytest.param(
            reply(descriptor("Stranger", "FILTER")),
            "serves Stranger, and the configuration expects Demo, Other at unix:///run/p.sock",
            id="stranger",
        ),
        pytest.param(
            reply(descriptor("Demo", "FILTER", reads_shared=["a"] * 257)),
            "declares 257 reads_shared, above the limit of 256",
            id="too much",
        ),
        pytest.param(
            reply(descriptor("Demo", "FILTER", reads=identity_pb2.NodeReads(label_keys=["a"] * 257))),
            "declares 257 reads.label_keys, above the limit of 256",
            id="too many label keys",
        ),
        pytest.param(reply(descriptor("Demo")), "declares no extension point", id="no points"),
        pytest.param(
            reply(descriptor("Demo", "FILTER", needs=[identity_pb2.DeclaredNeed()])),
            "needs state of the kind 0",
            id="unspecified need",
        ),
        pytest.param(
            reply(
                descriptor(
                    "Demo",
                    "FILTER",
                    needs=[
                        identity_pb2.DeclaredNeed(kind=identity_pb2.DeclaredNeed.KIND_OBJECT, resource="pods")
                    ],
                )
            ),
            "needs objects of pods",
            id="pods as objects",
        ),
        *(
            pytest.param(
                reply(
                    descriptor(
                        "Demo",
                        "FILTER",
                        needs=[
                            identity_pb2.DeclaredNeed(
                                kind=identity_pb2.DeclaredNeed.KIND_OBJECT, resource=name
                            )
                        ],
                    )
                ),
                words,
                id=f"resource {name}",
            )
            for name, words in {
                "persistentvolumeclaim": "'persistentvolumeclaim', .* did you mean 'persistentvolumeclaims'",
                "storage.k8s.io/csinode": "did you mean 'storage.k8s.io/csinodes'",
                "Widgets": "write its plural, with its group unless that is the core's",
            }.items()
        ),
    ],
)
def test_introduction_that_cannot_be_used_is_refused(
    message: identity_pb2.HandshakeResponse, words: str
) -> None:
    with pytest.raises(RefusedError, match=words):
        read_handshake(message, PLACE)


def test_unconfigured_plugins_are_left_out_and_missing_ones_are_named() -> None:
    got = read_handshake(reply(descriptor("Demo", "FILTER"), descriptor("Stranger", "FILTER")), PLACE)
    assert [plugin.name for plugin in got.plugins] == ["Demo"]
    assert got.unusable == {"Other": "is not served by the instance at unix:///run/p.sock"}


def test_descriptor_of_the_sdk_arrives_as_it_was_written() -> None:
    written = Descriptor(
        name="Demo",
        version="1.2",
        points=(ExtensionPoint.FILTER, ExtensionPoint.SCORE, ExtensionPoint.PRE_BIND),
        node_mode=NodeMode.SNAPSHOT,
        needs=(
            Need.whole_pod(),
            Need.nodes(images=True, annotation_prefixes=("a/",)),
            Need.objects("example.com/widgets", "status"),
        ),
        pod_sensitivity=PodSensitivity.NODE,
        normalization=ScoreNormalization.HOST_MAX_REVERSED,
        reads_shared=("Other/key",),
        events=(EventInterest("Node", ("add", "update.labels"), Hint.ASK_PLUGIN, "gpu=yes"),),
        deadlines={"preBind": 30.5},
        max_concurrency=3,
        has_hint=True,
        has_pre_flight=True,
        depends_on=DependsOn.ROW,
        reads=frozenset({NodeColumn.TAINTS, NodeColumn.REQUESTED, NodeLabel("zone")}),
        sign_fields=(PodField.LABELS, PodField.REQUESTS),
    )
    message = wire_results.encode_descriptor(written)
    (got,) = read_handshake(reply(message), PLACE).plugins
    assert got == written


def test_unset_values_have_the_contracts_readings() -> None:
    bare = identity_pb2.PluginDescriptor(name="Demo", points=[identity_pb2.EXTENSION_POINT_FILTER])
    (got,) = read_handshake(reply(bare), PLACE).plugins
    assert (got.node_mode, got.wants_whole_pod) == (NodeMode.NAMES, False)
    assert got.pod_sensitivity is PodSensitivity.NONE
    assert got.normalization is ScoreNormalization.PLUGIN
    assert got.events is None
    assert got.sign_fields is None
    bare.sign_fields.SetInParent()
    (got,) = read_handshake(reply(bare), PLACE).plugins
    assert (got.depends_on, got.sign_fields) == (None, None), "no answer is shared without depends_on"
    bare.depends_on = identity_pb2.DEPENDS_ON_NODE
    (got,) = read_handshake(reply(bare), PLACE).plugins
    assert got.sign_fields == ()
    in_step = descriptor("Demo", "FILTER")
    (got,) = read_handshake(reply(in_step), PLACE).plugins
    assert got.pod_sensitivity is PodSensitivity.CLUSTER


def test_unknown_values_of_a_newer_peer_are_read_as_unset_with_one_warning_each() -> None:
    newer = descriptor("Demo", "FILTER")
    newer.points.extend([55, 55])  # type: ignore[list-item]  # from a newer contract
    newer.node_mode = 9  # type: ignore[assignment]  # as above
    newer.pod_sensitivity = 9  # type: ignore[assignment]  # as above
    newer.normalization = 9  # type: ignore[assignment]  # as above
    newer.deadlines.add(point=77).deadline.FromSeconds(1)
    newer.events.add(resource="Node", actions=["update.colour"], label_selector="((")
    newer.events.add(resource="Pod", hint=9)
    newer.depends_on = identity_pb2.DEPENDS_ON_ROW
    newer.accounts.extend([identity_pb2.ACCOUNT_RESOURCES, 88])  # type: ignore[list-item]  # as above
    newer.sign_fields.fields.extend([identity_pb2.POD_FIELD_LABELS, 99])  # type: ignore[list-item]  # as above
    got = read_handshake(reply(newer, features=["telepathy"]), PLACE)
    (plugin,) = got.plugins
    assert plugin.points == (ExtensionPoint.FILTER,)
    assert plugin.node_mode is NodeMode.NAMES
    assert plugin.normalization is ScoreNormalization.PLUGIN
    assert plugin.deadlines == {}
    assert plugin.events == (EventInterest("Node"), EventInterest("Pod"))
    assert plugin.sign_fields is None
    assert plugin.accounts == {Account.RESOURCES}
    assert got.features == ()
    words = (
        "extension point 55",
        "node_mode 9",
        "pod_sensitivity 9",
        "normalization 9",
        "unknown point 77",
        "event action",
        "label selector",
        "unknown account 88",
        "unknown pod field",
        "feature 'telepathy'",
    )
    assert len(got.warnings) == len(words)
    for word in words:
        assert sum(word in warning for warning in got.warnings) == 1


@pytest.mark.parametrize("seconds", [100_000, 2**63 - 1])
def test_a_wish_for_more_time_than_a_message_can_hold_is_cut(seconds: int) -> None:
    """The declaration is encoded again for its digest in the audit line."""
    message = descriptor("Demo", "FILTER")
    message.deadlines.add(point=identity_pb2.EXTENSION_POINT_FILTER).deadline.seconds = seconds
    (plugin,) = read_handshake(reply(message), PLACE).plugins
    assert plugin.deadlines == {"filter": LONGEST_WISH_S}
    (again,) = wire_results.encode_descriptor(plugin).deadlines
    assert again.deadline.seconds == LONGEST_WISH_S


@pytest.mark.parametrize(
    ("scope", "want", "warned"),
    [
        (None, None, ""),
        (identity_pb2.PodScope(), (), ""),
        (
            identity_pb2.PodScope(terms=[identity_pb2.PodScopeTerm(namespaces=["a"])]),
            (Scope(namespaces=("a",)),),
            "",
        ),
        (
            identity_pb2.PodScope(terms=[identity_pb2.PodScopeTerm(label_selector="((", namespaces=["a"])]),
            (Scope(namespaces=("a",)),),
            "all labels count",
        ),
        (identity_pb2.PodScope(terms=[identity_pb2.PodScopeTerm()]), (Scope(),), "every pod is inside"),
    ],
    ids=["unset", "empty", "a term", "unreadable", "no condition"],
)
def test_scope_is_read_as_widely_as_it_may_be_meant(
    scope: identity_pb2.PodScope | None, want: tuple[Scope, ...] | None, warned: str
) -> None:
    got = read_handshake(reply(descriptor("Demo", "FILTER", scope=scope)), PLACE)
    assert got.plugins[0].scope == want
    assert len(got.warnings) == bool(warned)
    assert all(warned in warning for warning in got.warnings)


def test_scope_of_more_terms_than_the_host_reads_for_each_pod_is_refused() -> None:
    terms = [identity_pb2.PodScopeTerm(namespaces=["a"])] * 257
    with pytest.raises(RefusedError, match=r"declares 257 scope\.terms, above the limit of 256"):
        read_handshake(reply(descriptor("Demo", "FILTER", scope=identity_pb2.PodScope(terms=terms))), PLACE)


def test_second_deadline_of_a_point_is_ignored_with_a_warning() -> None:
    message = descriptor("Demo", "FILTER")
    for seconds in (2, 3):
        message.deadlines.add(point=identity_pb2.EXTENSION_POINT_FILTER).deadline.FromSeconds(seconds)
    got = read_handshake(reply(message), PLACE)
    assert got.plugins[0].deadlines == {"filter": 2.0}
    assert got.warnings == ("plugin Demo requests a second deadline for filter, which is ignored",)


@pytest.mark.parametrize("seconds", [0, -5])
def test_a_wish_for_no_time_at_all_is_ignored_with_a_warning(seconds: int) -> None:
    message = descriptor("Demo", "FILTER")
    message.deadlines.add(point=identity_pb2.EXTENSION_POINT_FILTER).deadline.FromSeconds(seconds)
    got = read_handshake(reply(message), PLACE)
    assert got.plugins[0].deadlines == {}
    assert got.warnings == (f"plugin Demo requests a deadline of {seconds} s for filter, which is ignored",)


def test_plugin_without_a_point_at_which_the_file_names_it_is_refused_with_the_cure() -> None:
    profile = replace(wanted("Demo").profiles[0], named=frozenset({"filter", "score"}))
    place = replace(PLACE, plugins=(replace(wanted("Demo"), profiles=(profile,)),))
    with pytest.raises(RefusedError, match=r"plugin Demo does not implement score, where .* take it out of"):
        read_handshake(reply(descriptor("Demo", "FILTER")), place)


def test_plugin_that_manages_resources_and_does_not_filter_is_refused_with_the_cure() -> None:
    why = "does not implement filter, but manages a.b/gpu: give the plugin that method"
    place = replace(PLACE, plugins=(replace(wanted("Demo"), why_it_must_filter=why),))
    with pytest.raises(RefusedError, match=f"plugin Demo {why}"):
        read_handshake(reply(descriptor("Demo", "SCORE")), place)
    assert read_handshake(reply(descriptor("Demo", "FILTER", "SCORE")), place).plugins[0].name == "Demo"


def test_plugin_that_multi_point_enables_has_the_points_that_it_has() -> None:
    got = read_handshake(reply(descriptor("Demo", "FILTER")), PLACE)
    assert got.plugins[0].points == (ExtensionPoint.FILTER,)


def test_other_plugins_of_the_instance_are_used_where_one_lacks_a_point() -> None:
    profile = replace(wanted("Other").profiles[0], named=frozenset({"score"}))
    place = replace(PLACE, plugins=(wanted("Demo"), replace(wanted("Other"), profiles=(profile,))))
    got = read_handshake(reply(descriptor("Demo", "FILTER"), descriptor("Other", "FILTER")), place)
    assert [found.name for found in got.plugins] == ["Demo"]
    assert "does not implement score" in got.unusable["Other"]


def test_plugin_that_calls_its_host_is_refused_behind_tls_without_a_way_back() -> None:
    behind_tls = TlsFiles(ca_file="ca", cert_file="cert", key_file="key", server_name="")
    place = replace(PLACE, endpoint="plugins:4711", tls=behind_tls)
    calls = descriptor("Demo", "PERMIT", handle_client=True, handle_required=True)
    with pytest.raises(RefusedError) as caught:
        read_handshake(reply(calls), place, frozenset())
    assert "plugin Demo calls its host and gets no way back" in caught.value.reason
    assert "give it `handle` in its BerthConfiguration" in caught.value.reason
    assert "handle_required = False" in caught.value.reason
    with pytest.raises(RefusedError, match='does not know the feature "handle-tls"'):
        read_handshake(reply(calls), place, frozenset({HANDLE_TLS}))
    both = reply(calls, descriptor("Other", "FILTER", handle_client=True))
    introduction = read_handshake(both, place, frozenset())
    assert [item.name for item in introduction.plugins] == ["Other"]
    assert "gets no way back" in introduction.unusable["Demo"]
    assert read_handshake(reply(calls, features=[HANDLE_TLS]), place).plugins[0].handle_required
    assert read_handshake(reply(calls), PLACE).plugins[0].handle_required


def test_a_flood_of_unknown_values_costs_little_and_is_bounded() -> None:
    """2.7 MB of different features. Comparing each with all others would take a quarter of an hour."""
    flood = reply(features=[f"{number:x}" for number in range(400_000)])
    began_s = time.monotonic()
    got = read_handshake(flood, PLACE)
    assert time.monotonic() - began_s < 30
    assert len(got.warnings) == MAX_REMARKS + 1


def test_names_of_an_instance_are_bounded() -> None:
    with pytest.raises(RefusedError, match="instance_id of more than 128 characters"):
        read_handshake(reply(instance_id="i" * 129), PLACE)
    (plugin,) = read_handshake(reply(descriptor("Demo", "FILTER", version="9" * 1_000_000)), PLACE).plugins
    assert plugin.version == "9" * MAX_NAME_LENGTH


def test_columns_are_read_with_a_depends_on_of_one_row_alone() -> None:
    message = descriptor("Demo", "FILTER")
    message.reads.columns.append(identity_pb2.NODE_COLUMN_TAINTS)
    for depends_on, want in (
        (identity_pb2.DEPENDS_ON_UNSPECIFIED, None),
        (identity_pb2.DEPENDS_ON_TABLE, None),
        (identity_pb2.DEPENDS_ON_NODES, None),
        (identity_pb2.DEPENDS_ON_NODE, frozenset({NodeColumn.TAINTS})),
        (identity_pb2.DEPENDS_ON_ROW, frozenset({NodeColumn.TAINTS})),
    ):
        message.depends_on = depends_on
        (plugin,) = read_handshake(reply(message), PLACE).plugins
        assert plugin.reads == want
    message.reads.ClearField("columns")
    (plugin,) = read_handshake(reply(message), PLACE).plugins
    assert plugin.reads == frozenset(), "an empty list is a declaration"
    message.ClearField("reads")
    (plugin,) = read_handshake(reply(message), PLACE).plugins
    assert plugin.reads is None


def test_columns_that_cannot_be_compared_are_read_as_unset_with_a_warning() -> None:
    newer = descriptor("Demo", "FILTER")
    newer.depends_on = identity_pb2.DEPENDS_ON_NODE
    newer.reads.columns.extend([identity_pb2.NODE_COLUMN_TAINTS, 99])  # type: ignore[list-item]  # as above
    got = read_handshake(reply(newer), PLACE)
    assert got.plugins[0].reads is None
    assert [remark for remark in got.warnings if "reads an unknown column of nodes (99" in remark]
    newer.reads.columns[:] = [identity_pb2.NODE_COLUMN_POD_COUNT]
    got = read_handshake(reply(newer), PLACE)
    assert got.plugins[0].reads is None
    assert [remark for remark in got.warnings if "POD_COUNT" in remark and "declare depends_on ROW" in remark]


def test_unknown_depends_on_is_read_as_unset() -> None:
    newer = descriptor("Demo", "FILTER")
    newer.depends_on = 99  # type: ignore[assignment]  # from a newer contract
    newer.sign_fields.SetInParent()
    got = read_handshake(reply(newer), PLACE)
    (plugin,) = got.plugins
    assert (plugin.depends_on, plugin.sign_fields) == (None, None)
    assert [remark for remark in got.warnings if "depends_on 99" in remark]


# --- descriptors that depend on the arguments ------------------------------------------------------------

PODS = identity_pb2.DeclaredNeed(kind=identity_pb2.DeclaredNeed.KIND_POD_SUMMARY, label_prefixes=[""])


def unknown_need() -> identity_pb2.DeclaredNeed:
    need = identity_pb2.DeclaredNeed()
    need.kind = 99  # type: ignore[assignment]
    return need


def test_descriptors_of_the_answer_to_configure_take_the_place_of_those_of_the_handshake() -> None:
    by_names = [descriptor(name, "FILTER", snapshot=False) for name in ("Demo", "Other")]
    introduction = read_handshake(reply(*by_names), PLACE)
    named = descriptor(
        "Demo",
        "FILTER",
        needs=[PODS],
        pod_sensitivity=9,
        events=[identity_pb2.EventInterest(resource="Node", actions=["add"])],
    )
    answer = identity_pb2.ConfigureResponse(plugins=[named])
    found = with_arguments(introduction, answer)
    demo, other = found.plugins
    assert (demo.node_mode, demo.needs) == (NodeMode.SNAPSHOT, (Need.pods(),))
    assert demo.events == (EventInterest("Node", ("add",)),)
    # Unknown values are read as in the handshake.
    assert demo.pod_sensitivity is PodSensitivity.CLUSTER
    assert "unknown pod_sensitivity 9" in found.warnings[-1]
    assert other == introduction.plugins[1]
    assert with_arguments(introduction, identity_pb2.ConfigureResponse()) == introduction


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([descriptor("Demo", "FILTER", "SCORE")], "declares another points .* declare it once, before them"),
        ([descriptor("Demo", "FILTER", version="2")], "declares another version"),
        ([descriptor("Demo", "FILTER", max_concurrency=2)], "declares another max_concurrency"),
        ([descriptor("Demo", "FILTER", handle_client=True)], "declares another handle_client"),
        ([descriptor("Else", "FILTER")], "describes plugin 'Else' which was not configured"),
        ([descriptor("Demo", "FILTER")] * 2, "describes plugin 'Demo' twice"),
        (
            [descriptor("Demo", "FILTER", needs=[unknown_need()])],
            "needs state of the kind 99.*in the answer to Configure",
        ),
    ],
    ids=["points", "version", "concurrency", "handle", "stranger", "twice", "need"],
)
def test_a_descriptor_that_arguments_may_not_change_is_refused(
    messages: list[identity_pb2.PluginDescriptor], words: str
) -> None:
    introduction = read_handshake(reply(), PLACE)
    with pytest.raises(DescriptorRefusedError, match=words):
        with_arguments(introduction, identity_pb2.ConfigureResponse(plugins=messages))
