"""How an operator's and a plugin's wishes change a call's deadline and policies."""

from __future__ import annotations

import pytest
from berth_host.rpc.call import AnyCall
from berth_host.rpc.call_rules import PointPolicy, Policy, call_rules
from berth_host.rpc.calls import CALLS


@pytest.mark.parametrize(
    ("rpc", "deadline_s", "policy"),
    [
        ("PreEnqueue", 0.25, Policy.FAIL),
        ("PreFilter", 0.25, Policy.FAIL),
        ("Filter", 0.25, Policy.FAIL),
        ("SimulateFilter", 0.5, Policy.FAIL),
        ("PostFilter", 1.0, Policy.IGNORE),
        ("PreScore", 0.25, Policy.FAIL),
        ("Score", 0.25, Policy.FAIL),
        ("NormalizeScore", 0.25, Policy.FAIL),
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
        {"filter": PointPolicy(0.1, Policy.IGNORE), "score": PointPolicy(policy=Policy.NEUTRAL)},
        {},
        required=True,
    )
    assert (rules["Filter"].deadline_s, rules["Filter"].policy) == (0.1, Policy.IGNORE)
    assert (rules["SimulateFilter"].deadline_s, rules["SimulateFilter"].policy) == (0.2, Policy.IGNORE)
    assert (rules["Score"].deadline_s, rules["Score"].policy) == (0.25, Policy.NEUTRAL)
    assert rules["PreFilter"].policy is Policy.FAIL
    assert (rules["Filter"].unasked, rules["Score"].unasked) == (Policy.IGNORE, Policy.NEUTRAL)


def test_plugin_may_wish_for_less_than_the_operator_allows() -> None:
    rules = call_rules({"bind": PointPolicy(20.0)}, {"bind": 3.0}, required=False)
    assert rules["Bind"].deadline_s == 3.0


def test_wish_is_clamped_by_the_operator() -> None:
    rules = call_rules({"bind": PointPolicy(20.0)}, {"bind": 50.0}, required=False)
    assert rules["Bind"].deadline_s == 20.0


def test_wish_without_an_operator_is_clamped_by_the_maximum() -> None:
    assert call_rules({}, {"preBind": 9999.0}, required=False)["PreBind"].deadline_s == 600.0


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.rpc)
def test_plugin_that_cannot_be_asked_fails_the_call_as_its_policy_says_unless_it_is_not_required(
    call: AnyCall,
) -> None:
    required = call_rules({}, {}, required=True)[call.rpc]
    optional = call_rules({}, {}, required=False)[call.rpc]
    assert required.unasked is required.policy
    assert optional.unasked is not Policy.FAIL
    assert optional.policy is required.policy


def test_every_call_that_decides_fails_by_default() -> None:
    only_inform = {"SortKeys", "QueueingHints", "PostFilter", "PodGroupPostFilter"}
    only_inform |= {"Unreserve", "PostBind", "EndCycles"}
    rules = call_rules({}, {}, required=True)
    assert {rpc for rpc, rule in rules.items() if rule.unasked is not Policy.FAIL} == only_inform


def test_policy_that_the_operator_wrote_counts_also_where_the_plugin_is_not_required() -> None:
    rules = call_rules({"filter": PointPolicy(policy=Policy.FAIL)}, {}, required=False)
    assert rules["Filter"].unasked is Policy.FAIL
    assert rules["PreFilter"].unasked is Policy.IGNORE
