"""A Pod object -> the typed record that queue, tables, requests and plugins share.

The host makes the record once, when it reads the object. A served plugin makes it from a `PodSummary`. The
fields follow the contract's `PodSummary`. Other fields are in `Pod.object`, which a plugin declares with
`Need.whole_pod()`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from berth_sdk.errors import ObjectError, shown
from berth_sdk.kube_object import KubeObject, ObjectRef, object_ref
from berth_sdk.parsing.frozen import draft_of, drafting_copier
from berth_sdk.parsing.object_fields import items, mapping, strings
from berth_sdk.parsing.pod_spec import DEFAULT_SCHEDULER_NAME as DEFAULT_SCHEDULER_NAME
from berth_sdk.parsing.pod_spec import HostPort as HostPort
from berth_sdk.parsing.pod_spec import PodSpec
from berth_sdk.parsing.pod_spec import Toleration as Toleration
from berth_sdk.pod_affinity import MANY, PodAffinity
from berth_sdk.pod_volume import PodVolume, volumes_of
from berth_sdk.rfc3339 import parse_time
from berth_sdk.slices import Work
from berth_sdk.spec_reads import ALL_OF_SPEC, SpecReads
from berth_sdk.undeclared import POD_OBJECT, TrimmedObject, Undeclared, compared_by_parts

COSCHEDULING_LABEL: Final = "scheduling.x-k8s.io/pod-group"
"""The label of a member of coscheduling's PodGroup; its value is the group's name."""
_EMPTY: Final[Mapping[str, Any]] = {}
_NOT_READ: Final = PodAffinity()
# The class of parsed JSON comes first: an abstract one is asked for much longer.
_MAPS: Final = (dict, Mapping)


@dataclass(frozen=True, slots=True)
class OwnerRef:
    """The controller that made the pod."""

    api_version: str
    kind: str
    name: str
    uid: str


@compared_by_parts
@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """One pod. Quantities: cpu in milli, all else in base units. Times: Unix seconds.

    `node_name` is spec.nodeName. `requests`, `non_zero_requests` and `score_requests` are as in
    `berth_sdk.pod_requests.PodRequests`. `images` has one entry per init container, container and image
    volume, with repeats. `group_key` is the key of the pod's `PodGroup`; "" for none, and where the host does
    not schedule pod groups. `object` is None where only the summary is known.
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
    group_key: str = ""
    object: KubeObject | None = None
    _signature: bytes | None = field(default=None, init=False, repr=False, compare=False)
    """The pod's signature by `berth_sdk.signature`. None: not computed yet."""
    shared_spec: PodSpec | None = field(default=None, init=False, repr=False, compare=False)
    """The parsed spec. None: this process did not read the object."""
    _pod_affinity: PodAffinity | None = field(default=_NOT_READ, init=False, repr=False, compare=False)
    _volumes: tuple[PodVolume, ...] | None = field(default=None, init=False, repr=False, compare=False)
    """The value of `volumes`. Read from the object at ingest, or when first asked for if the object came over
    the wire.
    """
    _claims_made: tuple[tuple[str, str], ...] | None = field(
        default=None, init=False, repr=False, compare=False
    )
    """The value of `generated_claims`, read as `_volumes` is."""
    _summary: Pod | None = field(default=None, init=False, repr=False, compare=False)
    """The value of `as_summary`. None: not asked for yet."""

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def ref(self) -> ObjectRef:
        """The reference that the contract and the API use."""
        return object_ref(
            name=self.name, namespace=self.namespace, uid=self.uid, resource_version=self.resource_version
        )

    @property
    def spec(self) -> Mapping[str, Any]:
        """The object's spec; empty where the object is not known. Raises UndeclaredError in a plugin that did
        not declare Need.whole_pod().
        """
        item = self.object
        if item is None:
            return _EMPTY
        if isinstance(item, Undeclared):
            item.refuse("pod.spec")
        return item.parsed.get("spec") or _EMPTY

    @property
    def pod_affinity(self) -> PodAffinity | None:
        """The terms of `spec.affinity.podAffinity` and `podAntiAffinity`. None: the pod has neither, or its
        object is not known.
        """
        known = self._pod_affinity
        if known is _NOT_READ:
            known = self._read_pod_affinity()
            object.__setattr__(self, "_pod_affinity", known)
        return known

    def _read_pod_affinity(self) -> PodAffinity | None:
        item = _readable(self.object, "spec.affinity", "pod.pod_affinity")
        if item is None:
            return None
        was_parsed = item.is_parsed
        known = PodAffinity.of_spec(item.parsed.get("spec") or _EMPTY, self.namespace)
        if not was_parsed:
            # One of many pods on nodes: no code reads more of the object, and the parsed form is large.
            item.release()
        return known

    @property
    def volumes(self) -> tuple[PodVolume, ...]:
        """The volumes that name storage, in order; empty where the object is not known."""
        known = self._volumes
        if known is None:
            item = _readable(self.object, "spec.volumes", "pod.volumes")
            was_parsed = item is None or item.is_parsed
            known = () if item is None else volumes_of(item.parsed.get("spec") or _EMPTY, self.name)
            object.__setattr__(self, "_volumes", known)
            if self.node_name and item is not None and not was_parsed:
                item.release()
        return known

    @property
    def generated_claims(self) -> tuple[tuple[str, str], ...]:
        """(name in the spec, ResourceClaim made for it, "" where none is needed), in the order of
        `status.resourceClaimStatuses`; empty where the object is not known.
        """
        known = self._claims_made
        if known is None:
            item = _readable(self.object, "status.resourceClaimStatuses", "pod.generated_claims")
            status = _EMPTY if item is None else item.parsed.get("status") or _EMPTY
            known = _claims_made(status.get("resourceClaimStatuses"))
            object.__setattr__(self, "_claims_made", known)
        return known

    @property
    def is_whole(self) -> bool:
        """True where the object is known and may be read."""
        return self.object is not None and not isinstance(self.object, Undeclared)

    def as_summary(self) -> Pod:
        """Return this pod for a plugin that did not declare Need.whole_pod().

        Reading a field that is derived from the object raises UndeclaredError. Every call returns the same
        record.
        """
        known = self._summary
        if known is None:
            if isinstance(self.object, Undeclared):
                return self
            draft = _copied(self)
            draft.object = POD_OBJECT
            draft._pod_affinity = _NOT_READ
            draft._volumes = draft._claims_made = draft._summary = None
            draft.__class__ = Pod
            known = draft
            object.__setattr__(self, "_summary", known)
        return known

    def limited(self, labels: Any, annotations: Any, item: Any, dropped: Container[str]) -> Pod:
        """Return this pod with other labels, annotations and object, for `berth_sdk.limits`.

        `dropped`: the derived fields (`pod_affinity`, `volumes`, `generated_claims`) that raise.
        """
        draft = _copied(self)
        draft.labels = labels
        draft.annotations = annotations
        draft.object = item
        if "pod_affinity" in dropped:
            draft._pod_affinity = _NOT_READ
        if "volumes" in dropped:
            draft._volumes = None
        if "generated_claims" in dropped:
            draft._claims_made = None
        draft._summary = None
        draft.__class__ = Pod
        made: Pod = draft
        return made

    def bare(self, absent: Callable[[str], Any]) -> Pod:
        """Return a pod with only name, namespace, uid and resource version. `absent`: makes the stand-in for
        another field, by the field's name.
        """
        draft = _copied(self)
        for name in _BEYOND_REF:
            setattr(draft, name, absent(name))
        draft._pod_affinity = _NOT_READ
        draft._volumes = draft._claims_made = draft._summary = draft.shared_spec = draft._signature = None
        draft.__class__ = Pod
        made: Pod = draft
        return made

    def on_node(self, node_name: str) -> Pod:
        """Return this pod as it will be after its binding to `node_name`."""
        bound = _copied(self)
        bound.node_name = node_name
        bound._summary = None
        bound.__class__ = Pod
        made: Pod = bound
        return made

    def sibling(
        self,
        ref: tuple[str, str, str],
        node_name: str,
        created_at_s: float | None,
        started_at_s: float | None,
        item: KubeObject | None,
    ) -> Pod:
        """Return a pod that differs from this one (which has no object) in reference, node, times and object.
        `ref`: name, uid and resource version.
        """
        pod = _copied(self)
        pod.name, pod.uid, pod.resource_version = ref
        # Copied: a plugin that writes to the maps, which it must not do, then changes its own pod only.
        pod.labels, pod.annotations = dict(self.labels), dict(self.annotations)
        pod.node_name = node_name
        pod.created_at_s = created_at_s
        pod.started_at_s = started_at_s
        pod.object = item
        pod._summary = None
        pod.__class__ = Pod
        made: Pod = pod
        return made

    @staticmethod
    def long_parts(raw: Any) -> Work[Any] | None:
        """Return the work that reads the long lists of a pod before `from_object` does, which then finds them
        read. None: the pod has none. Keep the result of the work until `from_object` has returned.

        `raw`: the object as parsed JSON; `from_object` reports what is malformed.
        """
        if type(raw) is not dict and not isinstance(raw, _MAPS):
            return None
        spec = raw.get("spec")
        if type(spec) is not dict and not isinstance(spec, _MAPS):
            return None
        if not _has_many_containers(spec) and not ("affinity" in spec and PodAffinity.is_long(spec)):
            return None
        metadata = raw.get("metadata")
        namespace = metadata.get("namespace") if isinstance(metadata, Mapping) else None
        return _read_ahead(spec, namespace if isinstance(namespace, str) and namespace else "default")

    @staticmethod
    def from_object(
        source: KubeObject | Mapping[str, Any],
        *,
        groups: bool = False,
        coscheduling: bool = False,
        resizes_by_container: bool = False,
        scores_pod_level: bool = False,
        reads: SpecReads = ALL_OF_SPEC,
    ) -> Pod:
        """Read a core/v1 Pod. Raises ObjectError with the path of a malformed field.

        `groups`: True to read `spec.schedulingGroup`, for a host that schedules pod groups. `coscheduling`:
        True to read the label of coscheduling's PodGroups from a pod without such a group.
        Resizes recorded in the status count only for a pod that is on a node. `resizes_by_container`,
        `scores_pod_level`: as for `pod_requests.requests_of`. `reads`: the fields of the spec that
        decide about the pod in this process.
        """
        kube_object = source if isinstance(source, KubeObject) else KubeObject.of(source)
        raw = kube_object.parsed
        metadata = mapping(raw, "metadata")
        spec = mapping(raw, "spec")
        status = mapping(raw, "status")
        node_name = spec.get("nodeName") or ""
        try:
            if reads is not ALL_OF_SPEC and _has_many_containers(spec):
                reads = ALL_OF_SPEC  # what `long_parts` has read
            read = PodSpec.of(
                spec,
                status if node_name else None,
                resizes_by_container=resizes_by_container,
                scores_pod_level=scores_pod_level,
                reads=reads,
            )
            requests = read.requests
            volumes = items(spec, "volumes") if "volumes" in spec else ()
            pod = _Draft()
            pod.name = name = metadata.get("name") or ""
            pod.namespace = namespace = metadata.get("namespace") or "default"
            pod.uid = metadata.get("uid") or ""
            pod.resource_version = metadata.get("resourceVersion") or ""
            pod.labels = strings(metadata, "metadata", "labels")
            pod.annotations = (
                strings(metadata, "metadata", "annotations") if "annotations" in metadata else {}
            )
            pod.priority = read.priority
            pod.requests = requests.requests
            pod.non_zero_requests = requests.non_zero
            pod.score_requests = requests.score
            pod.node_selector = read.node_selector
            pod.tolerations = read.tolerations
            pod.owner = _controller(metadata) if "ownerReferences" in metadata else None
            pod.scheduler_name = read.scheduler_name
            pod.node_name = node_name
            pod.nominated_node = status.get("nominatedNodeName") or ""
            pod.scheduling_gates = read.scheduling_gates
            pod.host_ports = read.host_ports
            pod.images = read.images
            pod.claims = _claims(name, volumes) if volumes else ()
            pod.never_preempts = read.never_preempts
            pod.terminating = metadata.get("deletionTimestamp") is not None
            pod.created_at_s = timestamp(metadata.get("creationTimestamp"))
            started = status.get("startTime")
            pod.started_at_s = timestamp(started) if started else None
            group = _scheduling_group(spec) if "schedulingGroup" in spec else ""
            if not groups:
                group = ""
            pod.group_key = f"podgroup/{namespace}/{group}" if group else ""
            if coscheduling and not group and (group := pod.labels.get(COSCHEDULING_LABEL, "")):
                pod.group_key = f"podgroup.scheduling.x-k8s.io/{namespace}/{group}"
            pod.object = kube_object
            pod._signature = None
            pod.shared_spec = read
            # Read these now, while the object is parsed: for a pod on a node the host keeps only the bytes.
            pod._pod_affinity = PodAffinity.of_spec(spec, namespace) if "affinity" in spec else None
            pod._volumes = volumes_of(spec, name) if volumes else ()
            claims_made = status.get("resourceClaimStatuses")
            pod._claims_made = _claims_made(claims_made) if claims_made else ()
            pod._summary = None
            pod.__class__ = Pod
            made: Pod = pod
            return made
        except (AttributeError, TypeError, KeyError) as err:
            # A list in place of a map, or a number in place of a string.
            raise ObjectError("", f"not a Pod: {err}") from err


