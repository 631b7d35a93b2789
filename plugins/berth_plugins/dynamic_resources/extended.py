"""Container requests for extended resources that device classes provide -> a claim's device requests.

Containers that run at the same time have their own requests. Init containers that end share the largest of
their requests, and reuse the devices of the containers after them.

Source: KEP-5004; `dynamicresources/extendeddynamicresources.go`, v1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from berth_sdk.pod import Pod
from berth_sdk.quantity import whole_value

from berth_plugins.dynamic_resources.requests import EXACT_COUNT

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Wish:
    """A number of devices of `class_name` for the container at `index` in the list of all."""

    name: str
    class_name: str
    count: int

    @property
    def request(self) -> Json:
        exactly = {
            "deviceClassName": self.class_name,
            "allocationMode": EXACT_COUNT,
            "count": self.count,
        }
        return {"name": self.name, "exactly": exactly}


@dataclass(frozen=True, slots=True)
class _Mapping:
    container: str
    resource: str
    request: str

    @property
    def entry(self) -> Json:
        return {"containerName": self.container, "resourceName": self.resource, "requestName": self.request}


def requests_for(pod: Pod, served: Mapping[str, str]) -> tuple[list[Json], list[Json]]:
    """Return the device requests, by name, and for each container the requests of its resources
    (`pod.status.extendedResourceClaimStatus.requestMappings`).

    `served`: class by resource.
    """
    wishes: list[_Wish] = []
    mappings: list[_Mapping] = []
    for resource in sorted(served):
        more, mapped = _of_resource(pod, resource, served[resource])
        wishes.extend(more)
        mappings.extend(mapped)
    wishes.sort(key=lambda one: one.name)
    return [one.request for one in wishes], [one.entry for one in mappings]


def _of_resource(pod: Pod, resource: str, class_name: str) -> tuple[list[_Wish], list[_Mapping]]:
    init = pod.spec.get("initContainers") or []
    containers = [*init, *(pod.spec.get("containers") or ())]
    passing = {i for i, one in enumerate(init) if one.get("restartPolicy") != "Always"}
    lasting: list[_Wish | None] = [None] * len(containers)
    mappings: list[_Mapping] = []
    for i, container in enumerate(containers):
        if i not in passing:
            lasting[i], mapped = _wish(i, container, resource, class_name, ())
            mappings.extend(mapped)
    largest: _Wish | None = None
    names: set[str] = set()
    passing_mappings: list[_Mapping] = []
    for i in sorted(passing):
        wish, mapped = _wish(i, containers[i], resource, class_name, lasting[i:])
        if wish is not None:
            names.add(wish.name)
            if largest is None or largest.count < wish.count:
                largest = wish
        passing_mappings.extend(mapped)
    if largest is not None:
        mappings.extend(
            replace(one, request=largest.name) if one.request in names else one for one in passing_mappings
        )
    else:
        mappings.extend(passing_mappings)
    return [one for one in (largest, *lasting) if one is not None], mappings


def _wish(
    index: int,
    container: Mapping[str, Any],
    resource: str,
    class_name: str,
    reusable: Iterable[_Wish | None],
) -> tuple[_Wish | None, Sequence[_Mapping]]:
    """Return the devices that the container needs beyond reusable ones, and all that it uses."""
    requests = (container.get("resources") or {}).get("requests") or {}
    wanted = whole_value(requests[resource]) if resource in requests else 0
    if wanted <= 0:
        return None, ()
    mappings: list[_Mapping] = []
    there = 0
    for one in reusable:
        if one is not None:
            there += one.count
            mappings.append(_Mapping(container.get("name") or "", resource, one.name))
            if there >= wanted:
                return None, mappings
    # The position among the container's resources by name, since a map has no order.
    name = f"container-{index}-request-{sorted(requests).index(resource)}"
    mappings.append(_Mapping(container.get("name") or "", resource, name))
    return _Wish(name, class_name, wanted - there), mappings
