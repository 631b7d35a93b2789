"""The cases: for each list of an object, a function that makes the object with a list of any length.

A case is measured by one pod. In a case about pods this pod has the list. In the others, objects with the
list exist before, and the pod is one that makes the scheduler read them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from berth_bench.versus.objects import node, pod, pod_group

Json: TypeAlias = dict[str, Any]
SCARCE: Final = "example.com/scarce"
"""A resource of which every node has one."""
HIGH: Final = "hostile-high"
"""The PriorityClass of pods that preempt."""
APP: Final = {"app": "hostile"}
"""The labels of every pod that is measured."""
ZONE: Final = "topology.kubernetes.io/zone"
HOST: Final = "kubernetes.io/hostname"
DRIVER: Final = "driver.example.com"
_NODE: Final = "hostile-node"
_NESTED: Final = "@nested@"
_OPENED: Final = re.compile(r'(?:\{"f:a":)+\{\}')


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """The objects of a case. `pod`: the measured pod. `judged`: the object with the list. `before`: objects
    that exist before the pod, with the judged one unless that is the pod. `with_pod`: pods that are created
    together with the measured one, and measured with it.
    """

    pod: Json
    judged: Json
    before: Sequence[Json] = ()
    with_pod: Sequence[Json] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A list to make long. `make(size, nodes)`: the objects, on a cluster with so many nodes. `most`: the
    longest list that is tried; 0: any that fits. `pod_groups`: the API server must serve pod
    groups.
    """

    name: str
    make: Callable[[int, int], Made]
    most: int = 0
    pod_groups: bool = False

    @property
    def about(self) -> str:
        """The kind of object that has the list."""
        return self.name.partition("/")[0]

    def largest(self, most_bytes: int) -> int:
        """Return the longest list with which the object has at most `most_bytes` as JSON, or `most`."""
        few, many = (len(encoded(self.make(size, 1).judged)) for size in (64, 128))
        size = max(1, 64 + int((most_bytes - few) / max((many - few) / 64, 0.01)))
        size = min(size, self.most or size)
        # Numbers have more digits in longer lists.
        while size > 1 and (over := len(encoded(self.make(size, 1).judged)) / most_bytes) > 1:
            size = max(1, int(size / over) - 1)
        return size


def encoded(content: Json) -> bytes:
    """Return an object as JSON, with the nesting of `nested` in full."""
    text = json.dumps(content, separators=(",", ":"))
    head, sign, rest = text.partition(f'"{_NESTED}')
    if not sign:
        return text.encode()
    levels, _, tail = rest.partition('"')
    opened, closed = '{"f:a":' * int(levels), "}" * int(levels)
    return f"{head}{opened}{{}}{closed}{tail}".encode()


def without_nesting(text: str) -> str:
    """Return JSON of an API server without the nesting of `nested`, too deep for Python's parser."""
    opened = _OPENED.search(text)
    if opened is None:
        return text
    levels = opened.group().count("f:a")
    return f"{text[: opened.start()]}{{}}{text[opened.end() + levels :]}"


def in_full(content: Any) -> Any:
    """Return an object, or a part of one, with the nesting of `nested` in full."""
    if isinstance(content, dict):
        return {key: in_full(value) for key, value in content.items()}
    if isinstance(content, list):
        return [in_full(value) for value in content]
    if isinstance(content, str) and content.startswith(_NESTED):
        whole: Json = {}
        for _ in range(int(content.removeprefix(_NESTED))):
            whole = {"f:a": whole}
        return whole
    return content


def nested(levels: int) -> str:
    """Return a value that `encoded` and `in_full` write as so many objects inside each other."""
    return f"{_NESTED}{levels}"


# --- pods ------------------------------------------------------------------------------------------


def _pod(spec: Mapping[str, Any] | None = None, *, name: str = "hostile", **metadata: Any) -> Json:
    made = pod(name, **(spec or {}))
    made["metadata"] |= {"labels": dict(APP), **metadata}
    return made


def _of_pod(fields: Callable[[int], Json]) -> Callable[[int, int], Made]:
    """Return a `make` for pods with these fields of the spec."""

    def make(size: int, _nodes: int) -> Made:
        made = _pod(fields(size))
        return Made(pod=made, judged=made)

    return make


def _of_metadata(fields: Callable[[int], Json]) -> Callable[[int, int], Made]:
    def make(size: int, _nodes: int) -> Made:
        made = _pod(**fields(size))
        return Made(pod=made, judged=made)

    return make


