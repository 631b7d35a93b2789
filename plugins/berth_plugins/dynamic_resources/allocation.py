"""The devices chosen for a claim -> the AllocationResult of its status.

Source: `allocator_incubating.go` (Allocate, createNodeSelector), v1.37.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from berth_sdk import chance
from berth_sdk.kube_object import KubeObject
from berth_sdk.slices import Work

from berth_plugins.dynamic_resources.rules import Rules
from berth_plugins.dynamic_resources.search import AllocationError, Choice, ClaimToAllocate

Json = dict[str, Any]
_OPAQUE: Final = "opaque"
_Condition = tuple[Any, Any, frozenset[str]]


def allocation_for(
    claim: ClaimToAllocate,
    choices: Sequence[Choice],
    node_name: str,
    classes: Callable[[str], KubeObject | None],
    rules: Rules,
) -> Work[Json]:
    """Return the whole result for one claim on one node. Yields after each entry of a configuration, and
    after each condition of a node selector. Raises AllocationError.
    """
    devices: Json = {"results": [_result(choice, rules) for choice in choices]}
    config = yield from _config(claim, choices, classes, rules)
    if config:
        devices["config"] = config
    allocation: Json = {"devices": devices}
    selector = yield from _node_selector(claim, choices, node_name)
    if selector is not None:
        allocation["nodeSelector"] = selector
    return allocation


def _result(choice: Choice, rules: Rules) -> Json:
    device, request = choice.candidate.device, choice.request
    result: Json = {
        "request": request.full_name,
        "driver": device.id.driver,
        "pool": device.id.pool,
        "device": device.id.device,
    }
    if request.admin_access:
        result["adminAccess"] = True
    if request.raw_tolerations:
        result["tolerations"] = list(request.raw_tolerations)
    if device.binding_conditions and rules.binding_conditions:
        result["bindingConditions"] = list(device.binding_conditions)
    if device.binding_failure_conditions and rules.binding_conditions:
        result["bindingFailureConditions"] = list(device.binding_failure_conditions)
    if choice.amounts is not None:
        result["shareID"] = chance.new_uid()
        if choice.amounts:
            result["consumedCapacity"] = {name: text for name, (_, text) in choice.amounts.items()}
    return result


def _config(
    claim: ClaimToAllocate,
    choices: Sequence[Choice],
    classes: Callable[[str], KubeObject | None],
    rules: Rules,
) -> Work[list[Json]]:
    """Return the configuration of each class once, with its requests, and then the claim's."""
    taken = {choice.request.parent or choice.request.name: choice.request for choice in choices}
    by_class: dict[str, list[str]] = {}
    for requests in claim.requests:
        request = taken.get(requests.name, requests.alternatives[0])
        by_class.setdefault(request.class_name, []).append(request.full_name)
    config: list[Json] = []
    for class_name, names in by_class.items():
        device_class = classes(class_name)
        for raw in (device_class.get("spec.config") if device_class is not None else None) or ():
            config.append({"source": "FromClass", "requests": list(names), **_driver_part(raw)})
    for raw in (claim.spec.get("devices") or {}).get("config") or ():
        wanted = raw.get("requests") or []
        counts = 1 if not wanted else sum(_is_for(wanted, one.name, taken) for one in claim.requests)
        for _ in range(min(counts, 1) if rules.single_config else counts):
            config.append({"source": "FromClaim", "requests": list(wanted), **_driver_part(raw)})
    for one in config:
        yield
        names = one["requests"]
        if rules.single_config:
            is_for_all = all(_is_for(names, request.name, taken) for request in claim.requests)
        else:
            is_for_all = len(names) == len(claim.requests)
        if not names or is_for_all:
            # Without names, the configuration is for every request.
            del one["requests"]
    return config


def _is_for(wanted: Sequence[str], name: str, taken: Mapping[str, Any]) -> bool:
    return name in wanted or (name in taken and taken[name].full_name in wanted)


def _driver_part(raw: Mapping[str, Any]) -> Json:
    return {_OPAQUE: raw[_OPAQUE]} if raw.get(_OPAQUE) is not None else {}


def _node_selector(claim: ClaimToAllocate, choices: Iterable[Choice], node_name: str) -> Work[Json | None]:
    """Return the nodes where the devices can be used together. None: all nodes."""
    term: dict[str, dict[_Condition, Json]] = {"matchFields": {}, "matchExpressions": {}}
    seen: set[int] = set()
    for choice in choices:
        device = choice.candidate.device
        place = device.place if choice.candidate.slice.per_device else choice.candidate.slice.place
        if place.node_name is not None or device.binds_to_node:
            name = {"key": "metadata.name", "operator": "In", "values": [node_name]}
            return {"nodeSelectorTerms": [{"matchFields": [name]}]}
        terms = (place.raw_selector or {}).get("nodeSelectorTerms") or []
        if len(terms) > 1:
            raise AllocationError(
                f"create NodeSelector for claim {claim.key.rpartition('/')[2]}: unsupported"
                f" ResourceSlice.NodeSelector with {len(terms)} terms"
            )
        if id(place) in seen:
            continue
        seen.add(id(place))
        for one in terms:
            for kind, known in term.items():
                for item in one.get(kind) or ():
                    known.setdefault(_condition(item), item)
                    yield
    conditions = {kind: list(known.values()) for kind, known in term.items() if known}
    return {"nodeSelectorTerms": [conditions]} if conditions else None


def _condition(item: Mapping[str, Any]) -> _Condition:
    """Return what makes two conditions the same."""
    return item.get("key"), item.get("operator"), frozenset(item.get("values") or ())
