"""A Pod object -> the typed record that queue, tables, requests and plugins share.

Made once, at ingest (host) or from a `PodSummary` (served plugin). Fields follow the contract's
`PodSummary`; what it lacks is read from `Pod.object`, which a plugin asks for with `pod_need`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from berth_sdk.errors import ObjectError
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.pod_affinity import PodAffinity
from berth_sdk.pod_requests import requests_of
from berth_sdk.pod_volume import PodVolume, volumes_of

DEFAULT_SCHEDULER_NAME: Final = "default-scheduler"
_EMPTY: Final[Mapping[str, Any]] = {}
_NOT_READ: Final = PodAffinity()


@dataclass(frozen=True, slots=True)
class Toleration:
    """One toleration; the empty operator reads as Equal, the empty effect as every effect."""

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
        """The same port with both defaults written out."""
        return HostPort(self.ip or "0.0.0.0", self.protocol or "TCP", self.port)


@dataclass(frozen=True, slots=True)
class OwnerRef:
    """The controller that made the pod."""

    api_version: str
    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """One pod. Quantities: cpu in milli, all else in base units. Times: Unix seconds.

    `node_name` is spec.nodeName. `requests`, `non_zero_requests` and `score_requests` are those of
    `berth_sdk.pod_requests.PodRequests`. `images` has one entry per init container, container and
    image volume, repeats included. `object` is None where only the summary is known.
    """

    name: str
    namespace: str = "default"
    uid: str = ""
    resource_version: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0
    requests: Mapping[str, int] = field(default_factory=dict)
    non_zero_requests: Mapping[str, int] = field(default_factory=dict)
    score_requests: Mapping[str, int] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    owner: OwnerRef | None = None
    scheduler_name: str = DEFAULT_SCHEDULER_NAME
    node_name: str = ""
    nominated_node: str = ""
    scheduling_gates: tuple[str, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    images: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    never_preempts: bool = False
    terminating: bool = False
    created_at_s: float | None = None
    started_at_s: float | None = None
    object: KubeObject | None = None
    _signature: bytes | None = field(default=None, init=False, repr=False, compare=False)
    """What `berth_sdk.signature` found for it, once asked."""
    _pod_affinity: PodAffinity | None = field(default=_NOT_READ, init=False, repr=False, compare=False)
    _volumes: tuple[PodVolume, ...] | None = field(default=None, init=False, repr=False, compare=False)
    """See `volumes`: made at ingest, or of an object that came over the wire once asked."""

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def ref(self) -> ObjectRef:
        """The reference that the contract and the API use."""
        return ObjectRef(
            namespace=self.namespace,
            name=self.name,
            uid=self.uid,
            resource_version=self.resource_version,
        )

    @property
    def spec(self) -> Mapping[str, Any]:
        """The object's spec, empty where the object is not known."""
        return (self.object.parsed.get("spec") or _EMPTY) if self.object else _EMPTY

    @property
    def pod_affinity(self) -> PodAffinity | None:
        """The terms of `spec.affinity.podAffinity` and `podAntiAffinity`; None: the pod has neither, or came
        without its object.
        """
        known = self._pod_affinity
        if known is _NOT_READ:
            known = self._read_pod_affinity()
            object.__setattr__(self, "_pod_affinity", known)
        return known

    def _read_pod_affinity(self) -> PodAffinity | None:
        if self.object is None:
            return None
        was_parsed = self.object.is_parsed
        known = PodAffinity.of_spec(self.spec, self.namespace)
        if not was_parsed:
            # One of many pods on nodes: nobody reads more of its object, and the parsed form is large.
            self.object.release()
        return known

    @property
    def volumes(self) -> tuple[PodVolume, ...]:
        """The volumes that name storage, in order; empty where the object is not known."""
        known = self._volumes
        if known is None:
            was_parsed = self.object is None or self.object.is_parsed
            known = volumes_of(self.spec, self.name)
            object.__setattr__(self, "_volumes", known)
            if self.node_name and self.object is not None and not was_parsed:
                self.object.release()
        return known

    def on_node(self, node_name: str) -> Pod:
        """This pod as it will be once it is bound to `node_name`."""
        # `dataclasses.replace` costs five times as much, and every cycle needs one.
        bound = object.__new__(Pod)
        for name in Pod.__slots__:
            object.__setattr__(bound, name, getattr(self, name))
        object.__setattr__(bound, "node_name", node_name)
        return bound

    @staticmethod
    def from_object(source: KubeObject | Mapping[str, Any]) -> Pod:
        """Read a core/v1 Pod. Raises ObjectError with the path of what is malformed.

        Resizes recorded in the status count only for a pod that is on a node.
        """
        kube_object = source if isinstance(source, KubeObject) else KubeObject.of(source)
        raw = kube_object.parsed
        metadata = mapping(raw, "metadata")
        spec = mapping(raw, "spec")
        status = mapping(raw, "status")
        node_name = spec.get("nodeName") or ""
        try:
            requests = requests_of(spec, status if node_name else None)
            containers = [*items(spec, "initContainers"), *items(spec, "containers")]
            volumes = items(spec, "volumes")
            name = metadata.get("name") or ""
            pod = Pod(
                name=name,
                namespace=metadata.get("namespace") or "default",
                uid=metadata.get("uid") or "",
                resource_version=metadata.get("resourceVersion") or "",
                labels=strings(metadata, "metadata", "labels"),
                annotations=strings(metadata, "metadata", "annotations"),
                priority=_integer(spec.get("priority"), "spec.priority"),
                requests=requests.requests,
                non_zero_requests=requests.non_zero,
                score_requests=requests.score,
                node_selector=strings(spec, "spec", "nodeSelector"),
                tolerations=tuple(
                    Toleration(
                        item.get("key") or "",
                        item.get("operator") or "",
                        item.get("value") or "",
                        item.get("effect") or "",
                    )
                    for item in items(spec, "tolerations")
                ),
                owner=_controller(metadata),
                scheduler_name=spec.get("schedulerName") or DEFAULT_SCHEDULER_NAME,
                node_name=node_name,
                nominated_node=status.get("nominatedNodeName") or "",
                scheduling_gates=tuple(item.get("name") or "" for item in items(spec, "schedulingGates")),
                host_ports=_host_ports(spec),
                images=(
                    *(container.get("image") or "" for container in containers),
                    *(volume["image"].get("reference") or "" for volume in volumes if volume.get("image")),
                ),
                claims=_claims(name, volumes),
                never_preempts=spec.get("preemptionPolicy") == "Never",
                terminating=metadata.get("deletionTimestamp") is not None,
                created_at_s=timestamp(metadata.get("creationTimestamp")),
                started_at_s=timestamp(status.get("startTime")),
                object=kube_object,
            )
            # Now, while the object is parsed: of a pod on a node the host keeps the bytes alone.
            object.__setattr__(pod, "_pod_affinity", PodAffinity.of_spec(spec, pod.namespace))
            object.__setattr__(pod, "_volumes", volumes_of(spec, name) if volumes else ())
            return pod
        except (AttributeError, TypeError, KeyError) as err:
            # A list where a map is due, a number where a string is due: the shape is wrong somewhere.
            raise ObjectError("", f"not a Pod: {err}") from err


