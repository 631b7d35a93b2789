"""Mutants of signatures, and of what plugins keep from cycle to cycle, in the cluster that keeps answers;
and the steps that show them. See `kept_mutants`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from berth_host.framework.kept.signing import Signers
from berth_plugins.pod_topology_spread.domains import Area
from berth_sdk.extension_points import NoConcern
from berth_sdk.pod import Pod
from berth_sdk.runtime.declared import Declared
from berth_sdk.runtime.descriptor import describe
from berth_sdk.slices import Work
from support.kept_objects import REPLICA_SET, pod
from support.kept_steps import (
    DB,
    NAMESPACE_X,
    NAMESPACE_Y,
    Mutant,
    Step,
    cycles,
    gone,
    node,
    once,
    placed,
    simply,
    thing,
)
from support.kept_world import KeptMachine

# --- what signatures say ----------------------------------------------------------------------------------


def all_pods_are_the_same(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """Nothing tells pods apart."""
    patch.setattr(Signers, "sign", lambda self, pod, nodes: ({one.name: () for one in self.all}, ()))


def signs_nothing(plugin: str) -> Mutant:
    """To `plugin` all pods are the same."""

    def mutant(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
        answers: Any = world.both[0].framework._answers
        _sign_by(answers._signers, plugin, lambda pod, nodes: ())

    mutant.__name__ = f"{plugin}_signs_nothing"
    mutant.__doc__ = f"To {plugin} all pods are the same."
    return mutant


def no_claim_is_signed(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """VolumeBinding signs every pod as one without claims. Of a plugin with DependsOn.OTHER nothing else is
    kept, so that a signature without NoConcern only costs calls.
    """
    answers: Any = world.both[0].framework._answers
    _sign_by(answers._signers, "VolumeBinding", lambda pod, nodes: NoConcern.NEUTRAL)


def plugin_of(world: KeptMachine, name: str) -> Any:
    """Return the instance that is kept."""
    client = next(one for one in world.both[0].framework.clients if one.name == name)
    assert client.local is not None
    return client.local.plugin


def terms_of_others_are_not_looked_for(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """Terms that appear are not taken in."""
    affinity = plugin_of(world, "InterPodAffinity")
    patch.setattr(affinity._carried, "catch_up", lambda pods: None)
    patch.setattr(affinity._carried, "take_in", lambda coming: None)


def a_new_term_means_nobody(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """The terms found for a pod's labels are kept although a term appeared."""
    plugin = plugin_of(world, "InterPodAffinity")
    carried = plugin._carried
    seen = Declared(describe(type(plugin))).nodes(world.both[0].cycle(pod("p0")).nodes)
    carried.catch_up(seen.pods)
    for index in (carried.anti, carried.scored):
        known: dict[Any, Any] = {}
        meaning = index.meaning
        patch.setattr(
            index,
            "meaning",
            lambda pod, labels, known=known, meaning=meaning: known.setdefault(
                str(pod.labels), meaning(pod, labels)
            ),
        )


