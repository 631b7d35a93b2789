"""The sources of metrics: a load-watcher, the HTTP API of Prometheus, and metrics.k8s.io of an API server.

`source_of` makes the source that the plugin's arguments name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from berth_plugins.args.findings import Findings, mapping
from berth_sdk.clocks import wall_s
from berth_sdk.quantity import milli_value, whole_value
from berth_sdk.rfc3339 import parse_time

from berth_scheduler_plugins.arguments import refuse_unknown, text
from berth_scheduler_plugins.load.http_client import JsonClient, SourceError
from berth_scheduler_plugins.load.samples import (
    AVERAGE,
    CPU,
    DEVIATION,
    GPU,
    LATEST,
    MEMORY,
    Metric,
    Sample,
)

METRICS_SERVER, PROMETHEUS, SIGNAL_FX = "KubernetesMetricsServer", "Prometheus", "SignalFx"
RULES: Final = {
    CPU: "instance:node_cpu:ratio",
    MEMORY: "instance:node_memory_utilisation:ratio",
    GPU: "",
}
"""The series with the used fraction of a node, as the original asks for them; "": not asked."""
_WINDOW: Final = "15m"
_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
"""The name of a metric of Prometheus."""
_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_PROVIDER: Final = ("type", "address", "token", "insecureSkipVerify", "caFile", "series", "nodeLabel")


class Source(Protocol):
    """Reads the load of all nodes."""

    address: str
    """The server that is asked."""

    def read(self) -> Sample:
        """Return the load. Raises SourceError where the server cannot be read or answers something else."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


def source_of(args: Mapping[str, Any]) -> Source:
    """Return the source that `watcherAddress` or `metricProvider` names. Raises PluginArgsError."""
    watcher = text(args, "watcherAddress", "watcherAddress")
    if watcher:
        return LoadWatcher(_checked(watcher, "watcherAddress"))
    provider = mapping(args, "metricProvider", "metricProvider") or {}
    refuse_unknown(provider, _PROVIDER)
    kind = text(provider, "type", "metricProvider.type") or METRICS_SERVER
    address = text(provider, "address", "metricProvider.address")
    token = text(provider, "token", "metricProvider.token")
    ca_file = text(provider, "caFile", "metricProvider.caFile")
    insecure = provider.get("insecureSkipVerify", kind == PROMETHEUS)
    findings = Findings()
    if not isinstance(insecure, bool):
        findings.invalid("metricProvider.insecureSkipVerify", insecure, "must be true or false")
    if kind not in (METRICS_SERVER, PROMETHEUS):
        known = f"use {METRICS_SERVER}, {PROMETHEUS}, or the watcherAddress of a load-watcher"
        findings.invalid("metricProvider.type", kind, f"invalid MetricProvider.Type, got {kind}: {known}")
    if kind == PROMETHEUS and not address:
        findings.required(
            "metricProvider.address", "name the address of Prometheus, such as http://prometheus:9090"
        )
    findings.check()
    if kind == PROMETHEUS:
        client = JsonClient(
            _checked(address, "metricProvider.address"), token=token, ca_file=ca_file, insecure=insecure
        )
        return Prometheus(
            client, _series(provider), text(provider, "nodeLabel", "metricProvider.nodeLabel") or "instance"
        )
    return MetricsApi(address, token, ca_file, insecure)


class LoadWatcher:
    """Implements `Source` by a load-watcher's `GET /watcher`."""

    def __init__(self, address: str) -> None:
        self._client = JsonClient(address)
        self.address = self._client.address

    def read(self) -> Sample:
        """Return the load."""
        answer = self._client.get("/watcher")
        try:
            found = (answer.get("data") or {}).get("NodeMetricsMap") or {}
            end_s = (answer.get("window") or {}).get("end") or answer.get("timestamp")
            return Sample(
                None if end_s is None else float(end_s),
                {
                    name: [
                        Metric(str(item.get("type")), str(item.get("operator") or ""), float(item["value"]))
                        for item in node.get("metrics") or ()
                        if item.get("value") is not None
                    ]
                    for name, node in found.items()
                },
            )
        except (AttributeError, TypeError, ValueError, KeyError) as err:
            raise SourceError(f"{self.address}/watcher answered something else than metrics: {err}") from err

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


