"""The default selector of a pod without its own: the pods of its services and its owner.

Used by PodTopologySpread for its default constraints.

Source: `pkg/scheduler/framework/plugins/helper/spread.go` (DefaultSelector), v1.36.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from berth_sdk.errors import SelectorError
from berth_sdk.events import ClusterEvent, EventInterest, EventObject, Hint
from berth_sdk.handle import Handle, ObjectReader
from berth_sdk.kube_object import KubeObject
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.selectors import LabelSelector

from berth_plugins.objects.of_events import as_object

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
"""The needs that a plugin with `DefaultSelectors` must declare."""
_SERVICE: Final = "Service"
_OWNER_EVENTS: Final[Mapping[str, str]] = {
    "ReplicationController": "ReplicationController",
    "apps/ReplicaSet": "ReplicaSet",
    "apps/StatefulSet": "StatefulSet",
}
"""Resource of an event -> kind of the owner."""
RESOURCES: Final = frozenset({_SERVICE, *_OWNER_EVENTS})
"""The resources of `EVENTS`."""
EVENTS: Final = tuple(
    EventInterest(resource, hint=Hint.ASK_PLUGIN) for resource in (_SERVICE, *_OWNER_EVENTS)
)
"""The events that can change a default selector. `may_change` is their hint."""

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
        """Return the joint selector of the pod's services and its controller; empty if the pod has none."""
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

    def versions(self) -> tuple[int, ...]:
        """Return the versions of the objects from which selectors were made so far. While they are equal,
        equal pods have equal selectors.
        """
        return tuple([reader.version for reader in self._readers.values()])

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
            # A service without a selector has manually created endpoints: it selects no pod.
            raw = (service.get("spec.selector") for service in reader.list(namespace))
            found = self._services[namespace] = [one for one in raw if isinstance(one, Mapping)]
        return found

    def _reader(self, resource: str) -> ObjectReader:
        reader = self._readers.get(resource)
        if reader is None:
            reader = self._readers[resource] = self._handle.objects(resource)
        return reader


def may_change(event: ClusterEvent, pod: Pod) -> bool:
    """Return True when the Service or owner of `event` (one of `RESOURCES`) gives `pod` another selector."""
    subject = as_object(event.old if event.new is None else event.new)
    if subject.ref.namespace != pod.namespace:
        return False
    if event.resource == _SERVICE:
        return bool(_given_by_service(event.old, pod) != _given_by_service(event.new, pod))
    owner = pod.owner
    if owner is None or (owner.kind, owner.name) != (_OWNER_EVENTS[event.resource], subject.ref.name):
        return False
    return bool(_selector_of(event.old) != _selector_of(event.new))


def _given_by_service(service: EventObject | None, pod: Pod) -> Any:
    """Return the part of the pod's selector that comes from the service. None: the service does not select
    the pod.
    """
    wanted = _selector_of(service)
    if not isinstance(wanted, Mapping) or any(pod.labels.get(key) != value for key, value in wanted.items()):
        return None
    return wanted


def _selector_of(value: EventObject | None) -> Any:
    return None if value is None else as_object(value).get("spec.selector")


def _read(raw: Any) -> LabelSelector:
    """Return a selector, empty if it cannot be read."""
    try:
        return LabelSelector.of(raw, "spec.selector")
    except SelectorError:
        return LabelSelector()


def _requirements(selector: LabelSelector) -> tuple[Any, ...]:
    return selector.requirements or ()