def _of_container(fields: Callable[[int], Json]) -> Callable[[int, int], Made]:
    def make(size: int, _nodes: int) -> Made:
        made = _pod()
        made["spec"]["containers"][0] |= fields(size)
        return Made(pod=made, judged=made)

    return make


def _spread(key: str, when: str, selector: Json | None = None) -> Json:
    return {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": when,
        "labelSelector": {"matchLabels": dict(APP)} if selector is None else selector,
    }


def _spreads(when: str) -> Callable[[int], Json]:
    return lambda size: _spread_over(range(size), when)


def _spread_over(keys: range, when: str) -> Json:
    return {"topologySpreadConstraints": [_spread(f"example.com/t{at}", when) for at in keys]}


def _many_keys(size: int, nodes: int) -> Made:
    """Return a pod that is spread over topologies which one node has all of."""
    keys = [f"example.com/t{at}" for at in range(size)]
    made = _pod({"topologySpreadConstraints": [_spread(key, "DoNotSchedule") for key in keys]})
    return Made(pod=made, judged=made, before=[node(_NODE, **dict.fromkeys(keys, "a"))])


def _values(size: int, operator: str = "In", key: str = "app") -> Json:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": _names(size)}]}


def _expressions(size: int) -> Json:
    return {"matchExpressions": [{"key": f"k{at}", "operator": "DoesNotExist"} for at in range(size)]}


def _names(size: int) -> list[str]:
    return [f"v{at}" for at in range(size)]


def _term(selector: Json, **more: Any) -> Json:
    return {"labelSelector": selector, "topologyKey": HOST, **more}


def _terms(size: int) -> list[Json]:
    return [_term({"matchLabels": {"app": f"v{at}"}}) for at in range(size)]


def _matching(size: int) -> list[Json]:
    """Return terms that all match the pod itself, and differ in their topology."""
    return _matching_over(range(size))


def _matching_over(keys: range) -> list[Json]:
    return [_term({"matchLabels": dict(APP)}) | {"topologyKey": f"example.com/t{at}"} for at in keys]


def _required(kind: str, terms: Callable[[int], list[Json]]) -> Callable[[int], Json]:
    return lambda size: {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms(size)}}}


def _preferred(kind: str, terms: Callable[[int], list[Json]]) -> Callable[[int], Json]:
    return lambda size: {
        "affinity": {
            kind: {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "podAffinityTerm": term} for term in terms(size)
                ]
            }
        }
    }


def _node_terms(terms: Callable[[int], list[Json]]) -> Callable[[int], Json]:
    return lambda size: {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms(size)}
            }
        }
    }


def _node_preferences(size: int) -> Json:
    preferences = [{"weight": 1, "preference": _values(1, key=f"k{at}")} for at in range(size)]
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferences}}}


def _named(size: int, *, name: str = "c", **more: Any) -> list[Json]:
    return [{"name": f"{name}{at}", "image": "a", **more} for at in range(size)]


def _host_ports(size: int) -> Json:
    protocols = ("TCP", "UDP", "SCTP")
    ports = [(port, protocol) for port in range(1, 65536) for protocol in protocols][:size]
    return {
        "ports": [{"containerPort": one, "hostPort": one, "protocol": protocol} for one, protocol in ports]
    }


def _volumes(source: Callable[[int], Json]) -> Callable[[int], Json]:
    return lambda size: {"volumes": [{"name": f"v{at}", **source(at)} for at in range(size)]}


def _bound_claims(size: int, _nodes: int) -> Made:
    """Return a pod with volumes that exist, each bound to its claim."""
    made = _pod(_volumes(lambda at: {"persistentVolumeClaim": {"claimName": f"c{at}"}})(size))
    pairs = [part for at in range(size) for part in _volume(f"c{at}")]
    return Made(pod=made, judged=made, before=pairs)


def _volume(name: str, **spec: Any) -> tuple[Json, Json]:
    """Return a PersistentVolume and the claim that it is bound to."""
    common = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "",
    }
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            **common,
            "capacity": {"storage": "1Gi"},
            "csi": {"driver": DRIVER, "volumeHandle": name},
            "claimRef": {"kind": "PersistentVolumeClaim", "namespace": "default", "name": name},
            **spec,
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name,
            "annotations": {
                "pv.kubernetes.io/bind-completed": "yes",
                "pv.kubernetes.io/bound-by-controller": "yes",
            },
        },
        "spec": {**common, "resources": {"requests": {"storage": "1Gi"}}, "volumeName": name},
        "status": {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}},
    }
    return volume, claim


