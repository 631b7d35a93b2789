"""Recalling what plugins said comes to the same as asking everyone, whatever happens in between; and the test
notices when it does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from berth_host.framework.recall import known_pods, said, shared_scores, shared_verdicts
from berth_host.framework.recall.signing import Signers
from berth_plugins.inter_pod_affinity import InterPodAffinity
from berth_plugins.node_resources_fit import NodeResourcesFit
from berth_plugins.pod_topology_spread import PodTopologySpread
from berth_plugins.taint_toleration import TaintToleration
from berth_sdk._shared_columns import RowColumn
from berth_sdk.extension_points import NoConcern
from berth_sdk.testing import make_pod
from hypothesis import HealthCheck, settings
from support.recall_world import NODES, SPECS, RecallMachine

TestRecallEqualsAskEveryone = RecallMachine.TestCase
TestRecallEqualsAskEveryone.settings = settings(
    max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def a_changed_row_is_not_forgotten(patch: pytest.MonkeyPatch) -> None:
    """The merged verdicts and the sums do not catch up."""
    patch.setattr(known_pods.KnownPods, "catch_up", lambda self, columns: None)


def a_verdict_is_not_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A merged verdict outlives its row."""
    patch.setattr(shared_verdicts.SharedVerdicts, "forget", lambda self, moved, node_moved: None)


def a_score_is_not_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A score in the sum outlives its row."""
    patch.setattr(shared_scores.SharedScores, "forget", lambda self, moved, node_moved: None)


def a_column_is_not_brought_up_to_date(patch: pytest.MonkeyPatch) -> None:
    """One plugin's column outlives its rows."""
    catch_up = RowColumn.catch_up

    def once(self: Any, columns: Any) -> None:
        if not len(self._known):
            catch_up(self, columns)

    patch.setattr(RowColumn, "catch_up", once)


def amounts_are_not_signed(patch: pytest.MonkeyPatch) -> None:
    """Pods that ask for other amounts count as the same."""
    patch.setattr(NodeResourcesFit, "sign_spec", lambda self, pod: ())


def tolerations_are_not_signed(patch: pytest.MonkeyPatch) -> None:
    """Pods with other tolerations count as the same."""
    patch.setattr(TaintToleration, "sign_spec", lambda self, pod: ())


def constraints_are_nobodys_business(patch: pytest.MonkeyPatch) -> None:
    """Pods with spread constraints count as pods without."""
    patch.setattr(PodTopologySpread, "sign", lambda self, pod, nodes: NoConcern.CYCLE)


def terms_of_others_are_not_looked_for(patch: pytest.MonkeyPatch) -> None:
    """A pod without terms counts as nobody's neighbour."""
    sign = InterPodAffinity.sign

    def own_terms(self: Any, pod: Any, nodes: Any) -> Any:
        return NoConcern.CYCLE if pod.pod_affinity is None else sign(self, pod, nodes)

    patch.setattr(InterPodAffinity, "sign", own_terms)


def all_pods_are_the_same(patch: pytest.MonkeyPatch) -> None:
    """Nothing tells pods apart."""
    patch.setattr(Signers, "sign", lambda self, pod, nodes: ({one.name: () for one in self.all}, ()))


def what_was_said_is_not_forgotten(patch: pytest.MonkeyPatch) -> None:
    """What PreFilter answered is kept under whatever signature, and a SKIP counts without being signed."""
    patch.setattr(
        said.Memory, "of", lambda self, signature, nodes: self.__dict__.setdefault("one", said.Said())
    )


Step = tuple[str, dict[str, Any]]


def _cycles(spec: int = 0, **fields: Any) -> Step:
    pod = make_pod("p", spec=dict(SPECS[spec]), **{"cpu": "500m", "labels": {"app": "web"}, **fields})
    return "cycles", {"pod": pod, "times": 3}


def _placed(uid: str, spec: int = 0, number: int = 0, **fields: Any) -> Step:
    pod = make_pod("p", spec=dict(SPECS[spec]), **{"cpu": 1, "labels": {"app": "web"}, **fields})
    return "pod_comes", {"pod": pod, "uid": uid, "number": number}


def _node(fields: int, number: int) -> Step:
    return "node_comes_or_changes", {"fields": NODES[fields], "number": number}


MUTANTS: dict[Callable[[pytest.MonkeyPatch], None], tuple[Step, ...]] = {
    a_changed_row_is_not_forgotten: (_cycles(), _node(3, 0), _cycles()),
    a_verdict_is_not_forgotten: (_cycles(), _placed("a", cpu=4), _cycles()),
    a_score_is_not_forgotten: (_cycles(), _placed("a"), _cycles()),
    a_column_is_not_brought_up_to_date: (
        _cycles(),
        _cycles(cpu=1),
        _cycles(cpu=2),
        _node(1, 0),
        _cycles(cpu=3),
    ),
    amounts_are_not_signed: (_cycles(), _cycles(cpu=3)),
    tolerations_are_not_signed: (_cycles(), _cycles(tolerations=["t"])),
    constraints_are_nobodys_business: (_placed("a"), _cycles(), _cycles(1)),
    terms_of_others_are_not_looked_for: (_cycles(), _placed("a", 4), _cycles()),
    all_pods_are_the_same: (_cycles(), _cycles(cpu=3)),
    what_was_said_is_not_forgotten: (_cycles(), _cycles(8)),
}


@pytest.mark.recall_mutants
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_mutant_is_killed(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    _run(MUTANTS[mutant])
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        _run(MUTANTS[mutant])


def _run(steps: tuple[Step, ...]) -> None:
    machine = RecallMachine()
    for what, values in steps:
        getattr(machine, what)(**values)
