"""The rights of the chart: a scheduler that does everything it can needs each of them, and no other.

One process of berth runs under the chart's service account and does everything (`Deeds`). The audit log shows
the used rights: no request was refused, and no right was unused. Then each rule is removed: either the start
is refused, or a deed fails that succeeded with the rule.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pytest
from berth_bench.versus.real_servers import RealServers, chosen_release, minor
from support.chart import MANIFESTS, Json, documents
from support.deeds import READER, VALUES, Deeds
from support.deployed import USER, Deployed, Running, drop, put
from support.emptying import empty
from support.rights import AUDIT_POLICY, Asked, AskedLog, Right, name_of, rights_of
from support.waiting import wait_until

pytestmark = pytest.mark.long

ALL = documents((MANIFESTS / "beside.yaml").read_text())
"""The chart's objects, which are available without helm: for the names of the tests."""
RULES: Final[list[tuple[str, Json]]] = [
    (role["kind"], rule) for role in ALL if role["kind"] in ("ClusterRole", "Role") for rule in role["rules"]
]
RIGHTS: Final = sorted({right for _, rule in RULES for right in rights_of(rule)})
NOT_A_REQUEST: Final = {
    Right("resource.k8s.io", "resourceclaims/binding", "update"),
    Right("resource.k8s.io", "resourceclaims/binding", "patch"),
    Right("", "pods/finalizers", "update"),
}
"""Rights that the API server itself checks during another request: tests that remove rules cover these."""
FIRST_WITH_TAINT_RULES: Final = 37
"""The first minor of Kubernetes 1 whose API server has DeviceTaintRules by default."""
NOT_OF_THE_CHART: Final = ("selfsubjectaccessreviews", "configmaps")
"""Granted to every user by the cluster; or by the Role that the chart binds."""


# --- the world -------------------------------------------------------------------------------------


@dataclass
class World:
    """A leading scheduler, its deeds, and its requests to the API server."""

    berth: Deployed
    deeds: Deeds
    log: AskedLog

    def end(self) -> None:
        """End every scheduler, and delete the Lease."""
        self.berth.stop()
        path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/berth"
        if self.berth.get(path) is not None:
            self.berth.servers.request("DELETE", path)

    @contextmanager
    def without(self, kind: str, *away: Json) -> Iterator[None]:
        """Remove the rules until the block ends."""
        name = "kube-system:berth" if kind == "ClusterRole" else "berth-lease"
        whole = self.berth.manifest(kind, name)
        gone = [set(rights_of(rule)) for rule in away]
        rules = [one for one in whole["rules"] if set(rights_of(one)) not in gone]
        assert len(rules) == len(whole["rules"]) - len(away)
        put(self.berth.servers, {**whole, "rules": rules})
        lost = [next(rights_of(rule)) for rule in away]
        try:
            wait_until(lambda: not any(map(self._is_granted, lost)), "RBAC forgets the rules")
            yield
        finally:
            put(self.berth.servers, whole)
            wait_until(lambda: all(map(self._is_granted, lost)), "RBAC knows the rules again")

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
    """Start a server that logs every request of a service account, and checks owner references."""
    guards = "--enable-admission-plugins=OwnerReferencesPermissionEnforcement"
    folder = tmp_path_factory.mktemp("servers")
    with RealServers(folder, audit_policy=AUDIT_POLICY, more=[guards]) as running:
        yield running


@pytest.fixture(scope="module")
def world(servers: RealServers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Run berth as the leader under the chart's account."""
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
    """Return all requests of the scheduler while it does everything it can; every deed succeeds."""
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
        "say where a pod would go": deeds.say_where("all"),
        "change a claim too late": deeds.change_a_claim_too_late("all"),
        "allocate a claim that changed": deeds.allocate("changed", held=True),
        "allocate a protected claim that changed": deeds.allocate("guarded", held=True, protected=True),
    }
    # Whether these succeed after the conflict, at the next attempt, is not checked here.
    deeds.bind_a_volume("changed", held=True)
    deeds.choose_a_node_for_a_claim("changed", held=True)
    for what, is_done in waiting.items():
        wait_until(is_done, what)
    wanted = {right for right in RIGHTS if right not in NOT_A_REQUEST}
    ends_s = time.monotonic() + 20
    while wanted - _used(world.log) and time.monotonic() < ends_s:
        world.log.read()
        time.sleep(0.1)
    deeds.remove_pods()
    return list(world.log.asked)


def _used(log: AskedLog) -> set[Right]:
    """Return the rights of the chart that were used, each as the chart spells it."""
    names = {right.name for right in RIGHTS}
    exact = {one.right for one in log.asked if one.code not in (401, 403)}
    plain = {Right(one.group, one.resource, one.verb) for one in exact}
    return plain | {one for one in exact if one.name in names}


# --- enough, and no more ---------------------------------------------------------------------------


def test_the_rights_of_the_chart_are_enough(asked: list[Asked]) -> None:
    refused = [str(one.right) for one in asked if one.code in (401, 403)]
    assert refused == []