def _tolerations(size: int) -> list[Json]:
    return [
        {"key": f"k{at}", "operator": "Equal", "value": "v", "effect": "NoSchedule"} for at in range(size)
    ]


def _taints(size: int, effect: str = "NoSchedule") -> list[Json]:
    return [{"key": f"k{at}", "value": "v", "effect": effect} for at in range(size)]


def _managed(levels: Any, entries: int = 1) -> list[Json]:
    """Return `managedFields`. `levels`: the value of `fieldsV1`."""
    return [
        {
            "manager": f"m{at}",
            "operation": "Update",
            "apiVersion": "v1",
            "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": levels,
        }
        for at in range(entries)
    ]


def _deep(size: int) -> Json:
    return {"managedFields": _managed({"f:metadata": {"f:labels": nested(size)}})}


def _owners(size: int) -> list[Json]:
    return [{"apiVersion": "v1", "kind": "Pod", "name": f"o{at}", "uid": f"u{at}"} for at in range(size)]


# --- nodes -----------------------------------------------------------------------------------------


def _of_node(fields: Callable[[int], Json], spec: Json | None = None) -> Callable[[int, int], Made]:
    """Return a `make` for one more node with these fields, merged into `metadata`, `spec` and `status`."""

    def make(size: int, _nodes: int) -> Made:
        made = node(_NODE)
        for part, content in fields(size).items():
            made.setdefault(part, {}).update(content)
        return Made(pod=_pod(spec), judged=made, before=[made])

    return make


def _tainted(effect: str) -> Callable[[int, int], Made]:
    """Return a node and a pod that tolerates all of its taints."""

    def make(size: int, _nodes: int) -> Made:
        tolerations = [{**one, "effect": effect} for one in _tolerations(size)]
        made = node(_NODE)
        made["spec"] = {"taints": _taints(size, effect)}
        judged = _pod({"tolerations": tolerations})
        return Made(pod=judged, judged=judged, before=[made])

    return make


def _images(size: int) -> Json:
    return {"status": {"images": [{"names": [f"i{at}:v1"], "sizeBytes": 1 << 28} for at in range(size)]}}


def _images_of_both(size: int, _nodes: int) -> Made:
    """Return a pod whose containers' images are all on one node."""
    made = node(_NODE)
    made["status"] |= _images(size)["status"]
    judged = _pod({"containers": [{"name": f"c{at}", "image": f"i{at}:v1"} for at in range(size)]})
    return Made(pod=judged, judged=judged, before=[made])


def _resources(size: int) -> Json:
    amounts = {f"example.com/r{at}": "1" for at in range(size)}
    return {
        "status": {
            "capacity": {**node("")["status"]["capacity"], **amounts},
            "allocatable": {**node("")["status"]["allocatable"], **amounts},
        }
    }


# --- other objects ---------------------------------------------------------------------------------


def _of_volume(spec: Callable[[int], Json]) -> Callable[[int, int], Made]:
    """Return a `make` for a PersistentVolume with these fields, which the pod uses."""

    def make(size: int, _nodes: int) -> Made:
        volume, claim = _volume("hostile", **spec(size))
        uses = _pod({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "hostile"}}]})
        return Made(pod=uses, judged=volume, before=[volume, claim])

    return make


def _storage_class(size: int, _nodes: int) -> Made:
    """Return a claim that waits for its pod, whose class lists so many topologies."""
    made = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "hostile"},
        "provisioner": DRIVER,
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [
            {"matchLabelExpressions": [{"key": HOST, "values": [f"v{at}"]}]} for at in range(size)
        ],
    }
    _, claim = _volume("hostile")
    claim["metadata"].pop("annotations")
    claim.pop("status")
    claim["spec"].pop("volumeName")
    claim["spec"]["storageClassName"] = "hostile"
    uses = _pod({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "hostile"}}]})
    return Made(pod=uses, judged=made, before=[made, claim])


def _csi_node(size: int, _nodes: int) -> Made:
    made = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": "node-0"},
        "spec": {"drivers": [{"name": f"d{at}.example.com", "nodeID": "n"} for at in range(size)]},
    }
    uses = _pod({"volumes": [{"name": "v", "csi": {"driver": "d0.example.com"}}]})
    return Made(pod=uses, judged=made, before=[made])


