"""The rights of the chart: a scheduler that does all that it may do needs each of them, and no other.

One process of berth runs under the chart's service account and is made to do everything (`Deeds`). The audit
log says which rights that took: no request was refused, and none of the rights was idle. Then each rule is
taken away: the start is refused, or a deed fails that went well with the rule.
"""

from __future__ import annotations

import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from support import device_objects as devices
from support.chart import MANIFESTS, Json, documents
from support.deployed import USER, Deployed, drop, put, token_of, until
from support.emptying import empty
from support.meddles import BIND, FAIL, HOLD, LABEL, STALE
from support.real_servers import RealServers
from support.rights import AUDIT_POLICY, Asked, AskedLog, Right, name_of, rights_of

READER: Final = {
    "apiVersion": "v1",
    "kind": "ServiceAccount",
    "metadata": {"name": "reader", "namespace": "default"},
}


def _named(*others: str) -> list[Json]:
    """The plugins that are asked at a point: ours first."""
    return [{"name": name} for name in ("Meddles", *others)]


VALUES: Final[Json] = {
    "config": {
        "podInitialBackoffSeconds": 1,
        "leaderElection": {"leaseDuration": "6s", "renewDeadline": "4s", "retryPeriod": "500ms"},
        "profiles": [
            {
                "schedulerName": "berth",
                "plugins": {
                    "preBind": {
                        "disabled": [{"name": "*"}],
                        "enabled": _named("VolumeBinding", "DynamicResources"),
                    },
                    "bind": {"disabled": [{"name": "*"}], "enabled": _named("DefaultBinder")},
                },
            }
        ],
    },
    "plugins": [{"name": "Meddles", "inProcess": "support.meddles:Meddles"}],
    "metrics": {"readers": [{"kind": "ServiceAccount", "name": "reader", "namespace": "default"}]},
}
ALL = documents((MANIFESTS / "beside.yaml").read_text())
"""The chart's objects, as they are known without helm: for the names of the tests."""
RULES: Final[list[tuple[str, Json]]] = [
    (role["kind"], rule) for role in ALL if role["kind"] in ("ClusterRole", "Role") for rule in role["rules"]
]
RIGHTS: Final = sorted({right for _, rule in RULES for right in rights_of(rule)})
NOT_A_REQUEST: Final = {
    Right("resource.k8s.io", "resourceclaims/binding", "update"),
    Right("", "pods/finalizers", "update"),
}
"""Asked about by the API server itself in the midst of another request: tests with mutants show these."""
NOT_OF_THE_CHART: Final = ("selfsubjectaccessreviews", "configmaps")
"""Granted to everybody by the cluster; by the Role that the chart binds."""


