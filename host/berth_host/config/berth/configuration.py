"""BerthConfiguration, config.berth.io/v1alpha1: where plugins live, for which pods they are asked, their
deadlines and failure policies.

Decoded by `berth.decoding`, field by field as a file spells them; read by `app`, `attach` and `rpc`. Times
are in seconds. An attribute whose type has no None may be None before the checks only.
"""

# RUF009 is off: json_field returns a dataclass field, and its default values are immutable.
# ruff: noqa: RUF009

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from berth_sdk.wire.message_limit import DEFAULT_BYTES

from berth_host.config.berth.points import DEFAULT_CYCLE_BUDGET_MS, POINT_RULES, PointPolicy
from berth_host.config.decoding.core_v1 import LabelSelectorV1
from berth_host.config.decoding.go_types import (
    BOOL,
    DURATION,
    INT32,
    INT64,
    STRING,
    encode_struct,
    json_field,
    object_of,
    one_of,
    pointer_to,
    slice_of,
    struct_of,
    with_zero,
)
from berth_host.config.decoding.types_v1 import ManagedResource
from berth_host.config.source.node import Json

API_VERSION: Final = "config.berth.io/v1alpha1"
KIND: Final = "BerthConfiguration"

_OPTIONAL_TEXT: Final = pointer_to(STRING)
_TEXTS: Final = with_zero(slice_of(STRING), ())
_SELECTOR: Final = pointer_to(struct_of(LabelSelectorV1))
_MANAGED: Final = with_zero(slice_of(struct_of(ManagedResource)), ())
_POINTS: Final = object_of(dict.fromkeys(POINT_RULES, pointer_to(struct_of(PointPolicy))))
_MESSAGE_BYTES: Final = pointer_to(INT64)
_CYCLE_BUDGET: Final = with_zero(pointer_to(DURATION), DEFAULT_CYCLE_BUDGET_MS / 1000)


class Transport(StrEnum):
    """The carrier of scheduling cycles' calls to a served plugin. FRAMED falls back to UNARY where the plugin
    does not listen for frames.
    """

    FRAMED = "framed"
    UNARY = "unary"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """Mutual TLS with plugins: paths, of files that may be replaced. `server_name`: the name that the
    certificate of whoever listens must have, empty: the host of the address.
    """

    ca_file: str = json_field("caFile", STRING)
    cert_file: str = json_field("certFile", STRING)
    key_file: str = json_field("keyFile", STRING)
    server_name: str = json_field("serverName", STRING)


_TLS: Final = pointer_to(struct_of(TlsFiles))


@dataclass(frozen=True, slots=True, kw_only=True)
class HandleListener:
    """The address for calls from plugins behind TLS to the host.

    `bind_address`: `host:port` to listen at. `advertise_address`: the address that plugins get (empty: the
    host's own address, as far as it is known). `tls`: the host's certificate, the authority of the plugins'.
    """

    bind_address: str = json_field("bindAddress", STRING)
    advertise_address: str = json_field("advertiseAddress", STRING, omit_empty=True)
    tls: TlsFiles = json_field("tls", _TLS)


