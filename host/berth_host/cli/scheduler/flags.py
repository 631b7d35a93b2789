"""The flags of `berth scheduler`, one row each: those of kube-scheduler, and a few of berth's own.

`parsing` (the command line), `command` (the help and its reference page) and `flagz` of the endpoints read
them. Names, defaults and sections are those of kube-scheduler 1.37; the help texts are our own.
Source: `cmd/kube-scheduler/app/options`, `k8s.io/apiserver/pkg/server/options`, `k8s.io/component-base/logs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from berth_sdk.duration import format_seconds

from berth_host.cli.scheduler.flag_kinds import (
    ADDRESS,
    BOOL,
    DURATION,
    EMULATED,
    EMULATED_HELP,
    EVENT_LOOP,
    FILE,
    FLOAT,
    FOLDER,
    GATES,
    INT,
    LEVEL,
    STRING,
    STRINGS,
    UVLOOP,
    VERSION,
    FlagKind,
    Value,
)


class Standing(StrEnum):
    """The effect of a flag."""

    IN_EFFECT = ""
    DEPRECATED = "deprecated"
    """In effect, with a warning."""
    WITHOUT_EFFECT = "without effect"
    """Accepted with a warning, so that command lines of kube-scheduler work."""


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag. `without_config`: True if the flag is ignored beside --config."""

    name: str
    kind: FlagKind
    default: Value
    help: str
    standing: Standing = Standing.IN_EFFECT
    shorthand: str = ""
    without_config: bool = False


def _deprecated(name: str, kind: FlagKind, default: Value, help_text: str) -> Flag:
    return Flag(name, kind, default, help_text, Standing.DEPRECATED, without_config=True)


def _ignored(name: str, kind: FlagKind, default: Value) -> Flag:
    return Flag(
        name,
        kind,
        default,
        "Accepted for compatibility with kube-scheduler; has no effect.",
        Standing.WITHOUT_EFFECT,
    )


_MISC: Final = (
    Flag(
        "config",
        FILE,
        "",
        "KubeSchedulerConfiguration, with or without berth's own; - for standard input.",
    ),
    Flag("master", STRING, "", "Address of the API server; takes precedence over the kubeconfig."),
    Flag("write-config-to", FILE, "", "Write the completed configuration to this file, and exit."),
    Flag(
        "no-convert",
        BOOL,
        False,
        "Refuse older configurations, as kube-scheduler 1.37 does. A flag of berth alone.",
    ),
    Flag(
        "event-loop",
        EVENT_LOOP,
        UVLOOP,
        "Event loop of the process; without the flag asyncio's where uvloop is not installed. A flag of berth"
        " alone.",
    ),
    Flag(
        "shadow",
        BOOL,
        False,
        "Decide beside the running scheduler, write nothing, and compare the decisions with its. A flag of"
        " berth alone.",
    ),
)

LEADER_ELECTION: Final = (
    Flag("leader-elect", BOOL, True, "Schedule only while this replica holds the Lease."),
    Flag(
        "leader-elect-lease-duration",
        DURATION,
        15.0,
        "How long other replicas wait before they take over a Lease.",
    ),
    Flag(
        "leader-elect-renew-deadline",
        DURATION,
        10.0,
        "A leader that cannot renew the Lease for this time ends.",
    ),
    Flag("leader-elect-retry-period", DURATION, 2.0, "Time between two attempts to take or renew the Lease."),
    Flag("leader-elect-resource-lock", STRING, "leases", "Kind of the lock: leases."),
    Flag("leader-elect-resource-name", STRING, "kube-scheduler", "Name of the Lease."),
    Flag("leader-elect-resource-namespace", STRING, "kube-system", "Namespace of the Lease."),
)

_SECURE_SERVING: Final = (
    Flag("bind-address", ADDRESS, "0.0.0.0", "Address that the endpoints listen on; :: for all, IPv6 too."),
    Flag("secure-port", INT, 10259, "HTTPS port of the endpoints; 0: no endpoints."),
    Flag("ui", BOOL, False, "Serve the page at /ui/ of the HTTPS port. A flag of berth alone."),
    Flag(
        "query-secure-port",
        INT,
        0,
        "Port of the gRPC service berth.query.v1, over TLS; 0: none. A flag of berth alone.",
    ),
    Flag(
        "query-bind-address",
        ADDRESS,
        "",
        "Address that berth.query.v1 listens on; that of --bind-address if not given. A flag of berth alone.",
    ),
    Flag("cert-dir", FOLDER, "", "Folder of kube-scheduler.crt and kube-scheduler.key; created if absent."),
    Flag(
        "tls-cert-file", FILE, "", "Certificate of the endpoints, with its chain; self-signed if not given."
    ),
    Flag("tls-private-key-file", FILE, "", "Private key of --tls-cert-file."),
    Flag("tls-min-version", STRING, "", "Minimum TLS version: VersionTLS12 or VersionTLS13."),
    Flag("tls-cipher-suites", STRINGS, (), "Cipher suites that TLS 1.2 may use, by their IANA names."),
    _ignored("tls-curve-preferences", STRINGS, ()),
    _ignored("tls-sni-cert-key", STRINGS, ()),
    _ignored("http2-max-streams-per-connection", INT, 0),
    _ignored("disable-http2-serving", BOOL, False),
    _ignored("permit-address-sharing", BOOL, False),
    _ignored("permit-port-sharing", BOOL, False),
)