class Deeds:
    """What a scheduler does, each deed with objects of its own, called after `tag`.

    A deed sets its objects up and returns the question whether the scheduler has done it.
    """

    def __init__(self, berth: Deployed, folder: Path) -> None:
        self._berth = berth
        self.leader = berth.lead()
        self._servers = berth.servers
        self._folder = folder

    def prepare(self) -> None:
        """The cluster: a node with devices, one for preemption; classes."""
        for name, cpu in (("n1", "64"), ("small", "1")):
            allocatable = {"cpu": cpu, "memory": "64Gi", "pods": "500"}
            labels = {"kubernetes.io/hostname": name, "small": str(name == "small").lower()}
            node = _object("Node", name, labels=labels, status={"allocatable": allocatable})
            node["status"]["capacity"] = allocatable
            self._servers.create("/api/v1/nodes", node)
        slices = [devices.device(f"d{number}") for number in range(20)]
        self._make("resource.k8s.io/v1/resourceslices", devices.resource_slice("n1", slices))
        classes = (
            devices.device_class(),
            devices.device_class("extended", extendedResourceName="example.com/gpu"),
        )
        for one in classes:
            self._make("resource.k8s.io/v1/deviceclasses", one)
        for name, provisioner in (("static", "kubernetes.io/no-provisioner"), ("made", "example.com/maker")):
            storage: Json = _object("StorageClass", name, api="storage.k8s.io/v1")
            storage |= {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
            self._make("storage.k8s.io/v1/storageclasses", storage)
        high = _object("PriorityClass", "high", api="scheduling.k8s.io/v1") | {"value": 1000}
        self._make("scheduling.k8s.io/v1/priorityclasses", high)

    # --- deeds ---------------------------------------------------------------------------------

    def bind(self, tag: str) -> Callable[[], bool]:
        """A pod gets its node."""
        pod = self._pod(f"bind-{tag}")
        return lambda: self._node_of(pod) == "n1"

    def say_so(self, tag: str) -> Callable[[], bool]:
        """There is an event about it."""
        pod = self._pod(f"say-{tag}")
        return lambda: any(event["reason"] == "Scheduled" for event in self._events(pod))

    def say_again(self, tag: str) -> Callable[[], bool]:
        """The same event twice is a series: of a pod that is tried again because another one went."""
        pod = self._pod(f"again-{tag}", cpu="1k")
        until(lambda: self._events(pod), "the event is there")
        other = self._pod(f"other-{tag}")
        until(lambda: self._node_of(other), f"{other} is bound")
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
        self._servers.request("DELETE", f"/api/v1/namespaces/default/pods/{other}", body)
        return lambda: any(event.get("series") for event in self._events(pod))

    def give_the_reason(self, tag: str) -> Callable[[], bool]:
        """A pod that fits nowhere says so in its status."""
        pod = self._pod(f"large-{tag}", cpu="1k")
        return lambda: any(
            condition["type"] == "PodScheduled" and condition["status"] == "False"
            for condition in self._status(pod).get("conditions", ())
        )

    def preempt(self, tag: str) -> Callable[[], bool]:
        """A pod of low priority goes; the one that a budget protects stays."""
        victim = self._pod(f"victim-{tag}", cpu="400m", nodeSelector={"small": "true"})
        kept = self._pod(f"kept-{tag}", cpu="400m", labels={"kept": tag}, nodeSelector={"small": "true"})
        until(lambda: self._node_of(victim) and self._node_of(kept), "the small node is full")
        budget = _object("PodDisruptionBudget", f"kept-{tag}", api="policy/v1")
        budget["spec"] = {"minAvailable": 1, "selector": {"matchLabels": {"kept": tag}}}
        self._make("policy/v1/namespaces/default/poddisruptionbudgets", budget)
        self._pod(f"high-{tag}", cpu="400m", nodeSelector={"small": "true"}, priorityClassName="high")

        def done() -> bool:
            found = self._berth.get(f"/api/v1/namespaces/default/pods/{victim}")
            is_gone = found is None or "deletionTimestamp" in found["metadata"]
            other = self._berth.get(f"/api/v1/namespaces/default/pods/{kept}") or {"metadata": {}}
            return is_gone and "deletionTimestamp" not in other["metadata"]

        return done

    def bind_a_volume(self, tag: str, *, held: bool = False) -> Callable[[], bool]:
        """A volume that waited for the pod's node is the claim's. `held`: somebody changes it meanwhile."""
        volume = _object("PersistentVolume", f"v-{tag}")
        volume["spec"] = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "static",
            "hostPath": {"path": "/data"},
        }
        self._servers.create("/api/v1/persistentvolumes", volume)
        # As the controller of volumes would, which does not run.
        status = {"status": {"phase": "Available"}}
        kind = "application/merge-patch+json"
        self._servers.request("PATCH", f"/api/v1/persistentvolumes/v-{tag}/status", status, content_type=kind)
        self._claim(f"v-{tag}", "static")
        pod = self._pod(f"volume-{tag}", claim=f"v-{tag}", held=held)
        path = f"/api/v1/persistentvolumes/v-{tag}"
        if held:
            self._meddle(pod, path)
        return lambda: "claimRef" in (self._berth.get(path) or {"spec": {}})["spec"]

    def choose_a_node_for_a_claim(self, tag: str, *, held: bool = False) -> Callable[[], bool]:
        """A claim learns for which node its volume is to be made."""
        self._claim(f"m-{tag}", "made")
        pod = self._pod(f"made-{tag}", claim=f"m-{tag}", held=held)
        path = f"/api/v1/namespaces/default/persistentvolumeclaims/m-{tag}"
        if held:
            self._meddle(pod, path)
        name = "volume.kubernetes.io/selected-node"
        return lambda: name in ((self._berth.get(path) or {})["metadata"].get("annotations") or {})

    def allocate(self, tag: str, *, held: bool = False, protected: bool = False) -> Callable[[], bool]:
        """A claim gets a device. `protected`: it has the finalizer already, so its status comes first."""
        finalizers = ["resource.kubernetes.io/delete-protection"] if protected else []
        claim = devices.claim(f"c-{tag}", devices.exactly(), metadata={"finalizers": finalizers})
        self._make("resource.k8s.io/v1/namespaces/default/resourceclaims", claim)
        pod = self._pod(
            f"device-{tag}", held=held, resourceClaims=[{"name": "c", "resourceClaimName": f"c-{tag}"}]
        )
        path = f"/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/c-{tag}"
        if held:
            self._meddle(pod, path)
        return lambda: "allocation" in ((self._berth.get(path) or {}).get("status") or {})

    def change_a_claim_too_late(self, tag: str) -> Callable[[], bool]:
        """A claim changes between a plugin's answer and the write: the server says so."""
        claim = devices.claim(f"late-{tag}", devices.exactly())
        self._make("resource.k8s.io/v1/namespaces/default/resourceclaims", claim)
        pod = self._pod(f"late-{tag}", labels={LABEL: STALE})
        return lambda: self._node_of(pod) == "n1"

    def make_a_claim(self, tag: str) -> Callable[[], bool]:
        """A pod that asks for a device as a resource gets a claim."""
        pod = self._pod(f"extended-{tag}", extended=True)
        return lambda: self._node_of(pod) == "n1" and "extendedResourceClaimStatus" in self._status(pod)

    def take_a_claim_back(self, tag: str) -> Callable[[], bool]:
        """Where binding fails the claim goes again; more than one is never there."""
        pod = self._pod(f"back-{tag}", extended=True, labels={LABEL: FAIL})
        path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"

        def claims() -> set[str]:
            items = (self._berth.get(path) or {})["items"]
            return {one["metadata"]["name"] for one in items if one["metadata"]["name"].startswith(pod)}

        until(claims, "the claim is made")
        first = claims()
        return lambda: not first & claims()

    def believe_a_plugin(self, tag: str) -> Callable[[], bool]:
        """A pod that a plugin has bound is read back."""
        pod = self._pod(f"own-{tag}", labels={LABEL: BIND})
        until((self._folder / f"{pod}.held").exists, f"{pod} is in Bind")
        binding = {"metadata": {"name": pod}, "target": {"kind": "Node", "name": "n1"}}
        path = f"/api/v1/namespaces/default/pods/{pod}/binding"
        self._servers.request("POST", path, {"apiVersion": "v1", "kind": "Binding", **binding})
        (self._folder / f"{pod}.go").touch()
        return lambda: any(event["reason"] == "Scheduled" for event in self._events(pod))

    def show_metrics(self, tag: str) -> Callable[[], bool]:
        """Who may read the metrics gets them, by a token that nobody has shown before."""
        token = token_of(self._servers, "reader", "default")
        return lambda: _status_of(self.leader.port, "/metrics", token) == 200

    # --- objects -------------------------------------------------------------------------------

    def remove_pods(self) -> None:
        """So that what failed is not tried again."""
        path = "/api/v1/namespaces/default/pods"
        for pod in (self._berth.get(path) or {})["items"]:
            name = pod["metadata"]["name"]
            (self._folder / f"{name}.go").touch()
            body = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
            self._servers.request("DELETE", f"{path}/{name}", body)

    def _pod(
        self,
        name: str,
        *,
        cpu: str = "10m",
        labels: Mapping[str, str] | None = None,
        claim: str = "",
        held: bool = False,
        extended: bool = False,
        **spec: Any,
    ) -> str:
        wants: Json = {"cpu": cpu, **({"example.com/gpu": "1"} if extended else {})}
        resources = {"requests": wants, "limits": {key: wants[key] for key in wants if "/" in key}}
        pod = _object("Pod", name, labels={**(labels or {}), **({LABEL: HOLD} if held else {})})
        pod["spec"] = {
            "schedulerName": "berth",
            "nodeSelector": {"small": "false"},
            "containers": [{"name": "c", "image": "app", "resources": resources}],
            **spec,
        }
        if claim:
            pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
        self._servers.create("/api/v1/namespaces/default/pods", pod)
        return name

    def _claim(self, name: str, storage_class: str) -> None:
        claim = _object("PersistentVolumeClaim", name)
        claim["spec"] = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": "1Gi"}},
        }
        self._servers.create("/api/v1/namespaces/default/persistentvolumeclaims", claim)

    def _make(self, where: str, body: Json) -> None:
        self._servers.create(f"/apis/{where}", body)

    def _meddle(self, pod: str, path: str) -> None:
        """Change the object while the pod is held, and let the scheduler see that before it goes on."""
        until((self._folder / f"{pod}.held").exists, f"{pod} is in PreBind")
        patch = {"metadata": {"labels": {"changed": "meanwhile"}}}
        self._servers.request("PATCH", path, patch, content_type="application/merge-patch+json")
        time.sleep(0.5)  # the change travels by a watch, of which nothing outside tells
        (self._folder / f"{pod}.go").touch()

    def _node_of(self, pod: str) -> str:
        found = self._berth.get(f"/api/v1/namespaces/default/pods/{pod}") or {"spec": {}}
        node: str = found["spec"].get("nodeName", "")
        return node

    def _status(self, pod: str) -> Json:
        status: Json = (self._berth.get(f"/api/v1/namespaces/default/pods/{pod}") or {}).get("status") or {}
        return status

    def _events(self, pod: str) -> list[Json]:
        items = (self._berth.get("/apis/events.k8s.io/v1/namespaces/default/events") or {})["items"]
        return [event for event in items if (event.get("regarding") or {}).get("name") == pod]


