"""Kept answers lead to the same results as calls to every plugin, after any changes. The test also fails if a
deliberate fault makes them differ.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from support import kept_content_mutants, kept_mutants, kept_sign_mutants, kept_step_mutants
from support.kept_steps import Mutant
from support.kept_world import KeptMachine, OneStepMachine
from support.tiers import examples

STEP_MUTANTS = kept_step_mutants.MUTANTS
MUTANTS = {
    **kept_mutants.MUTANTS,
    **kept_sign_mutants.MUTANTS,
    **kept_content_mutants.MUTANTS,
    **STEP_MUTANTS,
}

TestKeptAnswersEqualAskEveryone = pytest.mark.slow(KeptMachine.TestCase)
TestKeptAnswersEqualAskEveryone.settings = settings(
    max_examples=examples(60),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)

TestOneStepEqualsAskEveryone = pytest.mark.long(pytest.mark.slow(OneStepMachine.TestCase))
TestOneStepEqualsAskEveryone.settings = settings(
    TestKeptAnswersEqualAskEveryone.settings, max_examples=examples(30)
)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_mutant_is_killed(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = OneStepMachine if mutant in STEP_MUTANTS else KeptMachine
    _run(machine(), mutant)
    world = machine()
    mutant(monkeypatch, world)
    with pytest.raises((AssertionError, IndexError)):  # a row that is gone shows at once
        _run(world, mutant)


def _run(world: KeptMachine, mutant: Mutant) -> None:
    for what, values in MUTANTS[mutant]:
        getattr(world, what)(**values)