_AUTHENTICATION: Final = (
    Flag("authentication-kubeconfig", FILE, "", "Kubeconfig for checking tokens of requests (TokenReview)."),
    Flag(
        "authentication-skip-lookup",
        BOOL,
        False,
        "Do not read missing settings of authentication from the cluster.",
    ),
    Flag(
        "authentication-tolerate-lookup-failure",
        BOOL,
        True,
        "Start even if these settings cannot be read; requests may then be anonymous.",
    ),
    Flag(
        "authentication-token-webhook-cache-ttl", DURATION, 10.0, "How long answers about tokens are cached."
    ),
    Flag("client-ca-file", FILE, "", "CA of client certificates; their common name is the user."),
    Flag("requestheader-client-ca-file", FILE, "", "CA of front proxies, which send the user in headers."),
    Flag("requestheader-allowed-names", STRINGS, (), "Common names of front proxies; empty: all."),
    Flag("requestheader-username-headers", STRINGS, ("x-remote-user",), "Headers with the user's name."),
    Flag("requestheader-uid-headers", STRINGS, (), "Headers with the user's UID."),
    Flag("requestheader-group-headers", STRINGS, ("x-remote-group",), "Headers with the user's groups."),
    Flag(
        "requestheader-extra-headers-prefix",
        STRINGS,
        ("x-remote-extra-",),
        "Prefixes of headers with further attributes of the user.",
    ),
)

_AUTHORIZATION: Final = (
    Flag(
        "authorization-kubeconfig",
        FILE,
        "",
        "Kubeconfig for checking permissions of requests (SubjectAccessReview).",
    ),
    Flag(
        "authorization-always-allow-paths",
        STRINGS,
        ("/healthz", "/readyz", "/livez"),
        "Paths that need no permission.",
    ),
    Flag("authorization-webhook-cache-authorized-ttl", DURATION, 10.0, "How long a permission is cached."),
    Flag("authorization-webhook-cache-unauthorized-ttl", DURATION, 10.0, "How long a refusal is cached."),
)

DEPRECATED: Final = (
    _deprecated("kubeconfig", FILE, "", "Kubeconfig of the API server. Ignored with --config."),
    _deprecated("kube-api-qps", FLOAT, 50.0, "Requests per second. Ignored with --config."),
    _deprecated("kube-api-burst", INT, 100, "Maximum burst of requests. Ignored with --config."),
    _deprecated(
        "kube-api-content-type",
        STRING,
        "application/vnd.kubernetes.protobuf",
        "Media type of requests; berth sends JSON. Ignored with --config.",
    ),
    _deprecated("profiling", BOOL, True, "Serve profiles at /debug/pprof/. Ignored with --config."),
    _deprecated(
        "contention-profiling",
        BOOL,
        True,
        "Copied into the configuration; no other effect. Ignored with --config.",
    ),
    Flag(
        "pod-max-in-unschedulable-pods-duration",
        DURATION,
        300.0,
        "An unschedulable pod is requeued after this time without an event.",
        Standing.DEPRECATED,
    ),
)

_FEATURE_GATES: Final = (
    Flag("feature-gates", GATES, (), "Feature gates that differ from the defaults of kube-scheduler 1.37."),
    Flag("emulated-version", EMULATED, (), EMULATED_HELP),
    _ignored("emulation-forward-compatible", BOOL, False),
    _ignored("min-compatibility-version", STRINGS, ()),
    _ignored("runtime-config-emulation-forward-compatible", BOOL, False),
)

_METRICS: Final = (
    _ignored("allow-metric-labels", STRINGS, ()),
    _ignored("allow-metric-labels-manifest", FILE, ""),
    _ignored("disabled-metrics", STRINGS, ()),
    _ignored("show-hidden-metrics-for-version", STRING, ""),
    _ignored("unsupported-kube-api-over-localhost", BOOL, False),
)

_LOGS: Final = (
    Flag("v", LEVEL, 0, "Verbosity; from 2 on every attempt is logged.", shorthand="v"),
    Flag("logging-format", STRING, "text", "Format of the log: text or json."),
    _ignored("vmodule", STRINGS, ()),
    _ignored("log-flush-frequency", DURATION, 5.0),
    _ignored("log-json-info-buffer-size", STRING, "0"),
    _ignored("log-json-split-stream", BOOL, False),
    _ignored("log-text-info-buffer-size", STRING, "0"),
    _ignored("log-text-split-stream", BOOL, False),
    Flag("version", VERSION, False, "Print the version, and exit."),
)

SECTIONS: Final[Mapping[str, tuple[Flag, ...]]] = {
    "misc": _MISC,
    "leader election": LEADER_ELECTION,
    "secure serving": _SECURE_SERVING,
    "authentication": _AUTHENTICATION,
    "authorization": _AUTHORIZATION,
    "deprecated": DEPRECATED,
    "feature gate": _FEATURE_GATES,
    "metrics": _METRICS,
    "logs": _LOGS,
}

FLAGS: Final[Mapping[str, Flag]] = {flag.name: flag for flags in SECTIONS.values() for flag in flags}
"""All flags, by name."""


def shown(flag: Flag, value: Value) -> str:
    """Return a flag's value as Go writes it."""
    match value:
        case bool(is_on):
            return str(is_on).lower()
        case float(number) if flag.kind is DURATION:
            return format_seconds(number)
        case float(number):
            return f"{number:g}"
        case tuple(texts):
            return f"[{','.join(texts)}]"
        case _:
            return str(value)
