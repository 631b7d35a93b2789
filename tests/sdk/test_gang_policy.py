"""The settings of groups: arguments, and annotations that win."""

from __future__ import annotations

from typing import Any

import pytest
from berth_sdk.errors import PluginArgsError
from berth_sdk.gang_policy import GangPolicy, Repair
from berth_sdk.pod_group import PodGroup


def with_annotations(**annotations: str) -> PodGroup:
    named = {f"gangs.berth.io/{name.replace('_', '-')}": text for name, text in annotations.items()}
    return PodGroup(name="train", annotations={"other.io/grace": "x", **named})


def test_defaults_are_what_kube_scheduler_does() -> None:
    want = GangPolicy(timeout_s=300.0, grace_s=60.0, repair=Repair.LEAVE, holds_room=False)
    assert GangPolicy() == want == GangPolicy.of({"featureGates": {}, "kind": "GangSchedulingArgs"})
    assert GangPolicy.of({"timeoutSeconds": None, "repair": None}) == want


def test_arguments_are_read_also_as_the_floats_that_come_over_the_wire() -> None:
    got = GangPolicy.of({"timeoutSeconds": 90.0, "graceSeconds": 0, "repair": "Evict", "holdRoom": True})
    assert got == GangPolicy(timeout_s=90.0, grace_s=0.0, repair=Repair.EVICT, holds_room=True)


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({"timeoutSeconds": 0}, "timeoutSeconds: Invalid value: 0: must be greater than 0"),
        ({"timeoutSeconds": True}, "timeoutSeconds: Invalid value: True: must be an integer, in seconds"),
        ({"timeoutSeconds": "5m"}, 'timeoutSeconds: Invalid value: "5m": must be an integer, in seconds'),
        ({"graceSeconds": -1}, "graceSeconds: Invalid value: -1: must be greater than or equal to 0"),
        ({"graceSeconds": 1.5}, "graceSeconds: Invalid value: 1.5: must be an integer, in seconds"),
        ({"graceSeconds": float("inf")}, "graceSeconds: Invalid value: inf: must be an integer, in seconds"),
        ({"repair": "evict"}, 'repair: Invalid value: "evict": must be one of Leave, Refill, Evict'),
        ({"repair": ["Evict"]}, "repair: Invalid value: ['Evict']: must be one of Leave, Refill, Evict"),
        ({"holdRoom": "true"}, 'holdRoom: Invalid value: "true": must be one of true, false'),
        (
            {"holdRoom": 1, "repair": ""},
            '[repair: Invalid value: "": must be one of Leave, Refill, Evict, '
            "holdRoom: Invalid value: 1: must be one of true, false]",
        ),
    ],
    ids=str,
)
def test_refused_arguments_are_named_with_a_cure(args: dict[str, Any], problem: str) -> None:
    with pytest.raises(PluginArgsError) as raised:
        GangPolicy.of(args)
    assert str(raised.value) == problem


def test_annotations_win() -> None:
    group = with_annotations(timeout="10m", grace="0s", repair="Refill", hold_room="true")
    got, problems = GangPolicy(timeout_s=5.0, repair=Repair.EVICT).for_group(group)
    assert got == GangPolicy(timeout_s=600.0, grace_s=0.0, repair=Repair.REFILL, holds_room=True)
    assert problems == ()
    assert GangPolicy(holds_room=True).for_group(with_annotations(hold_room="false"))[0] == GangPolicy()


def test_group_without_annotations_has_the_policy_itself() -> None:
    policy = GangPolicy(grace_s=1.0)
    assert policy.for_group(PodGroup(name="train")) == (policy, ())
    assert policy.for_group(with_annotations())[0] is policy


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("timeout", "300", "the unit is missing (ns, us, ms, s, m or h); 5m0s of the configuration counts"),
        ("timeout", "0s", "must be greater than 0; 5m0s of the configuration counts"),
        ("timeout", "", "write it as 500ms, 10s or 1m30s; 5m0s of the configuration counts"),
        ("grace", "-1s", "must be greater than or equal to 0; 7s of the configuration counts"),
        ("repair", "evict", "must be one of Leave, Refill, Evict; Refill of the configuration counts"),
        ("hold_room", "yes", "must be one of true, false; false of the configuration counts"),
    ],
)
def test_refused_annotation_leaves_the_configured_setting(name: str, text: str, why: str) -> None:
    policy = GangPolicy(grace_s=7.0, repair=Repair.REFILL)
    got, problems = policy.for_group(with_annotations(**{name: text}))
    assert got == policy
    assert len(problems) == 1
    assert problems[0].startswith(f'annotation gangs.berth.io/{name.replace("_", "-")}: "{text}": ')
    assert problems[0].endswith(why)


def test_refused_annotation_leaves_the_others_in_effect() -> None:
    got, problems = GangPolicy().for_group(with_annotations(grace="soon", repair="Evict"))
    assert got == GangPolicy(repair=Repair.EVICT)
    assert len(problems) == 1


def test_misspelt_annotation_is_a_problem() -> None:
    got, problems = GangPolicy().for_group(with_annotations(grace_period="5s"))
    assert got == GangPolicy()
    assert problems == (
        "annotation gangs.berth.io/grace-period: berth has no such setting: use gangs.berth.io/timeout, "
        "gangs.berth.io/grace, gangs.berth.io/repair, gangs.berth.io/hold-room",
    )
