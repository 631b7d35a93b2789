"""The table of points: one line per call, legal policies, limits."""

from __future__ import annotations

from berth_host.config.berth.points import POINT_RULES, FailurePolicy
from berth_host.config.default_plugins import EXTENSION_POINTS
from berth_sdk.extension_points import ExtensionPoint

SCORING = {"preScore", "score", "normalizeScore", "placementScore", "normalizePlacementScore"}


def test_every_point_of_the_contract_has_a_line() -> None:
    assert {point.config_name for point in ExtensionPoint} <= set(POINT_RULES)


def test_only_scoring_can_be_neutral() -> None:
    neutral = {point for point, rules in POINT_RULES.items() if FailurePolicy.NEUTRAL in rules.policies}
    assert neutral == SCORING


def test_default_policy_is_legal_and_default_deadline_within_its_limit() -> None:
    for rules in POINT_RULES.values():
        assert not rules.policies or rules.policy in rules.policies
        assert bool(rules.policies) != bool(rules.fixed)
        assert 0 < rules.deadline_ms <= rules.max_deadline_ms
        assert rules.config_point is None or rules.config_point in EXTENSION_POINTS


def test_defaults_are_those_of_the_contract() -> None:
    got = {point: (rules.deadline_ms, rules.policy.value) for point, rules in POINT_RULES.items()}
    assert got == {
        "preEnqueue": (250, "Fail"),
        "queueSort": (250, "Ignore"),
        "queueingHints": (250, "Ignore"),
        "preFilter": (250, "Fail"),
        "filter": (250, "Fail"),
        "simulateFilter": (500, "Fail"),
        "postFilter": (1_000, "Ignore"),
        "preScore": (250, "Fail"),
        "score": (250, "Fail"),
        "normalizeScore": (250, "Fail"),
        "reserve": (1_000, "Fail"),
        "unreserve": (1_000, "Ignore"),
        "permit": (1_000, "Fail"),
        "placementGenerate": (1_000, "Fail"),
        "placementScore": (250, "Fail"),
        "normalizePlacementScore": (250, "Fail"),
        "placementFeasible": (250, "Fail"),
        "podGroupPostFilter": (10_000, "Ignore"),
        "preBindPreFlight": (60_000, "Fail"),
        "preBind": (60_000, "Fail"),
        "bind": (10_000, "Fail"),
        "postBind": (5_000, "Ignore"),
    }
    assert POINT_RULES["preBind"].max_deadline_ms == 600_000