_ASKS: Final[Json] = {"requests": {SCARCE: "1"}, "limits": {SCARCE: "1"}}
"""The resources of a container that leave no room for another one with them on the node."""


def _victims(nodes: int) -> list[Json]:
    """Return pods that fill every node."""
    made = [_pod({"nodeName": f"node-{number}"}, name=f"victim-{number}") for number in range(nodes)]
    for one in made:
        one["spec"]["containers"][0]["resources"] = _ASKS
    return made


def _preemptor(spec: Mapping[str, Any] | None = None) -> Json:
    """Return a pod that has to evict another one."""
    made = _pod({"priorityClassName": HIGH, **(spec or {})})
    made["spec"]["containers"][0]["resources"] = _ASKS
    return made


def _of_preemptor(fields: Callable[[int], Json]) -> Callable[[int, int], Made]:
    """Return a `make` for a pod with these fields of the spec that has to evict another one."""

    def make(size: int, nodes: int) -> Made:
        made = _preemptor(fields(size))
        return Made(pod=made, judged=made, before=_victims(nodes))

    return make


def _of_victim(fields: Callable[[int], Json]) -> Callable[[int, int], Made]:
    """Return a `make` for a pod that has to evict one of many, one of which has these fields of the spec."""

    def make(size: int, nodes: int) -> Made:
        victims = _victims(nodes)
        victims[0]["spec"] |= fields(size)
        return Made(pod=_preemptor(), judged=victims[0], before=victims)

    return make


def _waiting_claim(size: int, _nodes: int) -> Made:
    """Return a claim that waits for its pod, whose selector has so many conditions, and a free volume."""
    volume, claim = _volume("hostile")
    del volume["spec"]["claimRef"]
    volume["spec"]["storageClassName"] = claim["spec"]["storageClassName"] = "hostile"
    claim["metadata"].pop("annotations")
    claim.pop("status")
    claim["spec"].pop("volumeName")
    claim["spec"]["selector"] = _expressions(size)
    storage_class = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "hostile"},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    uses = _pod({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "hostile"}}]})
    return Made(pod=uses, judged=claim, before=[storage_class, volume, claim])


def _budget(selector: Callable[[int], Json]) -> Callable[[int, int], Made]:
    """Return a budget of pods that fill every node, and a pod that has to evict one of them."""

    def make(size: int, nodes: int) -> Made:
        made = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "hostile", "namespace": "default"},
            "spec": {"minAvailable": 0, "selector": selector(size)},
        }
        return Made(pod=_preemptor(), judged=made, before=[*_victims(nodes), made])

    return make


def _claim(name: str, config: Sequence[Json] = (), requests: int = 1) -> Json:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {
            "devices": {
                "requests": [
                    {"name": f"r{at}", "exactly": {"deviceClassName": "hostile"}} for at in range(requests)
                ],
                **({"config": list(config)} if config else {}),
            }
        },
    }


_CLASS: Final[Json] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "hostile"},
    "spec": {},
}


def _slice(devices: int, **device: Any) -> Json:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "hostile"},
        "spec": {
            "driver": DRIVER,
            "nodeName": "node-0",
            "pool": {"name": "node-0", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"d{at}", **device} for at in range(devices)],
        },
    }


def _claims(size: int, _nodes: int) -> Made:
    """Return a pod that names so many claims, which are few, each of one device."""
    few = [_claim(f"c{at}") for at in range(min(size, 16))]
    named = [{"name": f"c{at}", "resourceClaimName": f"c{at % 16}"} for at in range(size)]
    made = _pod({"resourceClaims": named})
    return Made(pod=made, judged=made, before=[_CLASS, _slice(128), *few])


def _allocated_claims(size: int, _nodes: int) -> Made:
    """Return a pod with so many claims, each of which has a device of its own."""
    claims = [_claim(f"c{at}") for at in range(size)]
    for at, one in enumerate(claims):
        result = {"request": "r0", "driver": DRIVER, "pool": "node-0", "device": f"d{at}"}
        # Without a time, the pod's reservation would add one, which the API server refuses.
        written = {"allocationTimestamp": "2026-01-01T00:00:00Z", "devices": {"results": [result]}}
        one["status"] = {"allocation": written}
    named = [{"name": f"c{at}", "resourceClaimName": f"c{at}"} for at in range(size)]
    made = _pod({"resourceClaims": named})
    return Made(pod=made, judged=made, before=[_CLASS, _slice(128), *claims])


