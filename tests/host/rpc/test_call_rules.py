"""How an operator's and a plugin's wishes change a call's deadline and policies."""

from __future__ import annotations

import pytest
from berth_host.rpc.call import AnyCall
from berth_host.rpc.call_rules import PointPolicy, Policy, call_rules
from berth_host.rpc.calls import CALLS


@pytest.mark.parametrize(
    ("rpc", "deadline_s", "policy"),
    [
        ("PreEnqueue", 0.25, Policy.IGNORE),
        ("PreFilter", 0.25, Policy.FAIL),
        ("Filter", 0.25, Policy.FAIL),
        ("SimulateFilter", 0.5, Policy.FAIL),
        ("PostFilter", 1.0, Policy.IGNORE),
        ("PreScore", 0.25, Policy.NEUTRAL),
        ("Score", 0.25, Policy.NEUTRAL),
        ("NormalizeScore", 0.25, Policy.NEUTRAL),
        ("Reserve", 1.0, Policy.FAIL),
        ("Permit", 1.0, Policy.FAIL),
        ("PreBind", 60.0, Policy.FAIL),
        ("Bind", 10.0, Policy.FAIL),
        ("PostBind", 5.0, Policy.IGNORE),
        ("Unreserve", 1.0, Policy.IGNORE),
    ],
)
def test_without_wishes_the_defaults_hold(rpc: str, deadline_s: float, policy: Policy) -> None:
    rule = call_rules({}, {}, required=False)[rpc]
    assert (rule.deadline_s, rule.policy) == (deadline_s, policy)


def test_operator_chooses_deadline_and_policy_per_point() -> None:
    rules = call_rules(
        {"filter": PointPolicy(0.1, Policy.IGNORE), "score": PointPolicy(policy=Policy.FAIL)},
        {},
        required=False,
    )
    assert (rules["Filter"].deadline_s, rules["Filter"].policy) == (0.1, Policy.IGNORE)
    assert (rules["SimulateFilter"].deadline_s, rules["SimulateFilter"].policy) == (0.2, Policy.IGNORE)
    assert (rules["Score"].deadline_s, rules["Score"].policy) == (0.25, Policy.FAIL)
    assert rules["PreFilter"].policy is Policy.FAIL


def test_plugin_may_wish_for_less_than_the_operator_allows() -> None:
    rules = call_rules({"bind": PointPolicy(20.0)}, {"bind": 3.0}, required=False)
    assert rules["Bind"].deadline_s == 3.0


def test_wish_is_clamped_by_the_operator() -> None:
    rules = call_rules({"bind": PointPolicy(20.0)}, {"bind": 50.0}, required=False)
    assert rules["Bind"].deadline_s == 20.0


def test_wish_without_an_operator_is_clamped_by_the_maximum() -> None:
    assert call_rules({}, {"preBind": 9999.0}, required=False)["PreBind"].deadline_s == 600.0


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.rpc)
def test_absent_required_plugin_fails_and_absent_optional_one_counts_for_nothing(call: AnyCall) -> None:
    required = call_rules({}, {}, required=True)[call.rpc]
    optional = call_rules({}, {}, required=False)[call.rpc]
    assert required.absent is Policy.FAIL
    assert optional.absent is not Policy.FAIL


def test_operator_may_have_an_absent_optional_plugin_fail_a_point() -> None:
    rules = call_rules({"filter": PointPolicy(policy=Policy.FAIL)}, {}, required=False)
    assert rules["Filter"].absent is Policy.FAIL
    assert rules["PreFilter"].absent is Policy.IGNORE
