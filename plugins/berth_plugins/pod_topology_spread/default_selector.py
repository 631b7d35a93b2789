"""The default selector of a pod without its own: the pods of its services and its owner.

Used by PodTopologySpread for its default constraints. Source:
`pkg/scheduler/framework/plugins/helper/spread.go` (DefaultSelector), v1.36.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from berth_sdk.errors import SelectorError
from berth_sdk.handle import Handle, ObjectReader
from berth_sdk.kube_object import KubeObject
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.selectors import LabelSelector

SERVICES: Final = "services"
REPLICATION_CONTROLLERS: Final = "replicationcontrollers"
_OWNERS: Final[Mapping[tuple[str, str], str]] = {
    ("v1", "ReplicationController"): REPLICATION_CONTROLLERS,
    ("apps/v1", "ReplicaSet"): "apps/replicasets",
    ("apps/v1", "StatefulSet"): "apps/statefulsets",
}
NEEDS: Final = (
    Need.objects(SERVICES, "status", "metadata.annotations", "spec.ports"),
    *(
        Need.objects(resource, "status", "metadata.annotations", "spec.template")
        for resource in _OWNERS.values()
    ),
)
"""The needs that a plugin with `DefaultSelectors` has to declare."""

_Selectors = list[Mapping[str, str]]
_NOBODY: Final = LabelSelector.equal_to({})


class DefaultSelectors:
    """Derives selectors from the objects that `handle` reads."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._readers: dict[str, ObjectReader] = {}
        self._services: dict[str, _Selectors] = {}
        self._services_version = -1

    def selector(self, pod: Pod) -> LabelSelector:
        """The joint selector of the pod's services and its controller; empty if it has none."""
        services, owner = self._service_selectors(pod.namespace), self._owner(pod)
        if not services and owner is None:
            return _NOBODY
        labels: dict[str, str] = {}
        for wanted in services:
            if all(pod.labels.get(key) == value for key, value in wanted.items()):
                labels.update(wanted)
        if owner is None or pod.owner is None:
            return LabelSelector.equal_to(labels)
        raw = owner.get("spec.selector")
        if pod.owner.kind == "ReplicationController":
            return LabelSelector.equal_to({**labels, **(raw if isinstance(raw, Mapping) else {})})
        return LabelSelector((*_requirements(LabelSelector.equal_to(labels)), *_requirements(_read(raw))))

    def _owner(self, pod: Pod) -> KubeObject | None:
        if pod.owner is None:
            return None
        resource = _OWNERS.get((pod.owner.api_version, pod.owner.kind))
        return None if resource is None else self._reader(resource).get(pod.owner.name, pod.namespace)

    def _service_selectors(self, namespace: str) -> _Selectors:
        reader = self._reader(SERVICES)
        version = reader.version
        if version != self._services_version:
            self._services.clear()
            self._services_version = version
        found = self._services.get(namespace)
        if found is None:
            # A service without a selector has its endpoints made by hand: it selects no pod.
            raw = (service.get("spec.selector") for service in reader.list(namespace))
            found = self._services[namespace] = [one for one in raw if isinstance(one, Mapping)]
        return found

    def _reader(self, resource: str) -> ObjectReader:
        reader = self._readers.get(resource)
        if reader is None:
            reader = self._readers[resource] = self._handle.objects(resource)
        return reader


def _read(raw: Any) -> LabelSelector:
    """A selector that cannot be read adds nothing."""
    try:
        return LabelSelector.of(raw, "spec.selector")
    except SelectorError:
        return LabelSelector()


def _requirements(selector: LabelSelector) -> tuple[Any, ...]:
    return selector.requirements or ()