def _of_claim(claim: Callable[[int], Json]) -> Callable[[int, int], Made]:
    def make(size: int, _nodes: int) -> Made:
        made = claim(size)
        uses = _pod({"resourceClaims": [{"name": "c", "resourceClaimName": made["metadata"]["name"]}]})
        return Made(pod=uses, judged=made, before=[_CLASS, _slice(128), made])

    return make


def _parameters(value: Any) -> list[Json]:
    return [{"requests": ["r0"], "opaque": {"driver": DRIVER, "parameters": value}}]


def _selectors(size: int) -> Json:
    """Return a claim with one request, which selects its device with so many long expressions."""
    made = _claim("hostile")
    equal = " || ".join(f'device.attributes["{DRIVER}"].a0 == "v{at}"' for at in range(180))
    made["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = [
        {"cel": {"expression": f'device.driver == "{DRIVER}" || {equal}'}} for _ in range(size)
    ]
    return made


def _of_slice(size: int, _nodes: int) -> Made:
    attributes = {f"a{at}": {"string": "x" * 64} for at in range(31)}
    made = _slice(size, attributes=attributes)
    claim = _claim("hostile")
    expression = f'device.attributes["{DRIVER}"].a0 == "y"'
    claim["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = [{"cel": {"expression": expression}}]
    uses = _pod({"resourceClaims": [{"name": "c", "resourceClaimName": "hostile"}]})
    return Made(pod=uses, judged=made, before=[_CLASS, made, claim])


def _of_selecting_slice(term: Callable[[int], Json]) -> Callable[[int, int], Made]:
    """Return a `make` for a ResourceSlice with this term as node selector, and a pod that gets its device."""

    def make(size: int, _nodes: int) -> Made:
        made = _slice(1)
        del made["spec"]["nodeName"]
        made["spec"]["nodeSelector"] = {"nodeSelectorTerms": [term(size)]}
        uses = _pod({"resourceClaims": [{"name": "c", "resourceClaimName": "hostile"}]})
        return Made(pod=uses, judged=made, before=[_CLASS, made, _claim("hostile")])

    return make


def _pool(size: int, _nodes: int) -> Made:
    """Return a pool of so many ResourceSlices, which no expression of the claim selects a device of."""
    slices = [_slice(16, attributes={"a0": {"string": "x" * 64}}) for _ in range(size)]
    for number, one in enumerate(slices):
        one["metadata"]["name"] = f"hostile-{number}"
        one["spec"]["pool"]["resourceSliceCount"] = size
        for device in one["spec"]["devices"]:
            device["name"] += f"-{number}"
    claim = _claim("hostile")
    expression = f'device.attributes["{DRIVER}"].a0 == "y"'
    claim["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = [{"cel": {"expression": expression}}]
    uses = _pod({"resourceClaims": [{"name": "c", "resourceClaimName": "hostile"}]})
    return Made(pod=uses, judged=slices[0], before=[_CLASS, *slices, claim])


_OF_CROWD: Final = 128
"""The length of the list of each pod of a crowd."""


def _crowd(fields: Callable[[range], Json]) -> Callable[[int, int], Made]:
    """Return a `make` for so many pods at once, each with a list of its own."""

    def make(size: int, _nodes: int) -> Made:
        pods = [
            _pod(fields(range(number * _OF_CROWD, (number + 1) * _OF_CROWD)), name=f"crowd-{number}")
            for number in range(size - 1)
        ]
        made = _pod(fields(range(size * _OF_CROWD, (size + 1) * _OF_CROWD)))
        return Made(pod=made, judged=made, with_pod=pods)

    return make


def _of_group(fields: Callable[[int], Json]) -> Callable[[int, int], Made]:
    """Return a `make` for a PodGroup of one pod, with these fields of the metadata."""

    def make(size: int, _nodes: int) -> Made:
        made = pod_group("hostile", 1)
        made["metadata"] |= fields(size)
        uses = _pod({"schedulingGroup": {"podGroupName": "hostile"}})
        return Made(pod=uses, judged=made, before=[made])

    return make


def _namespace(size: int, _nodes: int) -> Made:
    """Return a pod whose anti-affinity selects namespaces by their labels."""
    made: Json = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "hostile", "labels": {f"k{at}": "v" for at in range(size)}},
    }
    term = _term({"matchLabels": dict(APP)}, namespaceSelector={"matchLabels": {"k0": "v"}})
    uses = _pod(_required("podAntiAffinity", lambda _: [term])(1))
    return Made(pod=uses, judged=made, before=[made])


