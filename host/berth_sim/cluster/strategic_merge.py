"""Applies strategic merge patches to objects.

Called by the embedded server's `patch`. Neither the object nor the patch is changed; the result shares the
unchanged parts.

    map    merged key by key, null removes           $patch: delete, replace    $retainKeys
    list   merged by its key (`merge_keys`), or      $patch: delete, replace    $setElementOrder/LIST
           replaced whole                            $deleteFromPrimitiveList/LIST

Sources: apimachinery `util/strategicpatch/patch.go` (StrategicMergePatch); for the merge keys the
patchStrategy and patchMergeKey of k8s.io/api `core/v1`, `apps/v1`, `batch/v1`, `policy/v1`, `storage/v1`,
`resource/v1` and apimachinery `meta/v1`, v1.36.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

Path = tuple[str, ...]
SCALARS: Final = ""
"""The merge key of a list of plain values, which is merged as an ordered set."""

_METADATA: Final[Mapping[str, str]] = {"finalizers": SCALARS, "ownerReferences": "uid"}
_CONTAINER: Final[Mapping[str, str]] = {
    "env": "name",
    "ports": "containerPort",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
}
_CONTAINERS: Final = ("containers", "ephemeralContainers", "initContainers")
_POD_SPEC: Final[Mapping[str, str]] = {
    **dict.fromkeys(_CONTAINERS, "name"),
    **{f"{containers}.{name}": key for containers in _CONTAINERS for name, key in _CONTAINER.items()},
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumes": "name",
    **{f"volumes.ephemeral.volumeClaimTemplate.metadata.{name}": key for name, key in _METADATA.items()},
}
_EVERYWHERE: Final[Mapping[str, str]] = {f"metadata.{name}": key for name, key in _METADATA.items()}
_CONDITIONS: Final[Mapping[str, str]] = {"status.conditions": "type"}
_TEMPLATE: Final[Mapping[str, str]] = {
    **{f"spec.template.metadata.{name}": key for name, key in _METADATA.items()},
    **{f"spec.template.spec.{name}": key for name, key in _POD_SPEC.items()},
    **_CONDITIONS,
}
_GROUP: Final[Mapping[str, str]] = {"spec.resourceClaims": "name"}
_OF_KIND: Final[Mapping[str, Mapping[str, str]]] = {
    "Pod": {
        **{f"spec.{name}": key for name, key in _POD_SPEC.items()},
        **_CONDITIONS,
        "status.hostIPs": "ip",
        "status.podIPs": "ip",
        "status.resourceClaimStatuses": "name",
    },
    "Node": {**_CONDITIONS, "spec.podCIDRs": SCALARS, "status.addresses": "type"},
    "Namespace": _CONDITIONS,
    "Service": {**_CONDITIONS, "spec.ports": "port"},
    "PersistentVolumeClaim": _CONDITIONS,
    "ReplicationController": _TEMPLATE,
    "Deployment": _TEMPLATE,
    "ReplicaSet": _TEMPLATE,
    "StatefulSet": _TEMPLATE,
    "Job": _TEMPLATE,
    "PodDisruptionBudget": _CONDITIONS,
    "CSINode": {"spec.drivers": "name"},
    "ResourceClaim": {"status.reservedFor": "uid"},
    "PodGroup": {**_CONDITIONS, **_GROUP, "status.resourceClaimStatuses": "name"},
    "CompositePodGroup": _CONDITIONS,
    "Workload": _CONDITIONS,
}


def _paths(kind: str) -> Mapping[Path, str]:
    table = {**_EVERYWHERE, **_OF_KIND.get(kind, {})}
    return {tuple(path.split(".")): key for path, key in table.items()}


_BY_KIND: Final[Mapping[str, Mapping[Path, str]]] = {kind: _paths(kind) for kind in _OF_KIND}
_OTHER: Final[Mapping[Path, str]] = _paths("")


def merge_keys(kind: str) -> Mapping[Path, str]:
    """Return the merge key, or SCALARS, of each merged list of a kind, by path."""
    return _BY_KIND.get(kind, _OTHER)


DIRECTIVE: Final = "$patch"
RETAIN_KEYS: Final = "$retainKeys"
_ORDER: Final = "$setElementOrder/"
_DELETE: Final = "$deleteFromPrimitiveList/"
Json = Mapping[str, Any]


class PatchError(ValueError):
    """The patch is malformed. The text says why, in the API server's words."""


def merged(kind: str, target: Json, patch: Json) -> dict[str, Any]:
    """Return `target`, an object of `kind`, after `patch`. Raises PatchError."""
    return _Merge(merge_keys(kind)).maps(target, patch, ())