def test_scheduler_makes_no_other_requests(asked: list[Asked]) -> None:
    granted = {Right(right.group, right.resource, right.verb) for right in RIGHTS}
    others = {Right(one.right.group, one.right.resource, one.right.verb) for one in asked} - granted
    assert [right for right in others if right.resource not in NOT_OF_THE_CHART] == []


@pytest.mark.parametrize("right", [right for right in RIGHTS if right not in NOT_A_REQUEST], ids=str)
def test_every_right_is_used(asked: list[Asked], world: World, right: Right) -> None:
    if right.resource == "devicetaintrules" and minor() < FIRST_WITH_TAINT_RULES:
        pytest.skip(f"{chosen_release()} has no DeviceTaintRules; 1.{FIRST_WITH_TAINT_RULES} has them")
    assert right in _used(world.log)


# --- each rule taken away --------------------------------------------------------------------------


def is_seen_at_the_start(rule: Mapping[str, Any]) -> bool:
    """Return True if a scheduler without the rule refuses to start."""
    return "watch" in rule["verbs"] or rule["resources"] == ["leases"]


@dataclass(frozen=True)
class Mutant:
    """A removed rule: the deed fails, and `refused` is how the API server shows it."""

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
    "priorityclasses": Mutant(Deeds.say_where, Right("scheduling.k8s.io", "priorityclasses", "list")),
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
def test_deed_fails_without_its_rule(world: World, asked: list[Asked], kind: str, rule: Json) -> None:
    name = mutant_of(rule)
    mutant = MUTANTS[name]
    with world.without(kind, rule):
        world.log.read()
        is_done = mutant.deed(world.deeds, f"without-{name.replace('/', '-').replace('.', '-')}")

        def is_refused() -> bool:
            is_done()  # some deeds are done by the check itself
            return any(
                one.code in (403, 422)
                and Right(one.right.group, one.right.resource, one.right.verb) == mutant.refused
                for one in world.log.read()
            )

        wait_until(is_refused, f"{mutant.refused} is refused")
        assert not is_done()
        world.deeds.remove_pods()


LISTED: Final = [rule for _, rule in RULES if "watch" in rule["verbs"]]
OF_THE_LEASE: Final = [rule for _, rule in RULES if rule["resources"] == ["leases"]]


@pytest.fixture(scope="module")
def refused(world: World, asked: list[Asked]) -> dict[str, set[str]]:
    """Return the missing rights that a start without any list rule reports, beside the leader."""
    with world.without("ClusterRole", *LISTED):
        return missing_of(world.berth.start("without-lists"))


def missing_of(process: Running) -> dict[str, set[str]]:
    """Return the rights that a refused start names: verbs by resource."""
    wait_until(lambda: process.ended_with is not None, "it ends")
    assert process.ended_with == 1
    _, _, missing = process.said.rpartition("missing RBAC rights: ")
    places = (text.rpartition(", ") for text in missing.partition(" (")[0].split("; "))
    found = {}
    for others, _, last in places:
        verb, _, place = last.partition(" ")
        found[place] = {verb, *filter(None, others.split(", "))}
    return found


def test_no_two_rules_grant_one_right() -> None:
    assert len(RIGHTS) == sum(len(list(rights_of(rule))) for _, rule in RULES)


@pytest.mark.parametrize("rule", [pytest.param(rule, id=name_of(rule)) for rule in LISTED])
def test_without_a_rule_the_start_is_refused(refused: dict[str, set[str]], rule: Json) -> None:
    for right in rights_of(rule):
        resource = f"{right.resource}.{right.group}" if right.group else right.resource
        assert {"list", "watch"} <= refused[resource]


@pytest.mark.parametrize("rule", [pytest.param(rule, id=name_of(rule)) for rule in OF_THE_LEASE])
def test_without_a_rule_of_the_lease_the_start_is_refused(
    world: World, asked: list[Asked], rule: Json
) -> None:
    """Start one more process beside the leader; to create a Lease, without a leader."""
    makes_the_lease = "create" in rule["verbs"]
    with world.without("Role", rule):
        if makes_the_lease:
            world.end()
        missing = missing_of(world.berth.start(f"without-{name_of(rule)}"))
    if makes_the_lease:
        world.deeds.leader = world.berth.lead("anew")
    assert missing == {"leases.coordination.k8s.io in namespace kube-system": set(rule["verbs"])}


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
        wait_until(lambda: "lease.event_dropped" in world.deeds.leader.said, "the event is dropped")
    assert announced() == before
    world.end()
    world.deeds.leader = world.berth.lead("announced")
    wait_until(lambda: announced() == before + 1, "the next one is announced")


def test_client_certificates_are_unknown_without_the_binding(world: World, asked: list[Asked]) -> None:
    binding = world.berth.manifest("RoleBinding", "kube-system:berth:authentication-reader")
    said = "endpoints.trust_unknown"
    assert said not in world.deeds.leader.said
    drop(world.berth.servers, binding)
    try:
        process = world.berth.start("uncertain")
        wait_until(lambda: said in process.said or process.ended_with is not None, "it says so")
    finally:
        put(world.berth.servers, binding)
    assert 'configmaps \\"extension-apiserver-authentication\\" is forbidden' in process.said