def _service(size: int, _nodes: int) -> Made:
    """Return a Service with so long a selector, which the default spread constraints read."""
    made: Json = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "hostile", "namespace": "default"},
        "spec": {"selector": {f"k{at}": "v" for at in range(size)}, "ports": [{"port": 80}]},
    }
    return Made(pod=_pod(), judged=made, before=[made])


_ANTI, _TO = "podAntiAffinity", "podAffinity"

CASES: Final = (
    Case(name="pod/spread constraints", make=_of_pod(_spreads("DoNotSchedule"))),
    Case(name="pod/spread preferences", make=_of_pod(_spreads("ScheduleAnyway"))),
    Case(name="pod/spread constraints, a node has all keys", make=_many_keys),
    Case(
        name="pod/values of a spread selector",
        make=_of_pod(
            lambda size: {"topologySpreadConstraints": [_spread(ZONE, "DoNotSchedule", _values(size))]}
        ),
    ),
    Case(
        name="pod/expressions of a spread selector",
        make=_of_pod(
            lambda size: {"topologySpreadConstraints": [_spread(ZONE, "DoNotSchedule", _expressions(size))]}
        ),
    ),
    Case(name="pod/affinity terms", make=_of_pod(_required(_TO, _terms))),
    Case(name="pod/affinity terms that match the pod", make=_of_pod(_required(_TO, _matching))),
    Case(name="pod/anti-affinity terms", make=_of_pod(_required(_ANTI, _terms))),
    Case(name="pod/anti-affinity terms that match the pod", make=_of_pod(_required(_ANTI, _matching))),
    Case(name="pod/preferred affinity terms", make=_of_pod(_preferred(_TO, _terms))),
    Case(name="pod/preferred anti-affinity terms", make=_of_pod(_preferred(_ANTI, _matching))),
    Case(
        name="pod/values of an affinity selector",
        make=_of_pod(_required(_ANTI, lambda size: [_term(_values(size))])),
    ),
    Case(
        name="pod/expressions of an affinity selector",
        make=_of_pod(_required(_ANTI, lambda size: [_term(_expressions(size))])),
    ),
    Case(
        name="pod/namespaces of an affinity term",
        make=_of_pod(
            _required(_ANTI, lambda size: [_term({"matchLabels": dict(APP)}, namespaces=_names(size))])
        ),
    ),
    Case(
        name="pod/namespace selector of an affinity term",
        make=_of_pod(
            _required(
                _ANTI, lambda size: [_term({"matchLabels": dict(APP)}, namespaceSelector=_expressions(size))]
            )
        ),
    ),
    Case(
        name="pod/node affinity terms",
        make=_of_pod(_node_terms(lambda size: [_values(1, key=f"k{at}") for at in range(size)])),
    ),
    Case(
        name="pod/node affinity expressions",
        make=_of_pod(_node_terms(lambda size: [_expressions(size)])),
    ),
    Case(
        name="pod/node affinity values",
        make=_of_pod(_node_terms(lambda size: [_values(size, "NotIn", HOST)])),
    ),
    Case(
        name="pod/node affinity fields",
        make=_of_pod(
            _node_terms(
                lambda size: [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [f"v{at}"]}]}
                    for at in range(size)
                ]
            )
        ),
    ),
    Case(name="pod/node affinity preferences", make=_of_pod(_node_preferences)),
    Case(
        name="pod/node selector",
        make=_of_pod(lambda size: {"nodeSelector": {f"k{at}": "v" for at in range(size)}}),
    ),
    Case(name="pod/tolerations", make=_of_pod(lambda size: {"tolerations": _tolerations(size)})),
    Case(name="pod/tolerations, a node has all taints", make=_tainted("NoSchedule")),
    Case(name="pod/tolerations, a node prefers no pod", make=_tainted("PreferNoSchedule")),
    Case(name="pod/containers", make=_of_pod(lambda size: {"containers": _named(size)})),
    Case(name="pod/containers, a node has all images", make=_images_of_both),
    Case(
        name="pod/containers with requests",
        make=_of_pod(
            lambda size: {"containers": _named(size, resources={"requests": {"cpu": "1m", "memory": "1k"}})}
        ),
    ),
    Case(name="pod/init containers", make=_of_pod(lambda size: {"initContainers": _named(size, name="i")})),
    Case(
        name="pod/sidecars",
        make=_of_pod(
            lambda size: {
                "initContainers": _named(
                    size, name="i", restartPolicy="Always", resources={"requests": {"cpu": "1m"}}
                )
            }
        ),
    ),
    Case(name="pod/host ports", make=_of_container(_host_ports), most=3 * 65535),
    Case(
        name="pod/ports",
        make=_of_container(lambda size: {"ports": [{"containerPort": 1 + at} for at in range(size)]}),
        most=65535,
    ),
    Case(
        name="pod/environment variables",
        make=_of_container(lambda size: {"env": [{"name": f"E{at}", "value": "v"} for at in range(size)]}),
    ),
    Case(name="pod/arguments", make=_of_container(lambda size: {"args": _names(size)})),
    Case(
        name="pod/requested resources",
        make=_of_container(
            lambda size: {
                "resources": {
                    what: {f"example.com/r{at}": "1" for at in range(size)} for what in ("requests", "limits")
                }
            }
        ),
    ),
    Case(name="pod/volumes", make=_of_pod(_volumes(lambda _: {"emptyDir": {}}))),
    Case(
        name="pod/volumes of claims that do not exist",
        make=_of_pod(_volumes(lambda at: {"persistentVolumeClaim": {"claimName": f"c{at}"}})),
    ),
    Case(name="pod/volumes of bound claims", make=_bound_claims, most=1000),
    Case(
        name="pod/inline CSI volumes",
        make=_of_pod(_volumes(lambda at: {"csi": {"driver": f"d{at % 50}.example.com"}})),
    ),
    Case(name="pod/disks", make=_of_pod(_volumes(lambda at: {"gcePersistentDisk": {"pdName": f"p{at}"}}))),
    Case(
        name="pod/iSCSI disks",
        make=_of_pod(
            _volumes(
                lambda at: {
                    "iscsi": {"targetPortal": "10.0.0.1", "iqn": f"iqn.2026-01.com.example:{at}", "lun": 0}
                }
            )
        ),
    ),
    Case(name="pod/device claims", make=_claims),
    Case(name="pod/allocated claims", make=_allocated_claims, most=1000),
    Case(
        name="pod/scheduling gates",
        make=_of_pod(lambda size: {"schedulingGates": [{"name": f"g{at}"} for at in range(size)]}),
    ),
    Case(
        name="pod/labels",
        make=_of_metadata(lambda size: {"labels": {**APP, **{f"k{at}": "v" for at in range(size)}}}),
    ),
    Case(
        name="pod/annotations",
        make=_of_metadata(lambda size: {"annotations": {f"k{at}": "v" for at in range(size)}}),
    ),
    Case(name="pod/owners", make=_of_metadata(lambda size: {"ownerReferences": _owners(size)})),
    Case(
        name="pod/finalizers",
        make=_of_metadata(lambda size: {"finalizers": [f"example.com/f{at}" for at in range(size)]}),
    ),
    Case(name="pod/depth of managedFields", make=_of_metadata(_deep), most=9000),
    Case(
        name="pod/entries of managedFields",
        make=_of_metadata(lambda size: {"managedFields": _managed({"f:spec": {}}, size)}),
    ),
    Case(
        name="pod/readiness gates",
        make=_of_pod(
            lambda size: {"readinessGates": [{"conditionType": f"example.com/c{at}"} for at in range(size)]}
        ),
    ),
    Case(
        name="pod/host aliases",
        make=_of_pod(lambda size: {"hostAliases": [{"ip": "10.0.0.1", "hostnames": _names(size)}]}),
    ),
    Case(
        name="pod/image pull secrets",
        make=_of_pod(lambda size: {"imagePullSecrets": [{"name": f"s{at}"} for at in range(size)]}),
    ),
    Case(name="node/taints", make=_of_node(lambda size: {"spec": {"taints": _taints(size)}})),
    Case(
        name="node/taints that prefer no pod",
        make=_of_node(lambda size: {"spec": {"taints": _taints(size, "PreferNoSchedule")}}),
    ),
    Case(
        name="node/labels",
        make=_of_node(
            lambda size: {"metadata": {"labels": {HOST: _NODE, **{f"k{at}": "v" for at in range(size)}}}}
        ),
    ),
    Case(
        name="node/annotations",
        make=_of_node(lambda size: {"metadata": {"annotations": {f"k{at}": "v" for at in range(size)}}}),
    ),
    Case(name="node/images", make=_of_node(_images)),
    Case(name="node/resources", make=_of_node(_resources)),
    Case(
        name="node/conditions",
        make=_of_node(
            lambda size: {
                "status": {"conditions": [{"type": f"C{at}", "status": "False"} for at in range(size)]}
            }
        ),
    ),
    Case(
        name="node/depth of managedFields", make=_of_node(lambda size: {"metadata": _deep(size)}), most=9000
    ),
    Case(
        name="volume/node affinity terms",
        make=_of_volume(
            lambda size: {
                "nodeAffinity": {
                    "required": {"nodeSelectorTerms": [_values(1, key=f"k{at}") for at in range(size)]}
                }
            }
        ),
    ),
    Case(
        name="volume/node affinity values",
        make=_of_volume(
            lambda size: {"nodeAffinity": {"required": {"nodeSelectorTerms": [_values(size, "NotIn", HOST)]}}}
        ),
    ),
    Case(name="storage class/topologies", make=_storage_class),
    Case(name="volume claim/expressions of the selector", make=_waiting_claim),
    Case(name="CSINode/drivers", make=_csi_node),
    Case(name="claim/requests", make=_of_claim(lambda size: _claim("hostile", requests=size)), most=32),
    Case(
        name="claim/opaque parameters",
        make=_of_claim(
            lambda size: _claim(
                "hostile", [one for _ in range(size) for one in _parameters({"a": "x" * 10_000})]
            )
        ),
        most=32,
    ),
    Case(
        name="claim/depth of opaque parameters",
        make=_of_claim(lambda size: _claim("hostile", _parameters({"a": nested(size)}))),
        most=1200,
    ),
    Case(name="claim/selectors of a request", make=_of_claim(_selectors), most=32),
    Case(name="slice/devices with attributes", make=_of_slice, most=128),
    Case(
        name="slice/values of the node selector",
        make=_of_selecting_slice(lambda size: _values(size, "NotIn", HOST)),
    ),
    Case(name="slice/conditions of the node selector", make=_of_selecting_slice(_expressions)),
    Case(name="slice/slices of a pool", make=_pool, most=500),
    Case(
        name="group/labels",
        make=_of_group(lambda size: {"labels": {f"k{at}": "v" for at in range(size)}}),
        pod_groups=True,
    ),
    Case(name="group/depth of managedFields", make=_of_group(_deep), most=9000, pod_groups=True),
    Case(name="victim/anti-affinity terms", make=_of_victim(_required(_ANTI, _terms))),
    Case(name="victim/tolerations", make=_of_victim(lambda size: {"tolerations": _tolerations(size)})),
    Case(name="victim/volumes", make=_of_victim(_volumes(lambda _: {"emptyDir": {}}))),
    Case(
        name="victim/ephemeral containers",
        make=_of_victim(
            lambda size: {
                "ephemeralContainers": _named(
                    size, name="e", imagePullPolicy="Never", terminationMessagePolicy="File"
                )
            }
        ),
    ),
    Case(name="preemptor/spread constraints", make=_of_preemptor(_spreads("ScheduleAnyway"))),
    Case(name="preemptor/affinity terms that match the pod", make=_of_preemptor(_required(_ANTI, _matching))),
    Case(name="preemptor/tolerations", make=_of_preemptor(lambda size: {"tolerations": _tolerations(size)})),
    Case(
        name="crowd/spread preferences",
        make=_crowd(lambda keys: _spread_over(keys, "ScheduleAnyway")),
        most=200,
    ),
    Case(
        name="crowd/anti-affinity terms that match the pod",
        make=_crowd(lambda keys: _required(_ANTI, lambda _: _matching_over(keys))(len(keys))),
        most=200,
    ),
    Case(name="budget/values of the selector", make=_budget(_values)),
    Case(name="budget/expressions of the selector", make=_budget(_expressions)),
    Case(name="namespace/labels", make=_namespace),
    Case(name="service/selector", make=_service),
)


def chosen(names: Sequence[str]) -> tuple[Case, ...]:
    """Return the named cases, or all. A name without a slash means all cases about that kind of object.

    Raises KeyError with the first unknown name.
    """
    found: dict[str, Case] = {}
    for name in names:
        matching = {one.name: one for one in CASES if name in (one.name, one.about)}
        if not matching:
            raise KeyError(name)
        found |= matching
    return tuple(found.values()) if names else CASES
