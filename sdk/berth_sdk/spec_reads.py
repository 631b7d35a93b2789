"""The fields of a pod's spec that decide about it: those of the record, and those that plugins declare.

Two pods that are equal in these fields are equal for every plugin of the process, so they share one `PodSpec`
and their signatures. A plugin declares its fields with `Need.whole_pod`; where one of them reads the whole
spec, all of the spec decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any, Final

from berth_sdk.needs import Need, NeedKind

PARSED: Final = (
    "affinity",
    "containers.image",
    "containers.ports.hostIP",
    "containers.ports.hostPort",
    "containers.ports.protocol",
    "containers.resources",
    "initContainers.image",
    "initContainers.ports.hostIP",
    "initContainers.ports.hostPort",
    "initContainers.ports.protocol",
    "initContainers.resources",
    "initContainers.restartPolicy",
    "nodeSelector",
    "overhead",
    "preemptionPolicy",
    "priority",
    "resources",
    "schedulerName",
    "schedulingGates",
    "tolerations",
    "volumes",
)
"""What `PodSpec`, `PodAffinity` and `PodVolume` read, for the fields of `Pod`, which need no declaration. A
list on the way stands for each of its elements. The name of the pod's group is none of these: `Pod.group_key`
has it.
"""
_MARK_BYTES: Final = 8
_NODE_NAME: Final = "nodeName"
_TOKEN_VOLUME: Final = "kube-api-access-"
_CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")
_Tree = dict[str, Any]


def is_token_volume(volume: Mapping[str, Any]) -> bool:
    """Return True if a volume holds the token of the pod's service account, and nothing else.

    The API server's admission gives each pod such a volume, with a random name. It does not limit where the
    pod can run, but would make all pods different. Any user may give this name to a volume of another kind.
    """
    if "projected" not in volume or len(volume) != 2:
        return False
    name = volume.get("name")
    return isinstance(name, str) and name.startswith(_TOKEN_VOLUME)


class SpecReads:
    """The fields that decide. `paths`: dotted; None: all of the spec but the node and the token volumes.

    `mark`: ends the key of a spec that is shared by these fields, so that no spec of other fields has it.
    """

    __slots__ = ("_tree", "mark", "paths")

    def __init__(self, paths: Iterable[str] | None) -> None:
        self.paths = None if paths is None else tuple(sorted(set(paths)))
        self.mark = b""
        self._tree: _Tree = {}
        if self.paths is not None:
            self.mark = blake2b("\0".join(self.paths).encode(), digest_size=_MARK_BYTES).digest()
            for path in self.paths:
                _add(self._tree, path.split("."))

    def __repr__(self) -> str:
        return "ALL_OF_SPEC" if self.paths is None else f"SpecReads({list(self.paths)})"

    @classmethod
    def of(cls, needs: Iterable[Iterable[Need] | None]) -> SpecReads:
        """Return the reads of a profile's plugins, by the needs of each. None: a plugin whose needs are not
        known here, as one that is not attached yet.
        """
        paths = set(PARSED)
        for declared in needs:
            if declared is None:
                return ALL_OF_SPEC
            for need in declared:
                if need.kind is NeedKind.WHOLE_POD:
                    if need.spec_fields is None:
                        return ALL_OF_SPEC
                    paths.update(need.spec_fields)
        return cls(paths)

    def part(self, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the part of a spec that decides. May be the spec itself."""
        if self.paths is None:
            return _without_tokens(spec)
        part = {
            key: spec[key] if below is None else _picked(spec[key], below)
            for key, below in self._tree.items()
            if key in spec
        }
        volumes = part.get("volumes")
        if volumes:
            part["volumes"] = [one for one in volumes if not is_token_volume(one)]
        return part


def _add(tree: _Tree, names: list[str]) -> None:
    """Add a path. A field that is read as a whole stays one, whatever is read below it."""
    name, *below = names
    if not below:
        tree[name] = None
    elif tree.setdefault(name, {}) is not None:
        _add(tree[name], below)


def _picked(value: Any, tree: _Tree) -> Any:
    """Return the fields of the tree. What is malformed stays as it is, and differs."""
    kind = type(value)  # of parsed JSON, which has no other kinds of lists and maps
    if kind is list:
        return [_picked(one, tree) for one in value]
    if kind is not dict:
        return value
    return {
        key: value[key] if below is None else _picked(value[key], below)
        for key, below in tree.items()
        if key in value
    }


def _without_tokens(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part of a spec that the pods of one controller share: all but the node, and the token
    volumes with their mounts.
    """
    tokens = {one["name"] for one in spec.get("volumes") or () if is_token_volume(one)}
    if not tokens:
        return (
            {key: value for key, value in spec.items() if key != _NODE_NAME} if _NODE_NAME in spec else spec
        )
    shared = {key: value for key, value in spec.items() if key not in (_NODE_NAME, "volumes")}
    shared["volumes"] = [one for one in spec["volumes"] if one.get("name") not in tokens]
    for key in _CONTAINERS:
        if shared.get(key):
            shared[key] = [_without_mounts(one, tokens) for one in shared[key]]
    return shared


def _without_mounts(container: Mapping[str, Any], tokens: set[str]) -> Mapping[str, Any]:
    mounts = container.get("volumeMounts")
    if not mounts:
        return container
    return {**container, "volumeMounts": [one for one in mounts if one.get("name") not in tokens]}


ALL_OF_SPEC: Final = SpecReads(None)
