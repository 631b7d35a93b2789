"""The part of a `Pod` that follows from its spec alone, read once for all pods with the same spec.

The pods of one controller differ only in their metadata. Used by `pod`, and by `signature` for the text of
the spec.
"""

from __future__ import annotations

import marshal
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from berth_sdk.parsing.object_fields import integer, items, strings
from berth_sdk.pod_requests import PodRequests, has_resizes, requests_of
from berth_sdk.spec_reads import ALL_OF_SPEC, SpecReads

DEFAULT_SCHEDULER_NAME: Final = "default-scheduler"
MAX_SPECS: Final = 256
MAX_BYTES: Final = 16 * 1024 * 1024
"""The size of all specs that are kept, as `marshal` writes them."""
# The oldest format: equal values of equal types give equal bytes, however they are shared in memory.
_EXACT: Final = 2
_SCORES_POD_LEVEL: Final = b"scores_pod_level"
"""Ends the key of a spec that other hosts of the process may read in the other way."""


@dataclass(frozen=True, slots=True)
class Toleration:
    """One toleration. The empty operator reads as Equal, the empty effect as every effect."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class HostPort:
    """A port on the node. An empty ip reads as 0.0.0.0, an empty protocol as TCP."""

    ip: str
    protocol: str
    port: int

    @property
    def normalized(self) -> HostPort:
        """The port with IP 0.0.0.0 and protocol TCP filled in where they are empty."""
        if self.ip and self.protocol:
            return self
        return HostPort(self.ip or "0.0.0.0", self.protocol or "TCP", self.port)


@dataclass(slots=True, eq=False)
class PodSpec:
    """The parsed spec; fields as in `Pod`. `reads`: the fields in which all pods that share it are equal.

    `wishes`: the text of the spec by `berth_sdk.signature`. `summary`: the spec's part of a `PodSummary`,
    serialised. `signed`: the plugins that the spec was signed for, and their signatures. All three are None
    until first needed.
    """

    priority: int
    requests: PodRequests
    node_selector: Mapping[str, str]
    tolerations: tuple[Toleration, ...]
    scheduler_name: str
    scheduling_gates: tuple[str, ...]
    host_ports: tuple[HostPort, ...]
    images: tuple[str, ...]
    never_preempts: bool
    reads: SpecReads = ALL_OF_SPEC
    wishes: str | None = None
    summary: bytes | None = None
    signed: tuple[object, Any] | None = None

    @staticmethod
    def of(
        spec: Mapping[str, Any],
        status: Mapping[str, Any] | None,
        *,
        resizes_by_container: bool = False,
        scores_pod_level: bool = False,
        reads: SpecReads = ALL_OF_SPEC,
    ) -> PodSpec:
        """Return the parsed spec. `status`: of a pod on a node, whose resizes count; None for other pods.
        `resizes_by_container`, `scores_pod_level`: as for `pod_requests.requests_of`. `reads`: the
        fields that decide; pods that are equal in them share the parsed spec.

        The node name has no effect: a pod has the same `PodSpec` before and after its binding. Nor has the
        random name of the volume with the pod's token. Raises ObjectError, AttributeError, TypeError or
        KeyError for a malformed field.
        """
        if status and has_resizes(spec, status):
            return _read(
                spec,
                status,
                resizes_by_container=resizes_by_container,
                scores_pod_level=scores_pod_level,
                reads=reads,
            )
        try:
            key = marshal.dumps(cast("dict[str, Any]", reads.part(spec)), _EXACT) + reads.mark
        except ValueError:
            # Has values that JSON does not have.
            return _read(spec, None, scores_pod_level=scores_pod_level, reads=reads)
        if scores_pod_level and spec.get("resources"):
            key += _SCORES_POD_LEVEL
        return known_specs.get(key) or known_specs.add(
            key, _read(spec, None, scores_pod_level=scores_pod_level, reads=reads)
        )


class _KnownSpecs(OrderedDict[bytes, PodSpec]):
    """The specs that were read last, by their bytes: at most `MAX_SPECS`, and at most `MAX_BYTES` in all."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def add(self, key: bytes, read: PodSpec) -> PodSpec:
        """Keep a spec, and drop the oldest ones beyond the bounds. Returns the spec."""
        self[key] = read
        self.bytes += len(key)
        while len(self) > MAX_SPECS or self.bytes > MAX_BYTES:
            oldest, _ = self.popitem(last=False)
            self.bytes -= len(oldest)
        return read

    def clear(self) -> None:
        """Drop every spec."""
        super().clear()
        self.bytes = 0


known_specs: Final = _KnownSpecs()


def _read(
    spec: Mapping[str, Any],
    status: Mapping[str, Any] | None,
    *,
    resizes_by_container: bool = False,
    scores_pod_level: bool = False,
    reads: SpecReads,
) -> PodSpec:
    requests = requests_of(
        spec, status, resizes_by_container=resizes_by_container, scores_pod_level=scores_pod_level
    )
    containers = [*items(spec, "initContainers"), *items(spec, "containers")]
    return PodSpec(
        priority=integer(spec.get("priority"), "spec.priority"),
        requests=requests,
        # Copied: later pods must not see changes of this pod's object.
        node_selector=dict(strings(spec, "spec", "nodeSelector")),
        tolerations=tuple(
            Toleration(
                item.get("key") or "",
                item.get("operator") or "",
                item.get("value") or "",
                item.get("effect") or "",
            )
            for item in items(spec, "tolerations")
        ),
        scheduler_name=spec.get("schedulerName") or DEFAULT_SCHEDULER_NAME,
        scheduling_gates=tuple(item.get("name") or "" for item in items(spec, "schedulingGates")),
        host_ports=_host_ports(spec),
        images=(
            *(container.get("image") or "" for container in containers),
            *(
                volume["image"].get("reference") or ""
                for volume in items(spec, "volumes")
                if volume.get("image")
            ),
        ),
        never_preempts=spec.get("preemptionPolicy") == "Never",
        reads=reads,
    )


def _host_ports(spec: Mapping[str, Any]) -> tuple[HostPort, ...]:
    # Plain init containers have ended before the pod's ports matter; sidecars still run.
    holders = [c for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"]
    return tuple(
        HostPort(port.get("hostIP") or "", port.get("protocol") or "", port["hostPort"])
        for container in (*holders, *(spec.get("containers") or ()))
        for port in container.get("ports") or ()
        if (port.get("hostPort") or 0) > 0
    )
