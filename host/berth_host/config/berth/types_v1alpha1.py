"""The types of config.berth.io/v1alpha1, field by field, as a file spells them."""

# json_field is dataclasses.field with a tag, and every zero value is immutable.
# ruff: noqa: RUF009

from __future__ import annotations

from dataclasses import dataclass

from berth_host.config.decoding.core_v1 import LabelSelectorV1
from berth_host.config.decoding.go_types import (
    BOOL,
    DURATION,
    INT32,
    INT64,
    STRING,
    json_field,
    pointer_to,
    slice_of,
    struct_of,
)

_SELECTOR = pointer_to(struct_of(LabelSelectorV1))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeV1Alpha1:
    """The pods that a plugin is asked about."""

    namespace_selector: LabelSelectorV1 | None = json_field("namespaceSelector", _SELECTOR)
    pod_selector: LabelSelectorV1 | None = json_field("podSelector", _SELECTOR)
    resources: tuple[str, ...] | None = json_field("resources", slice_of(STRING))


@dataclass(frozen=True, slots=True, kw_only=True)
class PointV1Alpha1:
    """The settings at one point."""

    deadline: int | None = json_field("deadline", pointer_to(DURATION))
    policy: str | None = json_field("policy", pointer_to(STRING))


_POINT = pointer_to(struct_of(PointV1Alpha1))


@dataclass(frozen=True, slots=True, kw_only=True)
class PointsV1Alpha1:
    """The points, as a struct: a misspelt one is an unknown field."""

    pre_enqueue: PointV1Alpha1 | None = json_field("preEnqueue", _POINT)
    queue_sort: PointV1Alpha1 | None = json_field("queueSort", _POINT)
    queueing_hints: PointV1Alpha1 | None = json_field("queueingHints", _POINT)
    pre_filter: PointV1Alpha1 | None = json_field("preFilter", _POINT)
    filter: PointV1Alpha1 | None = json_field("filter", _POINT)
    simulate_filter: PointV1Alpha1 | None = json_field("simulateFilter", _POINT)
    post_filter: PointV1Alpha1 | None = json_field("postFilter", _POINT)
    pre_score: PointV1Alpha1 | None = json_field("preScore", _POINT)
    score: PointV1Alpha1 | None = json_field("score", _POINT)
    normalize_score: PointV1Alpha1 | None = json_field("normalizeScore", _POINT)
    reserve: PointV1Alpha1 | None = json_field("reserve", _POINT)
    unreserve: PointV1Alpha1 | None = json_field("unreserve", _POINT)
    permit: PointV1Alpha1 | None = json_field("permit", _POINT)
    pre_bind_pre_flight: PointV1Alpha1 | None = json_field("preBindPreFlight", _POINT)
    pre_bind: PointV1Alpha1 | None = json_field("preBind", _POINT)
    bind: PointV1Alpha1 | None = json_field("bind", _POINT)
    post_bind: PointV1Alpha1 | None = json_field("postBind", _POINT)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsV1Alpha1:
    """Files for mutual TLS."""

    ca_file: str = json_field("caFile", STRING)
    cert_file: str = json_field("certFile", STRING)
    key_file: str = json_field("keyFile", STRING)
    server_name: str = json_field("serverName", STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginHandleV1Alpha1:
    """The decisions that a plugin may send to the host."""

    permit: tuple[str, ...] | None = json_field("permit", slice_of(STRING))


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginV1Alpha1:
    """One plugin."""

    name: str = json_field("name", STRING)
    endpoint: str | None = json_field("endpoint", pointer_to(STRING))
    command: tuple[str, ...] | None = json_field("command", slice_of(STRING))
    in_process: str | None = json_field("inProcess", pointer_to(STRING))
    required: bool | None = json_field("required", pointer_to(BOOL))
    scope: ScopeV1Alpha1 = json_field("scope", struct_of(ScopeV1Alpha1))
    points: PointsV1Alpha1 = json_field("points", struct_of(PointsV1Alpha1))
    tls: TlsV1Alpha1 | None = json_field("tls", pointer_to(struct_of(TlsV1Alpha1)))
    insecure: bool = json_field("insecure", BOOL)
    credential_file: str = json_field("credentialFile", STRING)
    allowed_uids: tuple[int, ...] | None = json_field("allowedUIDs", slice_of(INT64))
    max_concurrency: int = json_field("maxConcurrency", INT32)
    transport: str | None = json_field("transport", pointer_to(STRING))
    handle: PluginHandleV1Alpha1 = json_field("handle", struct_of(PluginHandleV1Alpha1))


@dataclass(frozen=True, slots=True, kw_only=True)
class HandleV1Alpha1:
    """Where plugins behind TLS ask their host."""

    bind_address: str = json_field("bindAddress", STRING)
    advertise_address: str = json_field("advertiseAddress", STRING)
    tls: TlsV1Alpha1 | None = json_field("tls", pointer_to(struct_of(TlsV1Alpha1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class BerthConfigurationV1Alpha1:
    """The whole document."""

    kind: str = json_field("kind", STRING)
    api_version: str = json_field("apiVersion", STRING)
    socket_folder: str = json_field("socketFolder", STRING)
    plugins: tuple[PluginV1Alpha1, ...] | None = json_field("plugins", slice_of(struct_of(PluginV1Alpha1)))
    handle: HandleV1Alpha1 | None = json_field("handle", pointer_to(struct_of(HandleV1Alpha1)))
    cycle_budget: int | None = json_field("cycleBudget", pointer_to(DURATION))