@dataclass(frozen=True, slots=True, kw_only=True)
class TracingConfiguration:
    """The traces of attempts, with the fields of Kubernetes' TracingConfiguration.

    `endpoint`: the OTLP collector, as `host:port` in plaintext or a URL; None: that of the environment
    (OTEL_EXPORTER_OTLP_ENDPOINT), or `localhost:4317`. `sampling_rate_per_million`: of attempts whose pod
    names no parent; None: OTEL_TRACES_SAMPLER decides, or no such attempt is traced.
    """

    endpoint: str | None = json_field("endpoint", _OPTIONAL_TEXT, omit_empty=True)
    sampling_rate_per_million: int | None = json_field(
        "samplingRatePerMillion", pointer_to(INT32), omit_empty=True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginScope:
    """The pods that a plugin is asked about: all given conditions must hold.

    Selectors: None for any. `resources`: a container or init container of the pod requests or limits one of
    them.
    """

    namespace_selector: LabelSelectorV1 | None = json_field("namespaceSelector", _SELECTOR, omit_empty=True)
    pod_selector: LabelSelectorV1 | None = json_field("podSelector", _SELECTOR, omit_empty=True)
    resources: tuple[str, ...] = json_field("resources", _TEXTS, omit_empty=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginHandle:
    """The decisions that a plugin may send to the host. `permit`: the plugins whose waits it may end beside
    its own; None: all of them.
    """

    permit: tuple[str, ...] | None = json_field("permit", pointer_to(slice_of(STRING)), omit_empty=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class BerthPlugin:
    """One served plugin, or an in-process plugin that is named by its class.

    At most one of `endpoint` (`unix:///path` or `host:port`), `command` (a child to launch) and `in_process`
    (`module:Class`) is set; with none of them it is found in the folder of sockets. `required` False: a call
    that cannot be made is left out, where the file sets no policy for its point, and the pod says so.
    `managed_resources`: extended resources that the plugin accounts for; not empty: the plugin is asked only
    about pods that want one of them. `points`: the file's settings, by point. `insecure`: plaintext to
    a loopback TCP endpoint. `credential_file`: holds the secret that the plugin at an endpoint was told to
    expect; empty: no secret. `allowed_uids`: users beside root and the host's own that a Unix socket and the
    process behind it may belong to. `max_concurrency` 0: the plugin decides. `given_transport` None: the file
    names none. `max_message_bytes` None: that of the whole document.
    """

    name: str = json_field("name", STRING)
    endpoint: str | None = json_field("endpoint", _OPTIONAL_TEXT, omit_empty=True)
    command: tuple[str, ...] | None = json_field("command", slice_of(STRING), omit_empty=True)
    in_process: str | None = json_field("inProcess", _OPTIONAL_TEXT, omit_empty=True)
    required: bool = json_field("required", with_zero(BOOL, True))
    scope: PluginScope = json_field("scope", struct_of(PluginScope))
    managed_resources: tuple[ManagedResource, ...] = json_field("managedResources", _MANAGED, omit_empty=True)
    points: Mapping[str, PointPolicy] = json_field("points", _POINTS)
    tls: TlsFiles | None = json_field("tls", _TLS, omit_empty=True)
    insecure: bool = json_field("insecure", BOOL, omit_empty=True)
    credential_file: str = json_field("credentialFile", STRING, omit_empty=True)
    allowed_uids: tuple[int, ...] = json_field("allowedUIDs", with_zero(slice_of(INT64), ()), omit_empty=True)
    max_concurrency: int = json_field("maxConcurrency", INT32)
    given_transport: Transport | None = json_field("transport", one_of(Transport), omit_empty=True)
    max_message_bytes: int | None = json_field("maxMessageBytes", _MESSAGE_BYTES, omit_empty=True)
    handle: PluginHandle | None = json_field("handle", pointer_to(struct_of(PluginHandle)), omit_empty=True)

    @property
    def in_folder(self) -> bool:
        """True if a sidecar brings it."""
        return self.endpoint is None and self.command is None and self.in_process is None

    @property
    def transport(self) -> Transport:
        """The fastest carrier that its calls may take."""
        return self.given_transport or Transport.FRAMED

    @property
    def may_end_waits_of(self) -> frozenset[str] | None:
        """The plugins whose waits at Permit it may end beside its own; None: all of them."""
        permit = None if self.handle is None else self.handle.permit
        return None if permit is None else frozenset(permit)

    @property
    def managed_names(self) -> tuple[str, ...]:
        """The names of its managed resources, in the file's order."""
        return tuple(resource.name for resource in self.managed_resources)

    @property
    def left_to_it(self) -> tuple[str, ...]:
        """The managed resources that NodeResourcesFit does not check (`ignoredByScheduler`)."""
        return tuple(resource.name for resource in self.managed_resources if resource.ignored_by_scheduler)

    def settings(self, point: str) -> PointPolicy:
        """Return the deadline and the policy at a point: the file's, or the default ones."""
        given, rules = self.points.get(point, PointPolicy()), POINT_RULES[point]
        deadline_s = rules.deadline_ms / 1000 if given.deadline_s is None else given.deadline_s
        return PointPolicy(deadline_s, given.policy or rules.policy)

    def to_json(self) -> dict[str, Json]:
        """Return the file's fields with all defaults filled in, for `check-config`."""
        shown = encode_struct(self)
        shown["points"] = {point: encode_struct(self.settings(point)) for point in POINT_RULES}
        if self.in_process is None:
            shown["transport"] = self.transport.value
        if self.may_end_waits_of is not None:
            shown["handle"] = {"permit": list[Json](sorted(self.may_end_waits_of))}
        return shown


@dataclass(frozen=True, slots=True, kw_only=True)
class BerthConfiguration:
    """The whole document. `cycle_budget_s`: the time that a scheduling cycle may wait for served plugins.
    `socket_folder`: where sidecars put their sockets, empty: nowhere. `handle` None: plugins behind TLS
    cannot call the host. `max_message_bytes`: the largest message to or from a served plugin, where its entry
    sets no other. `tracing` None: attempts are not traced.
    """

    kind: str = json_field("kind", with_zero(STRING, KIND))
    api_version: str = json_field("apiVersion", with_zero(STRING, API_VERSION))
    socket_folder: str = json_field("socketFolder", STRING, omit_empty=True)
    plugins: tuple[BerthPlugin, ...] = json_field("plugins", with_zero(slice_of(struct_of(BerthPlugin)), ()))
    handle: HandleListener | None = json_field(
        "handle", pointer_to(struct_of(HandleListener)), omit_empty=True
    )
    cycle_budget_s: float = json_field(
        "cycleBudget", with_zero(pointer_to(DURATION), DEFAULT_CYCLE_BUDGET_MS / 1000)
    )
    max_message_bytes: int = json_field("maxMessageBytes", with_zero(_MESSAGE_BYTES, DEFAULT_BYTES))
    tracing: TracingConfiguration | None = json_field(
        "tracing", pointer_to(struct_of(TracingConfiguration)), omit_empty=True
    )

    def plugin(self, name: str) -> BerthPlugin | None:
        """Return the plugin of that name, None if the file has none."""
        return next((plugin for plugin in self.plugins if plugin.name == name), None)

    def message_limit(self, plugin: BerthPlugin) -> int:
        """Return the size in bytes of the largest message to or from a served plugin."""
        own = plugin.max_message_bytes
        return self.max_message_bytes if own is None else own

    @property
    def may_end_waits(self) -> dict[str, frozenset[str]]:
        """By plugin that is restricted: the plugins whose waits at Permit it may end beside its own."""
        return {
            plugin.name: plugin.may_end_waits_of
            for plugin in self.plugins
            if plugin.may_end_waits_of is not None
        }

    def to_json(self) -> dict[str, Json]:
        """Return the file's fields with all defaults filled in, for `check-config`."""
        return {**encode_struct(self), "plugins": [plugin.to_json() for plugin in self.plugins]}