def _object(kind: str, name: str, *, api: str = "v1", labels: Any = None, **more: Any) -> Json:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, "labels": labels or {}}, **more}


def _status_of(port: int, path: str, token: str) -> int:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    headers = {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(f"https://127.0.0.1:{port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=20, context=context) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as err:
        return err.code


# --- the world -------------------------------------------------------------------------------------


@dataclass
class World:
    """A scheduler that leads, its deeds, and what it asked the API server."""

    berth: Deployed
    deeds: Deeds
    log: AskedLog

    def end(self) -> None:
        """End every scheduler, and drop the Lease."""
        self.berth.stop()
        path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/berth"
        if self.berth.get(path) is not None:
            self.berth.servers.request("DELETE", path)

    @contextmanager
    def without(self, kind: str, rule: Json) -> Iterator[None]:
        """The rule is not granted meanwhile."""
        name = "kube-system:berth" if kind == "ClusterRole" else "berth-lease"
        whole = self.berth.manifest(kind, name)
        rules = [one for one in whole["rules"] if set(rights_of(one)) != set(rights_of(rule))]
        assert len(rules) == len(whole["rules"]) - 1
        put(self.berth.servers, {**whole, "rules": rules})
        try:
            lost = next(rights_of(rule))
            until(lambda: not self._is_granted(lost), "RBAC forgets the rule")
            yield
        finally:
            put(self.berth.servers, whole)
            until(lambda: self._is_granted(lost), "RBAC knows the rule again")

    def _is_granted(self, right: Right) -> bool:
        resource, _, subresource = right.resource.partition("/")
        attributes = {
            "group": right.group,
            "resource": resource,
            "subresource": subresource,
            "verb": right.verb,
            "name": right.name,
            "namespace": "kube-system",
        }
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": USER, "resourceAttributes": attributes},
        }
        answer = self.berth.servers.request(
            "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review
        )
        return bool(answer["status"]["allowed"])


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServers]:
    """One that logs every request of a service account, and guards owner references."""
    guards = "--enable-admission-plugins=OwnerReferencesPermissionEnforcement"
    folder = tmp_path_factory.mktemp("servers")
    with RealServers(folder, audit_policy=AUDIT_POLICY, more=[guards]) as running:
        yield running