def mapping(parent: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The map under `key`, empty where it is missing. Raises ObjectError for another type."""
    value = parent.get(key)
    if value is None:
        return _EMPTY
    if type(value) is not dict and not isinstance(value, Mapping):
        raise ObjectError(key, f"must be a map, not {type(value).__name__}")
    return value


def items(parent: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """The list of maps under `key`, empty where it is missing. Raises ObjectError."""
    value = parent.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise ObjectError(key, f"must be a list, not {type(value).__name__}")
    for i, item in enumerate(value):
        if type(item) is not dict and not isinstance(item, Mapping):
            raise ObjectError(f"{key}[{i}]", f"must be a map, not {type(item).__name__}")
    return value


def strings(parent: Mapping[str, Any], path: str, key: str) -> Mapping[str, str]:
    """The map of strings under `key`, empty where it is missing. Raises ObjectError."""
    value = parent.get(key)
    if not value:
        return {}
    if not isinstance(value, Mapping):
        raise ObjectError(f"{path}.{key}", f"must be a map, not {type(value).__name__}")
    for name, text in value.items():
        if not isinstance(text, str):
            raise ObjectError(
                f"{path}.{key}.{name}",
                f"must be a string, not {type(text).__name__}: put it in quotes",
            )
    return value


def timestamp(text: str | None) -> float | None:
    """RFC 3339 -> Unix seconds. Raises ObjectError."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError) as err:
        raise ObjectError("", f"{text!r} is not an RFC 3339 time") from err
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _integer(value: Any, path: str) -> int:
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int):
        raise ObjectError(path, f"must be an integer, not {value!r}")
    return value


def _controller(metadata: Mapping[str, Any]) -> OwnerRef | None:
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller"):
            return OwnerRef(
                owner.get("apiVersion") or "",
                owner.get("kind") or "",
                owner.get("name") or "",
                owner.get("uid") or "",
            )
    return None


def _host_ports(spec: Mapping[str, Any]) -> tuple[HostPort, ...]:
    # Plain init containers have ended before the pod's ports matter; sidecars have not.
    holders = [c for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"]
    return tuple(
        HostPort(port.get("hostIP") or "", port.get("protocol") or "", port["hostPort"])
        for container in (*holders, *(spec.get("containers") or ()))
        for port in container.get("ports") or ()
        if (port.get("hostPort") or 0) > 0
    )


def _claims(pod_name: str, volumes: list[Mapping[str, Any]]) -> tuple[str, ...]:
    names: list[str] = []
    for volume in volumes:
        if volume.get("persistentVolumeClaim"):
            names.append(volume["persistentVolumeClaim"].get("claimName") or "")
        elif volume.get("ephemeral"):
            names.append(f"{pod_name}-{volume.get('name') or ''}")
    return tuple(names)
