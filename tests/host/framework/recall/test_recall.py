"""Recalling what plugins said comes to the same as asking everyone, whatever happens in between; and the test
notices when it does not.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from support import recall_mutants, recall_sign_mutants
from support.recall_steps import Mutant
from support.recall_world import RecallMachine

MUTANTS = {**recall_mutants.MUTANTS, **recall_sign_mutants.MUTANTS}

TestRecallEqualsAskEveryone = pytest.mark.slow(RecallMachine.TestCase)
TestRecallEqualsAskEveryone.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_mutant_is_killed(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    _run(RecallMachine(), mutant)
    world = RecallMachine()
    mutant(monkeypatch, world)
    with pytest.raises(AssertionError):
        _run(world, mutant)


def _run(world: RecallMachine, mutant: Mutant) -> None:
    for what, values in MUTANTS[mutant]:
        getattr(world, what)(**values)