class Prometheus:
    """Implements `Source` by instant queries: average and deviation over 15 minutes of each series.

    `series`: PromQL for the used fraction of a node, by kind of metric. `label`: has the name of the node.
    """

    def __init__(self, client: JsonClient, series: Mapping[str, str], label: str) -> None:
        self._client = client
        self._series = series
        self._label = label
        self.address = client.address

    def read(self) -> Sample:
        """Return the load. Raises SourceError too where Prometheus has none of the series."""
        nodes: dict[str, list[Metric]] = {}
        end_s: float | None = None
        for kind, series in self._series.items():
            # The name of a series is a range by itself; an expression needs a subquery.
            is_name = _NAME.fullmatch(series) is not None
            window = f"{series}[{_WINDOW}]" if is_name else f"({series})[{_WINDOW}:]"
            for operator, function in ((AVERAGE, "avg_over_time"), (DEVIATION, "stddev_over_time")):
                for name, at_s, value in self._vector(f"{function}({window})"):
                    nodes.setdefault(name, []).append(Metric(kind, operator, 100 * value))
                    end_s = at_s if end_s is None else max(end_s, at_s)
        if not nodes:
            wanted = ", ".join(self._series.values())
            raise SourceError(
                f"{self.address} has no series of {wanted} with the label {self._label!r}: record them, or"
                " name others in metricProvider.series and metricProvider.nodeLabel"
            )
        return Sample(end_s, nodes)

    def _vector(self, query: str) -> list[tuple[str, float, float]]:
        """Return (node, Unix seconds, value) of each series of the answer that has the label."""
        answer = self._client.get("/api/v1/query", {"query": query})
        try:
            return [
                (item["metric"][self._label], float(item["value"][0]), float(item["value"][1]))
                for item in answer["data"]["result"]
                if self._label in item["metric"]
            ]
        except (AttributeError, TypeError, ValueError, KeyError, IndexError) as err:
            raise SourceError(f"{self.address} answered something else than a vector: {err!r}") from err

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


class MetricsApi:
    """Implements `Source` by `NodeMetrics` of metrics.k8s.io/v1beta1, which have amounts and no deviation.

    Without an address, the API server and the service account of the pod that this process runs in.
    """

    def __init__(self, address: str, token: str, ca_file: str, insecure: bool) -> None:
        host = os.environ.get("KUBERNETES_SERVICE_HOST", "kubernetes.default.svc")
        if ":" in host:
            host = f"[{host}]"
        port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        self.address = address.rstrip("/") or f"https://{host}:{port}"
        self._token = token
        self._is_own = not address
        account = str(_ACCOUNT / "ca.crt")
        self._ca_file = ca_file or (account if self._is_own and Path(account).exists() else "")
        self._insecure = insecure
        self._client: tuple[str, JsonClient] | None = None

    def read(self) -> Sample:
        """Return the load."""
        answer = self._connected().get("/apis/metrics.k8s.io/v1beta1/nodes")
        nodes: dict[str, list[Metric]] = {}
        ends_s: dict[str, float] = {}
        try:
            for item in answer["items"]:
                name, usage = item["metadata"]["name"], item["usage"]
                nodes[name] = [
                    Metric(CPU, LATEST, milli_value(usage["cpu"]), is_amount=True),
                    Metric(MEMORY, LATEST, whole_value(usage["memory"]), is_amount=True),
                ]
                ends_s[name] = parse_time(item["timestamp"])
        except (AttributeError, TypeError, ValueError, KeyError) as err:
            raise SourceError(f"{self.address} answered something else than NodeMetrics: {err!r}") from err
        return Sample(max(ends_s.values(), default=wall_s()), nodes, ends_s)

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client[1].close()

    def _connected(self) -> JsonClient:
        """Return the client for the present token: that of a service account is replaced while it is used."""
        token = self._token
        if not token and self._is_own:
            try:
                token = (_ACCOUNT / "token").read_text(encoding="utf-8").strip()
            except OSError as err:
                raise SourceError(
                    f"{self.address}: this process has no service account ({err.strerror}): set"
                    " metricProvider.address and metricProvider.token, or watcherAddress"
                ) from err
        if self._client is None or self._client[0] != token:
            self.close()
            client = JsonClient(self.address, token=token, ca_file=self._ca_file, insecure=self._insecure)
            self._client = token, client
        return self._client[1]


def _series(provider: Mapping[str, Any]) -> dict[str, str]:
    named = mapping(provider, "series", "metricProvider.series") or {}
    keys = {"cpu": CPU, "memory": MEMORY, "gpu": GPU}
    refuse_unknown(named, tuple(keys))
    series = {
        kind: text(named, key, f"metricProvider.series.{key}") or RULES[kind] for key, kind in keys.items()
    }
    return {kind: one for kind, one in series.items() if one}


def _checked(address: str, path: str) -> str:
    findings = Findings()
    if not address.startswith(("http://", "https://")):
        findings.invalid(path, address, "must begin with http:// or https://")
    findings.check()
    return address