class _Merge:
    """The application of one patch; paths start at the object's root."""

    def __init__(self, keys: Mapping[Path, str]) -> None:
        self._keys = keys

    # --- maps --------------------------------------------------------------------------------------

    def maps(self, target: Json, patch: Json, path: Path) -> dict[str, Any]:
        directive = patch.get(DIRECTIVE)
        if directive == "replace":
            return {key: value for key, value in patch.items() if key != DIRECTIVE}
        if directive == "delete":
            return {}
        if directive is not None:
            raise PatchError(f"unknown patch type: {directive}")
        result = self._retained(target, patch)
        ordered = {key.removeprefix(_ORDER): order for key, order in patch.items() if key.startswith(_ORDER)}
        for name, order in ordered.items():
            self._order(result, patch, name, order, (*path, name))
        for key, value in patch.items():
            if key.startswith(_DELETE):
                name = key.removeprefix(_DELETE)
                if name in result:
                    result[name] = [item for item in result[name] if item not in value]
            elif not key.startswith("$") and key not in ordered:
                self._set(result, key, value, (*path, key))
        return result

    @staticmethod
    def _retained(target: Json, patch: Json) -> dict[str, Any]:
        """Return the fields of `target` that $retainKeys keeps; all without $retainKeys."""
        kept = patch.get(RETAIN_KEYS)
        if kept is None:
            return dict(target)
        if any(not key.startswith("$") and key not in kept for key in patch if patch[key] is not None):
            raise PatchError("invalid patch format of retainKeys")
        return {key: value for key, value in target.items() if key in kept}

    def _set(self, result: dict[str, Any], key: str, value: Any, path: Path) -> None:
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(old := result.get(key), Mapping):
            result[key] = self.maps(old, value, path)
        elif isinstance(value, list) and isinstance(old := result.get(key), list):
            result[key] = self._lists(old, value, path)
        else:
            result[key] = plain(value)

    # --- lists -------------------------------------------------------------------------------------

    def _lists(self, target: list[Any], patch: list[Any], path: Path) -> list[Any]:
        merge_key = self._keys.get(path)
        if merge_key is None:
            return [plain(item) for item in patch]
        if not target and not patch:
            return target
        if merge_key == SCALARS:
            return _ordered(list(dict.fromkeys([*target, *patch])), patch, target, merge_key)
        if any(not isinstance(item, Mapping) for item in patch):
            raise PatchError(f"{'.'.join(path)} is a list of maps")
        unknown = {item.get(DIRECTIVE) for item in patch} - {None, "delete", "replace"}
        if unknown:
            raise PatchError(f"unknown patch type: {unknown.pop()}")
        changes = [item for item in patch if DIRECTIVE not in item]
        if any(item.get(DIRECTIVE) == "replace" for item in patch):
            return [plain(item) for item in changes]
        deleted = [_key_of(item, merge_key) for item in patch if DIRECTIVE in item]
        result = [item for item in target if _key_of(item, merge_key) not in deleted]
        before = list(result)
        for change in changes:
            wanted = _key_of(change, merge_key)
            for i, item in enumerate(result):
                if _key_of(item, merge_key) == wanted:
                    result[i] = self.maps(item, change, path)
                    break
            else:
                result.append(plain(change))
        return _ordered(result, changes, before, merge_key)

    def _order(self, result: dict[str, Any], patch: Json, name: str, order: list[Any], path: Path) -> None:
        """Merge the list `name` and sort it as the patch's $setElementOrder says."""
        merge_key = self._keys.get(path)
        if merge_key is None:
            raise PatchError(f"{'.'.join(path)} is not merged: it has no order of elements to set")
        target = result.get(name)
        if name in patch:
            self._set(result, name, patch[name], path)
        if name in result:
            result[name] = _ordered(result[name], order, target or (), merge_key)


def _ordered(items: Sequence[Any], wanted: Sequence[Any], before: Sequence[Any], merge_key: str) -> list[Any]:
    """Return the items sorted: those in `wanted` in its order, the others in the order of `before`.

    Between an item of either group, the order of `before` counts if it contains both items. Else the wanted
    item comes first.
    """
    place = {_key_of(item, merge_key): i for i, item in enumerate(before)}
    order = {_key_of(item, merge_key): i for i, item in enumerate(wanted)}
    named = sorted(
        (item for item in items if _key_of(item, merge_key) in order),
        key=lambda item: order[_key_of(item, merge_key)],
    )
    others = [item for item in items if _key_of(item, merge_key) not in order]
    others.sort(key=lambda item: place.get(_key_of(item, merge_key), len(place)))
    result: list[Any] = []
    i = j = 0
    while i < len(others) and j < len(named):
        left, right = place.get(_key_of(others[i], merge_key)), place.get(_key_of(named[j], merge_key))
        if left is not None and right is not None and left < right:
            result.append(others[i])
            i += 1
        else:
            result.append(named[j])
            j += 1
    return [*result, *others[i:], *named[j:]]


def _key_of(item: Any, merge_key: str) -> Any:
    """Return the merge key's value of an item; of a list of plain values, the item. Raises PatchError."""
    if merge_key == SCALARS:
        return item
    try:
        return item[merge_key]
    except (KeyError, TypeError):
        raise PatchError(f"map: {item} does not contain declared merge key: {merge_key}") from None


def plain(value: Any) -> Any:
    """Return `value` as new content: without nulls in maps and without directives."""
    if isinstance(value, Mapping):
        return {
            key: plain(item) for key, item in value.items() if item is not None and not key.startswith("$")
        }
    if isinstance(value, list):
        return [
            plain(item)
            for item in value
            if not (isinstance(item, Mapping) and item.get(DIRECTIVE) == "delete")
        ]
    return value
