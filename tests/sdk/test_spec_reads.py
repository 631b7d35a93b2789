"""Pods share a parsed spec and a signature unless they differ in a field that is read, and only then."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import entry_points
from typing import Any

import pytest
from berth_host.framework.kept.signing import Signers
from berth_sdk.errors import BerthError
from berth_sdk.needs import Need, NeedKind
from berth_sdk.parsing.pod_spec import PodSpec
from berth_sdk.pod import Pod
from berth_sdk.pod_affinity import MANY
from berth_sdk.signature import of_spec, signature
from berth_sdk.spec_reads import ALL_OF_SPEC, PARSED, SpecReads
from berth_sdk.testing import make_node, make_table
from support.asking import InProcess, Plug
from support.frameworks import local_client, table_of

_HTTP = {"httpGet": {"path": "/healthz", "port": 80}}
_CONTAINER: dict[str, Any] = {
    "name": "main",
    "image": "web:1",
    "args": ["--verbose"],
    "env": [{"name": "LEVEL", "value": "info"}],
    "imagePullPolicy": "Always",
    "livenessProbe": _HTTP,
    "ports": [
        {"name": "http", "containerPort": 80, "hostPort": 8080, "hostIP": "10.0.0.1", "protocol": "TCP"}
    ],
    "resources": {"requests": {"cpu": "500m"}, "limits": {"memory": "1Gi"}},
    "restartPolicyRules": [{"action": "Restart"}],
    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
}
SPEC: dict[str, Any] = {
    "activeDeadlineSeconds": 60,
    "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    "containers": [_CONTAINER],
    "dnsPolicy": "ClusterFirst",
    "hostNetwork": False,
    "hostUsers": False,
    "hostname": "web",
    "initContainers": [{**_CONTAINER, "restartPolicy": "Always"}],
    "nodeSelector": {"zone": "a"},
    "overhead": {"cpu": "10m"},
    "preemptionPolicy": "Never",
    "priority": 1,
    "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}],
    "resources": {"requests": {"cpu": "2"}},
    "schedulerName": "berth",
    "schedulingGates": [{"name": "wait"}],
    "schedulingGroup": {"podGroupName": "g-1"},
    "serviceAccountName": "robot",
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }
    ],
    "volumes": [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "kube-api-access-x7k2p", "projected": {}},
    ],
}
_TOKEN = ("volumes.1.name", "volumes.1.projected")


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value that is no map and no list, and of every empty one."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = False
    for key, item in items:
        found = True
        yield from leaves(item, (*path, key))
    if not found:
        yield path


def with_other(path: tuple[Any, ...]) -> dict[str, Any]:
    """Return the spec with another value of the same type at one path."""
    spec = copy.deepcopy(SPEC)
    *way, last = path
    holder: Any = spec
    for key in way:
        holder = holder[key]
    before = holder[last]
    holder[last] = (
        not before
        if isinstance(before, bool)
        else before + 1
        if isinstance(before, int)
        else {"requiredDuringSchedulingIgnoredDuringExecution": []}
        if isinstance(before, dict)
        else [{"weight": 1, "podAffinityTerm": {"topologyKey": "zone"}}]
        if isinstance(before, list)
        else {"500m": "600m", "10m": "20m", "2": "3", "1Gi": "2Gi"}.get(before, f"{before}x")
    )
    return spec


def pod(spec: dict[str, Any], reads: SpecReads, name: str = "a") -> Pod:
    return Pod.from_object({"metadata": {"name": name, "uid": name}, "spec": spec}, groups=False, reads=reads)


def dotted(path: tuple[Any, ...]) -> str:
    return ".".join(str(key) for key in path if not isinstance(key, int))


def default_classes() -> dict[str, type]:
    return {entry.name: entry.load() for entry in entry_points(group="berth.plugins")}


def declared(cls: type) -> list[Need]:
    return [need for need in getattr(cls, "needs", ()) if need.kind is NeedKind.WHOLE_POD]


READS = SpecReads.of(getattr(cls, "needs", ()) for cls in default_classes().values())


@pytest.mark.parametrize("path", [*leaves(SPEC)], ids=lambda path: ".".join(map(str, path)))
def test_a_field_parts_pods_exactly_where_it_is_read(path: tuple[Any, ...]) -> None:
    assert READS.paths is not None
    first, other = pod(SPEC, READS), pod(with_other(path), READS)
    name = dotted(path)
    is_read = ".".join(map(str, path)) not in _TOKEN and any(
        name == one or name.startswith(f"{one}.") for one in READS.paths
    )
    assert (other.shared_spec is not first.shared_spec) is is_read
    assert (signature(other) != signature(first)) is is_read
    assert (of_spec(other) != of_spec(first)) is is_read


def test_what_no_default_plugin_reads_parts_no_pods() -> None:
    assert READS.paths is not None
    unread = {dotted(path) for path in leaves(SPEC)} - {
        dotted(path)
        for path in leaves(SPEC)
        for one in READS.paths
        if dotted(path) == one or dotted(path).startswith(f"{one}.")
    }
    assert {
        "containers.env.value",
        "containers.livenessProbe.httpGet.path",
        "containers.volumeMounts.name",
        "schedulingGroup.podGroupName",
        "serviceAccountName",
    } <= unread


@pytest.mark.parametrize("path", [*leaves(SPEC)][::5], ids=lambda path: ".".join(map(str, path)))
def test_every_field_parts_pods_where_a_plugin_reads_the_whole_spec(path: tuple[Any, ...]) -> None:
    for needs in ([Need.whole_pod()], None):
        reads = SpecReads.of([[Need.whole_pod(("affinity",))], needs])
        assert reads is ALL_OF_SPEC
        assert pod(with_other(path), reads).shared_spec is not pod(SPEC, reads).shared_spec


def test_reads_are_those_of_the_record_and_of_all_plugins() -> None:
    reads = SpecReads.of([[Need.nodes()], [Need.whole_pod(("hostPID",)), Need.pods()], ()])
    assert reads.paths == tuple(sorted({*PARSED, "hostPID"}))


def test_hosts_that_read_other_fields_share_no_parsed_spec() -> None:
    few, more = SpecReads(PARSED), SpecReads([*PARSED, "hostname"])
    first, second, third = pod(SPEC, few), pod(SPEC, more), pod(SPEC, ALL_OF_SPEC)
    assert len({id(one.shared_spec) for one in (first, second, third)}) == 3
    assert first.requests == second.requests == third.requests


def test_a_field_that_is_read_as_a_whole_stays_whole() -> None:
    for paths in (["a", "a.b"], ["a.b", "a"]):
        assert SpecReads(paths).part({"a": {"b": 1, "c": 2}, "d": 3}) == {"a": {"b": 1, "c": 2}}


def test_malformed_fields_part_pods() -> None:
    for containers in ("none", [["main"]], {"image": 1, "name": "x"}):
        part = SpecReads(PARSED).part({"containers": containers})
        assert part == {"containers": {"image": 1} if isinstance(containers, dict) else containers}


def test_a_long_pod_is_shared_by_all_of_its_spec_as_it_is_read_ahead() -> None:
    spec = {**SPEC, "containers": [_CONTAINER] * (MANY + 1)}
    assert pod(spec, READS).shared_spec is PodSpec.of(spec, None)


def test_members_of_different_groups_share_all_that_follows_from_the_spec() -> None:
    def member(group: str) -> Pod:
        spec = {**SPEC, "schedulingGroup": {"podGroupName": group}}
        return Pod.from_object({"metadata": {"name": group}, "spec": spec}, groups=True, reads=READS)

    first, second = member("g-1"), member("g-2")
    assert (first.group_key, second.group_key) == ("podgroup/default/g-1", "podgroup/default/g-2")
    assert first.shared_spec is second.shared_spec
    # The claims of a group belong to its members.
    assert signature(first) != signature(second)
    plain = {key: value for key, value in SPEC.items() if key not in ("volumes", "resourceClaims")}
    names = ("NodeAffinity", "NodeResourcesFit", "VolumeBinding", "DynamicResources", "TaintToleration")
    signers = Signers([local_client(Plug(default_classes()[name]).runtime().plugin) for name in names])
    keys = [
        signers.sign(
            Pod.from_object(
                {"metadata": {"name": g}, "spec": {**plain, "schedulingGroup": {"podGroupName": g}}},
                groups=True,
                reads=READS,
            ),
            table_of("a"),
        )[1]
        for g in ("g-1", "g-2")
    ]
    assert keys[0] == keys[1]


class _Recorded(dict[str, Any]):
    """A map that notes which of its keys were looked up."""

    def __init__(self, values: dict[str, Any], path: str, seen: set[str]) -> None:
        super().__init__({key: _recorded(value, f"{path}{key}", seen) for key, value in values.items()})
        self._path, self._seen = path, seen

    def __getitem__(self, key: str) -> Any:
        self._seen.add(f"{self._path}{key}")
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self._seen.add(f"{self._path}{key}")
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self._seen.add(f"{self._path}{key}")
        return super().__contains__(key)


def _recorded(value: Any, path: str, seen: set[str]) -> Any:
    if isinstance(value, dict):
        return _Recorded(value, f"{path}.", seen)
    return [_recorded(one, path, seen) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", [name for name, cls in default_classes().items() if declared(cls)])
async def test_default_plugins_read_no_field_that_they_do_not_declare(name: str) -> None:
    cls = default_classes()[name]
    (need,) = declared(cls)
    assert need.spec_fields
    nodes = make_table([make_node("a", labels={"zone": "a"})])
    seen: set[str] = set()
    recorded = Pod.from_object({"metadata": {"name": "a"}, "spec": _Recorded(SPEC, "", seen)}, reads=READS)
    signature(recorded)  # the host's own, made of the fields of all plugins
    seen.clear()
    runtime = Plug(cls, {"filterTimeout": "10s"} if name == "DynamicResources" else None).runtime()
    follows = runtime.follows
    if follows is not None and follows.sign is not None:
        follows.sign(recorded, nodes)
    plug = Plug(cls)
    with suppress(BerthError, AttributeError):
        await InProcess().pre_filter(plug, recorded, nodes)
    with suppress(BerthError, AttributeError):
        await InProcess().filter(plug, recorded, nodes)
    with suppress(BerthError, AttributeError):
        await InProcess().score(plug, recorded, nodes)
    undeclared = [
        one
        for one in seen
        if not any(
            one == path or one.startswith(f"{path}.") or path.startswith(f"{one}.")
            for path in need.spec_fields
        )
    ]
    assert undeclared == []