@pytest.fixture(scope="module")
def world(servers: RealServers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """berth leads under the chart's account."""
    empty(servers)
    folder = tmp_path_factory.mktemp("berth")
    arguments = [{"name": "Meddles", "args": {"folder": str(folder)}}]
    values = json.loads(json.dumps(VALUES))
    values["config"]["profiles"][0]["pluginConfig"] = arguments
    put(servers, READER)
    with Deployed(servers, folder, values) as berth:
        deeds = Deeds(berth, folder)
        deeds.prepare()
        yield World(berth, deeds, AskedLog(servers.audit_log, USER))


@pytest.fixture(scope="module")
def asked(world: World) -> list[Asked]:
    """All that the scheduler asked while it did everything it can, every deed well done."""
    deeds = world.deeds
    waiting = {
        "bind": deeds.bind("all"),
        "say so": deeds.say_so("all"),
        "say it again": deeds.say_again("all"),
        "give the reason": deeds.give_the_reason("all"),
        "preempt": deeds.preempt("all"),
        "bind a volume": deeds.bind_a_volume("all"),
        "choose a node for a claim": deeds.choose_a_node_for_a_claim("all"),
        "allocate": deeds.allocate("all"),
        "make a claim": deeds.make_a_claim("all"),
        "take a claim back": deeds.take_a_claim_back("all"),
        "believe a plugin": deeds.believe_a_plugin("all"),
        "show metrics": deeds.show_metrics("all"),
        "change a claim too late": deeds.change_a_claim_too_late("all"),
        "allocate a claim that changed": deeds.allocate("changed", held=True),
        "allocate a protected claim that changed": deeds.allocate("guarded", held=True, protected=True),
    }
    # Whether these come through after the conflict, at the next attempt, is not what is looked at here.
    deeds.bind_a_volume("changed", held=True)
    deeds.choose_a_node_for_a_claim("changed", held=True)
    for what, is_done in waiting.items():
        until(is_done, what)
    wanted = {right for right in RIGHTS if right not in NOT_A_REQUEST}
    ends_s = time.monotonic() + 20
    while wanted - _used(world.log) and time.monotonic() < ends_s:
        world.log.read()
        time.sleep(0.1)
    deeds.remove_pods()
    return list(world.log.asked)


def _used(log: AskedLog) -> set[Right]:
    """The rights of the chart that were needed, each as the chart spells it."""
    names = {right.name for right in RIGHTS}
    exact = {one.right for one in log.asked if one.code not in (401, 403)}
    plain = {Right(one.group, one.resource, one.verb) for one in exact}
    return plain | {one for one in exact if one.name in names}


# --- enough, and no more ---------------------------------------------------------------------------


def test_the_rights_of_the_chart_are_enough(asked: list[Asked]) -> None:
    refused = [str(one.right) for one in asked if one.code in (401, 403)]
    assert refused == []


def test_the_scheduler_asks_for_nothing_else(asked: list[Asked]) -> None:
    granted = {Right(right.group, right.resource, right.verb) for right in RIGHTS}
    others = {Right(one.right.group, one.right.resource, one.right.verb) for one in asked} - granted
    assert [right for right in others if right.resource not in NOT_OF_THE_CHART] == []


@pytest.mark.parametrize("right", [right for right in RIGHTS if right not in NOT_A_REQUEST], ids=str)
def test_no_right_is_idle(asked: list[Asked], world: World, right: Right) -> None:
    assert right in _used(world.log)


# --- each rule taken away --------------------------------------------------------------------------


def is_seen_at_the_start(rule: Mapping[str, Any]) -> bool:
    """Whether a scheduler that starts refuses to go on without the rule."""
    return "list" in rule["verbs"] or rule["resources"] == ["leases"]


@dataclass(frozen=True)
class Mutant:
    """A rule away: the deed fails, and `refused` is how the API server shows it."""

    deed: Callable[[Deeds, str], Callable[[], bool]]
    refused: Right


MUTANTS: Final = {
    "pods/binding": Mutant(Deeds.bind, Right("", "pods/binding", "create")),
    "pods/status": Mutant(Deeds.give_the_reason, Right("", "pods/status", "patch")),
    "events.k8s.io": Mutant(Deeds.say_so, Right("events.k8s.io", "events", "create")),
    "resourceclaims/status": Mutant(
        Deeds.allocate, Right("resource.k8s.io", "resourceclaims/status", "update")
    ),
    "resourceclaims/binding": Mutant(
        Deeds.allocate, Right("resource.k8s.io", "resourceclaims/status", "update")
    ),
    "pods/finalizers": Mutant(Deeds.make_a_claim, Right("resource.k8s.io", "resourceclaims", "create")),
    "tokenreviews": Mutant(Deeds.show_metrics, Right("authentication.k8s.io", "tokenreviews", "create")),
    "subjectaccessreviews": Mutant(
        Deeds.show_metrics, Right("authorization.k8s.io", "subjectaccessreviews", "create")
    ),
}


def mutant_of(rule: Mapping[str, Any]) -> str:
    resource = "+".join(rule["resources"])
    return rule["apiGroups"][0] if resource == "events" else resource


def test_every_rule_has_its_mutant() -> None:
    late = {mutant_of(rule) for _, rule in RULES if not is_seen_at_the_start(rule)}
    assert late == MUTANTS.keys() | {""}, "the events of the Lease have a test of their own"


@pytest.mark.parametrize(
    ("kind", "rule"),
    [pytest.param(kind, rule, id=name_of(rule)) for kind, rule in RULES if mutant_of(rule) in MUTANTS],
)
def test_without_a_rule_what_it_is_for_fails(world: World, asked: list[Asked], kind: str, rule: Json) -> None:
    name = mutant_of(rule)
    mutant = MUTANTS[name]
    with world.without(kind, rule):
        world.log.read()
        is_done = mutant.deed(world.deeds, f"without-{name.replace('/', '-').replace('.', '-')}")

        def is_refused() -> bool:
            is_done()  # some deeds are done by asking
            return any(
                one.code >= 400
                and Right(one.right.group, one.right.resource, one.right.verb) == mutant.refused
                for one in world.log.read()
            )

        until(is_refused, f"{mutant.refused} is refused")
        assert not is_done()
        world.deeds.remove_pods()


@pytest.mark.parametrize(
    ("kind", "rule"),
    [pytest.param(kind, rule, id=name_of(rule)) for kind, rule in RULES if is_seen_at_the_start(rule)],
)
def test_without_a_rule_the_start_is_refused(world: World, asked: list[Asked], kind: str, rule: Json) -> None:
    """One more process is started, beside the one that leads; to make a Lease, without one."""
    makes_the_lease = rule["resources"] == ["leases"] and "create" in rule["verbs"]
    with world.without(kind, rule):
        if makes_the_lease:
            world.end()
        process = world.berth.start(f"without-{name_of(rule).replace('/', '-')}")
        until(lambda: process.ended_with is not None, "it ends")
    if makes_the_lease:
        world.deeds.leader = world.berth.lead("anew")
    assert process.ended_with == 1
    missing = process.said[process.said.rindex("missing RBAC rights: ") :]
    for right in rights_of(rule):
        assert (f"{right.resource}.{right.group}" if right.group else right.resource) in missing


def test_without_the_rule_for_its_event_a_leader_is_not_announced(world: World, asked: list[Asked]) -> None:
    (rule,) = [rule for kind, rule in RULES if kind == "Role" and rule["resources"] == ["events"]]
    events = "/api/v1/namespaces/kube-system/events"

    def announced() -> int:
        items = (world.berth.get(events) or {})["items"]
        return sum(one["message"].endswith("became leader") for one in items)

    before = announced()
    with world.without("Role", rule):
        world.end()
        world.deeds.leader = world.berth.lead("unannounced")
        until(lambda: "lease.event_dropped" in world.deeds.leader.said, "the event is dropped")
    assert announced() == before
    world.end()
    world.deeds.leader = world.berth.lead("announced")
    until(lambda: announced() == before + 1, "the next one is announced")


def test_without_its_binding_client_certificates_are_not_known(world: World, asked: list[Asked]) -> None:
    binding = world.berth.manifest("RoleBinding", "kube-system:berth:authentication-reader")
    said = "endpoints.trust_unknown"
    assert said not in world.deeds.leader.said
    drop(world.berth.servers, binding)
    try:
        process = world.berth.start("uncertain")
        until(lambda: said in process.said or process.ended_with is not None, "it says so")
    finally:
        put(world.berth.servers, binding)
    assert 'configmaps \\"extension-apiserver-authentication\\" is forbidden' in process.said