def _scheduling_group(spec: Mapping[str, Any]) -> str:
    name = mapping(spec, "schedulingGroup").get("podGroupName") or ""
    if not isinstance(name, str):
        raise ObjectError("spec.schedulingGroup.podGroupName", f"must be a string, not {type(name).__name__}")
    return name


def _has_many_containers(spec: Mapping[str, Any]) -> bool:
    """Return True if a spec, which may be malformed, has more than MANY containers, or ports of one."""
    containers, first = spec.get("containers"), spec.get("initContainers")
    if first is not None and _are_many(first):
        return True
    if type(containers) is list and len(containers) == 1 and type(one := containers[0]) is dict:
        # Nearly all pods: without a call more.
        return "ports" in one and _are_many_ports(one["ports"])
    return _are_many(containers)


def _are_many(listed: Any) -> bool:
    """Return True for a list of more than MANY containers, or one of which has so many ports."""
    if not isinstance(listed, list):
        return False
    if len(listed) > MANY:
        return True
    return any(_are_many_ports(one.get("ports")) for one in listed if isinstance(one, _MAPS))


def _are_many_ports(ports: Any) -> bool:
    return isinstance(ports, list) and len(ports) > MANY


def _read_ahead(spec: Mapping[str, Any], namespace: str) -> Work[Any]:
    affinity = yield from PodAffinity.read(spec, namespace)
    yield
    try:
        read = PodSpec.of(spec, None)
    except (ObjectError, AttributeError, TypeError, KeyError):
        read = None
    yield
    return affinity, read