def carried_terms_outlive_the_table(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """The snapshot was begun anew: its column of terms is another one."""
    carried = plugin_of(world, "InterPodAffinity")._carried

    def follow(values: Any) -> None:
        carried._values = values
        while carried._known < len(values):
            carried._add(values.values[carried._known])
            carried._known += 1

    patch.setattr(carried, "_follow", follow)


def namespaces_are_read_once(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """The labels of a namespace changed."""
    namespaces = plugin_of(world, "InterPodAffinity")._namespaces
    namespaces._catch_up()
    patch.setattr(namespaces, "_catch_up", lambda: None)


def terms_are_resolved_once(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """A term selects other namespaces by now."""
    namespaces = plugin_of(world, "InterPodAffinity")._namespaces
    patch.setattr(namespaces, "_forget", lambda before, now: None)


def company_is_not_signed(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """Whether a pod is what it asks for itself tells nothing."""
    _leave_out(patch, world, 2)


def whom_others_keep_away_is_not_signed(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """Which required anti-affinity of others means the pod tells nothing."""
    _leave_out(patch, world, 3)


def whom_others_prefer_is_not_signed(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """Which terms with a weight mean the pod tells nothing."""
    _leave_out(patch, world, 4)


def _leave_out(patch: pytest.MonkeyPatch, world: KeptMachine, part: int) -> None:
    answers: Any = world.both[0].framework._answers
    sign = plugin_of(world, "InterPodAffinity").sign

    def less(pod: Pod, nodes: Any) -> Any:
        signed = sign(pod, nodes)
        if signed is NoConcern.CYCLE:
            return signed
        how, parts = signed if isinstance(signed[0], NoConcern) else (None, signed)
        parts = (*parts[:part], None, *parts[part + 1 :])
        return parts if how is None else (how, parts)

    _sign_by(answers._signers, "InterPodAffinity", less)


def spec_decides_for_pods_with_claims(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """VolumeBinding says of every spec that no pod with it concerns the plugin."""
    answers: Any = world.both[0].framework._answers
    for one in answers._signers.all:
        if one.name == "VolumeBinding":
            one.sign_spec = lambda pod: NoConcern.NEUTRAL
    _begin_specs_anew(answers._signers)


def _sign_by(signers: Any, plugin: str, sign: Any) -> None:
    for one in signers.all:
        if one.name == plugin:
            one.sign = one.sign_rest = sign
            one.sign_spec = None
    _begin_specs_anew(signers)


def _begin_specs_anew(signers: Any) -> None:
    """Sign every spec again, by what the plugins have now: what was signed for it before counts no more."""
    signers._of_spec = tuple([one for one in signers.all if one.sign_spec is not None])
    signers._rests.clear()
    signers._mark = object()


# --- what PodTopologySpread and the tables keep -----------------------------------------------------------


def spread_counts_outlive_the_table(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """The counts of an equal pod are kept although something moved."""
    spread = plugin_of(world, "PodTopologySpread")
    count = spread._count
    known: dict[Any, Any] = {}
    patch.setattr(spread, "_count", lambda plan, whole: known.setdefault(id(plan), count(plan, whole)))


def services_are_read_once(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """A Service came or changed."""
    selectors = plugin_of(world, "PodTopologySpread")._plans._selectors
    read = selectors._service_selectors
    known: dict[Any, Any] = {}
    patch.setattr(selectors, "_service_selectors", lambda name: known.setdefault(name, read(name)))


def services_of_equal_pods_are_read_once(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """A Service came or changed, and pods of one spec keep the plans of the last one."""
    selectors = plugin_of(world, "PodTopologySpread")._plans._selectors
    patch.setattr(selectors, "versions", lambda: ())


def owners_are_read_once(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """A ReplicaSet came or changed."""
    selectors = plugin_of(world, "PodTopologySpread")._plans._selectors
    read = selectors._owner
    known: dict[Any, Any] = {}
    patch.setattr(selectors, "_owner", lambda pod: known.setdefault(pod.owner is None, read(pod)))


def areas_outlive_the_nodes(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """Which nodes take part is kept although a Node object changed."""
    areas = plugin_of(world, "PodTopologySpread")._plans._areas
    catch_up = Area.catch_up

    def at_first(self: Area, whole: Any) -> Work[None]:
        if self._version is None or self not in areas._areas.values():
            yield from catch_up(self, whole)

    patch.setattr(Area, "catch_up", at_first)


def pods_are_not_counted_anew(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """Pods came or went."""
    counts = world.both[0].cycle(pod("p0")).nodes.pod_counts
    counts._catch_up()
    patch.setattr(counts, "_catch_up", lambda: None)


def domains_outlive_the_nodes(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """A node is in another domain."""
    counts = world.both[0].cycle(pod("p0")).nodes.pod_counts
    patch.setattr(counts, "_still_holds", lambda key, domains: True)


MUTANTS: Mapping[Mutant, tuple[Step, ...]] = {
    all_pods_are_the_same: (cycles(), cycles(cpu=3)),
    signs_nothing("NodeName"): (once(), once(cpu=1), once(cpu=2), once("named")),
    signs_nothing("NodeUnschedulable"): (
        node(3, 0),
        once(),
        once(cpu=1),
        once(cpu=2),
        once(tolerations=["node.kubernetes.io/unschedulable"]),
    ),
    signs_nothing("TaintToleration"): (cycles(), cycles(tolerations=["t"])),
    signs_nothing("NodeAffinity"): (cycles(), cycles("zone a")),
    signs_nothing("NodePorts"): (placed("a", host_ports=[80]), cycles(), cycles(host_ports=[80])),
    signs_nothing("NodeResourcesFit"): (cycles(), cycles(cpu=3)),
    signs_nothing("NodeResourcesBalancedAllocation"): (cycles(), cycles(cpu=1, memory="4Gi")),
    signs_nothing("ImageLocality"): (cycles(), cycles(images=["web:v1"])),
    signs_nothing("PodTopologySpread"): (placed("a"), cycles(), cycles("hard spread")),
    signs_nothing("InterPodAffinity"): (placed("a"), cycles(), cycles("anti")),
    # A claim that VolumeBinding alone objects to: it should have been bound at once, and is not.
    no_claim_is_signed: (
        thing("PersistentVolumeClaim", "data", 0),
        thing("StorageClass", "slow", 2),
        cycles(),
        cycles("claim"),
    ),
    spec_decides_for_pods_with_claims: (
        thing("PersistentVolumeClaim", "data", 0),
        thing("StorageClass", "slow", 2),
        cycles(),
        cycles("claim"),
    ),
    terms_of_others_are_not_looked_for: (cycles(), placed("a", "anti"), cycles()),
    a_new_term_means_nobody: (
        NAMESPACE_X,
        placed("a", "anti", 1, labels=DB),
        cycles(),
        placed("b", "anti of a team", 2, labels=DB),
        cycles(),
    ),
    carried_terms_outlive_the_table: (
        placed("a", "near", 2),
        cycles(),
        gone("a"),
        simply("snapshot_is_begun_anew"),
        placed("b", "anti"),
        cycles(),
    ),
    namespaces_are_read_once: (
        NAMESPACE_X,
        placed("a", "anti of a team", namespace="far"),
        cycles(),
        NAMESPACE_Y,
        cycles(),
    ),
    terms_are_resolved_once: (
        NAMESPACE_X,
        placed("a"),
        cycles("anti of a team"),
        NAMESPACE_Y,
        cycles("anti of a team"),
    ),
    company_is_not_signed: (cycles("near"), cycles("near", labels=DB)),
    spread_counts_outlive_the_table: (
        placed("a"),
        cycles("hard spread"),
        placed("b", number=2),
        cycles("hard spread"),
    ),
    services_are_read_once: (placed("a"), cycles(), thing("Service", "s", 0), cycles()),
    services_of_equal_pods_are_read_once: (placed("a"), cycles(), thing("Service", "s", 0), cycles()),
    owners_are_read_once: (
        placed("a"),
        cycles(meta={"ownerReferences": [REPLICA_SET]}),
        thing("ReplicaSet", "rs", 0),
        cycles(meta={"ownerReferences": [REPLICA_SET]}),
    ),
    areas_outlive_the_nodes: (placed("a"), cycles("hard spread"), node(2, 0), cycles("hard spread")),
    pods_are_not_counted_anew: (cycles("anti"), placed("a"), cycles("anti")),
    domains_outlive_the_nodes: (placed("a"), cycles("near"), node(2, 0), cycles("near")),
    whom_others_keep_away_is_not_signed: (
        placed("a", "anti", labels=DB),
        once("anti"),
        once("anti", labels=DB),
    ),
    whom_others_prefer_is_not_signed: (
        placed("a", "rather apart"),
        cycles("rather apart"),
        cycles("rather apart", labels=DB),
    ),
}
