"""The loaded BerthConfiguration: where plugins live, for which pods they are asked, their deadlines and
failure policies. Built by `berth.decoding`, read by `app`, `attach` and `rpc`. Times are in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from berth_host.config.berth.points import DEFAULT_CYCLE_BUDGET_MS, POINT_RULES, FailurePolicy, PointPolicy
from berth_host.config.decoding.duration import format_duration
from berth_host.config.source.node import Json

API_VERSION: Final = "config.berth.io/v1alpha1"
KIND: Final = "BerthConfiguration"


@dataclass(frozen=True, slots=True, kw_only=True)
class PointSettings:
    """Deadline of one call, and its failure policy."""

    deadline_s: float
    policy: FailurePolicy

    def to_json(self) -> dict[str, Json]:
        """For `check-config`."""
        return {"deadline": _duration_text(self.deadline_s), "policy": self.policy.value}


def default_point_settings() -> dict[str, PointSettings]:
    """The settings of every point for a plugin that sets none."""
    return {
        point: PointSettings(deadline_s=rules.deadline_ms / 1000, policy=rules.policy)
        for point, rules in POINT_RULES.items()
    }


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

    ca_file: str
    cert_file: str
    key_file: str
    server_name: str

    def to_json(self) -> dict[str, Json]:
        """For `check-config`; paths only."""
        return {
            "caFile": self.ca_file,
            "certFile": self.cert_file,
            "keyFile": self.key_file,
            "serverName": self.server_name,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class HandleListener:
    """Where plugins behind TLS ask their host: `host:port` to listen at, and to tell them (empty: the host's
    own address, as far as it is known). `tls`: the host's certificate, the authority of the plugins'.
    """

    bind_address: str
    advertise_address: str
    tls: TlsFiles

    def to_json(self) -> dict[str, Json]:
        """For `check-config`."""
        return {
            "bindAddress": self.bind_address,
            **({"advertiseAddress": self.advertise_address} if self.advertise_address else {}),
            "tls": self.tls.to_json(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginScope:
    """The pods that a plugin is asked about: all given conditions must hold.

    The selectors are LabelSelectors as JSON (None: any). `resources`: the pod requests one of them.
    """

    namespace_selector: Mapping[str, Json] | None = None
    pod_selector: Mapping[str, Json] | None = None
    resources: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Json]:
        """For `check-config`, without unset fields."""
        result: dict[str, Json] = {}
        if self.namespace_selector is not None:
            result["namespaceSelector"] = dict(self.namespace_selector)
        if self.pod_selector is not None:
            result["podSelector"] = dict(self.pod_selector)
        if self.resources:
            result["resources"] = list(self.resources)
        return result


@dataclass(frozen=True, slots=True, kw_only=True)
class BerthPlugin:
    """One plugin outside the host, or a class inside it.

    At most one of `endpoint` (`unix:///path` or `host:port`), `command` (a child to launch) and `in_process`
    (`module:Class`) is set; with none of them it is found in the folder of sockets. `required` False: a call
    that cannot be made is left out, where the file sets no policy for its point, and the pod says so.
    `points` has the effective settings of every point; `points_given`
    has the file's own settings. `insecure`: plaintext to a loopback TCP endpoint. `credential_file`: holds
    the secret that the plugin at an endpoint was told to expect; empty: none is sent. `allowed_uids`: users
    beside root and the host's own that a Unix socket and the process behind it may belong to.
    `max_concurrency` 0: the plugin decides. `may_end_waits_of`: the plugins whose waits at Permit it may end
    beside its own; None: all of them.
    """

    name: str
    endpoint: str | None = None
    command: tuple[str, ...] | None = None
    in_process: str | None = None
    required: bool = True
    scope: PluginScope = field(default_factory=PluginScope)
    points: Mapping[str, PointSettings] = field(default_factory=default_point_settings)
    points_given: Mapping[str, PointPolicy] = field(default_factory=dict)
    tls: TlsFiles | None = None
    insecure: bool = False
    credential_file: str = ""
    allowed_uids: tuple[int, ...] = ()
    max_concurrency: int = 0
    transport: Transport = Transport.FRAMED
    may_end_waits_of: frozenset[str] | None = None

    @property
    def in_folder(self) -> bool:
        """Whether a sidecar brings it."""
        return self.endpoint is None and self.command is None and self.in_process is None

    def to_json(self) -> dict[str, Json]:
        """For `check-config`: the file's fields, with the points it names or all defaults filled in."""
        where: dict[str, Json] = {
            "endpoint": self.endpoint,
            "command": None if self.command is None else list(self.command),
            "inProcess": self.in_process,
        }
        result: dict[str, Json] = {"name": self.name}
        result |= {name: value for name, value in where.items() if value is not None}
        result["required"] = self.required
        result["scope"] = self.scope.to_json()
        result["points"] = {point: settings.to_json() for point, settings in self.points.items()}
        if self.tls is not None:
            result["tls"] = self.tls.to_json()
        if self.insecure:
            result["insecure"] = True
        if self.credential_file:
            result["credentialFile"] = self.credential_file
        if self.allowed_uids:
            result["allowedUIDs"] = list(self.allowed_uids)
        result["maxConcurrency"] = self.max_concurrency
        if self.in_process is None:
            result["transport"] = self.transport.value
        if self.may_end_waits_of is not None:
            result["handle"] = {"permit": list[Json](sorted(self.may_end_waits_of))}
        return result


@dataclass(frozen=True, slots=True, kw_only=True)
class BerthConfiguration:
    """The whole document. `cycle_budget_s`: the time that a scheduling cycle may wait for served plugins.
    `socket_folder`: where sidecars put their sockets, empty: nowhere. `handle` None: plugins behind TLS
    cannot ask their host.
    """

    plugins: tuple[BerthPlugin, ...] = ()
    socket_folder: str = ""
    handle: HandleListener | None = None
    cycle_budget_s: float = DEFAULT_CYCLE_BUDGET_MS / 1000

    def plugin(self, name: str) -> BerthPlugin | None:
        """The plugin of that name, None if the file has none."""
        return next((plugin for plugin in self.plugins if plugin.name == name), None)

    @property
    def may_end_waits(self) -> dict[str, frozenset[str]]:
        """By plugin that is restricted: the plugins whose waits at Permit it may end beside its own."""
        return {
            plugin.name: plugin.may_end_waits_of
            for plugin in self.plugins
            if plugin.may_end_waits_of is not None
        }

    def to_json(self) -> dict[str, Json]:
        """For `check-config`."""
        return {
            "apiVersion": API_VERSION,
            "kind": KIND,
            **({"socketFolder": self.socket_folder} if self.socket_folder else {}),
            "plugins": [plugin.to_json() for plugin in self.plugins],
            **({"handle": self.handle.to_json()} if self.handle else {}),
            "cycleBudget": _duration_text(self.cycle_budget_s),
        }


def _duration_text(seconds: float) -> str:
    # Settings are whole nanoseconds at most; rounding removes the error of binary fractions.
    return format_duration(round(seconds * 1_000_000_000))