_Draft: Final = draft_of(Pod)
_copied: Final = drafting_copier(Pod, _Draft)
_BEYOND_REF: Final = tuple(
    one.name
    for one in fields(Pod)
    if one.init and one.name not in ("name", "namespace", "uid", "resource_version")
)


def _readable(item: KubeObject | Undeclared | None, path: str, part: str) -> KubeObject | None:
    """Return the whole object for reading the field at `path`. Raises UndeclaredError when the plugin did not
    declare the object, or drops the field.
    """
    if isinstance(item, Undeclared):
        item.refuse(part)
    if not isinstance(item, TrimmedObject):
        return item
    if dropped := item.drops.touch(path):
        item.drops.undeclared(part, dropped).refuse()
    return item.origin


def timestamp(text: str | None) -> float | None:
    """Return Unix seconds for an RFC 3339 time, None for an empty text. Raises ObjectError."""
    if not text:
        return None
    try:
        return parse_time(text)
    except ValueError as err:
        raise ObjectError("", f"{shown(text)} is not an RFC 3339 time") from err


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


def _claims(pod_name: str, volumes: list[Mapping[str, Any]]) -> tuple[str, ...]:
    names: list[str] = []
    for volume in volumes:
        if volume.get("persistentVolumeClaim"):
            names.append(volume["persistentVolumeClaim"].get("claimName") or "")
        elif volume.get("ephemeral"):
            names.append(f"{pod_name}-{volume.get('name') or ''}")
    return tuple(names)


def _claims_made(statuses: Any) -> tuple[tuple[str, str], ...]:
    """Return (name, claim) of each well-formed status. Skips malformed ones: the pod must stay readable."""
    if not statuses or not isinstance(statuses, list):
        return ()
    return tuple(
        (one.get("name") or "", one.get("resourceClaimName") or "")
        for one in statuses
        if isinstance(one, Mapping)
    )
