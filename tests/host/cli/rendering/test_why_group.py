"""`berth why podgroup` on manifests: the text, the JSON, and wrong names."""

from __future__ import annotations

import pytest
from berth_host.cli.rendering.why_group import group_answer_text
from berth_host.explain.group_answer import GroupAnswer, GroupWhere, RepairState
from support.commands import answer
from support.groups import members, pod_group
from support.manifest_objects import node_object
from support.running_commands import Run, Write

GATE = ("--feature-gates", "GenericWorkload=true")
RACKS = ("--feature-gates", "GenericWorkload=true,TopologyAwareWorkloadScheduling=true")


def gang(write: Write) -> str:
    return write(
        node_object("left", cpu="2"),
        node_object("right", cpu="1"),
        pod_group("train", least=5),
        *members("train", 5),
    )


def test_text_has_members_the_last_attempt_and_the_next_pod(run: Run, write: Write) -> None:
    result = run("why", "podgroup", "train", "-f", gang(write), *GATE)
    assert result.exit_code == 0, result.output
    text = result.stdout
    assert text.startswith("PodGroup default/train: pending, ")
    assert "\n  0 of 5 pods placed, minimum 5: 5 missing\n" in text
    assert ": the group does not fit\n  3 pods fit, 1 not tried\n  PodGroupPostFilter: " in text
    assert "NEXT POD default/train-3\n  0/2 nodes are available: 2 Insufficient cpu.\n" in text
    assert "REJECTED BY\n  PLUGIN" in text
    assert "NEAREST FIT\n  2 nodes lack 1 CPU\n" in text
    assert "queued since" not in text


def test_annotations_that_have_no_effect_are_named(run: Run, write: Write) -> None:
    group = pod_group("train", least=1)
    group["metadata"]["annotations"] = {"gangs.berth.io/repair": "evict"}
    path = write(node_object("left", cpu="2"), group, *members("train", 1))
    text = run("why", "podgroup", "train", "-f", path, *GATE).stdout
    assert (
        '\n  annotation gangs.berth.io/repair: "evict": must be one of Leave, Refill, Evict; '
        "Leave of the configuration counts\n"
    ) in text


@pytest.mark.parametrize(
    ("repair", "text"),
    [
        (RepairState(since_s=0.0, repair="Refill"), "it waits for their replacements"),
        (
            RepairState(since_s=0.0, repair="Evict", evicts_at_s=60.0),
            "the others are evicted at 1970-01-01T00:01:00Z, unless replacements come",
        ),
        (
            RepairState(since_s=0.0, repair="Evict", evicts_at_s=60.0, is_evicting=True),
            "the others are being evicted",
        ),
    ],
    ids=["Refill", "Evict", "evicting"],
)
def test_group_that_lost_members_says_what_follows(repair: RepairState, text: str) -> None:
    answer = GroupAnswer(
        group="default/train",
        kind="PodGroup",
        uid="u",
        state=GroupWhere.UNSCHEDULABLE,
        message="m",
        answered_at_s=1.0,
        root_key="podgroup/default/train",
        pod_count=2,
        repair=repair,
    )
    assert f"\n  has lost members since 1970-01-01T00:00:00Z: {text}\n" in group_answer_text(answer)


def test_placements_of_a_topology_are_a_table_with_the_nearest_first(run: Run, write: Write) -> None:
    racks = []
    for name, cpu, rack in (("a", "1", "r1"), ("b", "3", "r2")):
        racks.append(node_object(name, cpu=cpu))
        racks[-1]["metadata"]["labels"] = {"rack": rack}
    group = pod_group("train", least=4, schedulingConstraints={"topology": [{"key": "rack"}]})
    path = write(*racks, group, *members("train", 4))
    text = run("why", "PodGroup", "default/train", "-f", path, *RACKS).stdout
    assert "3 pods fit in the best of 2 placements" in text
    table = text.partition("PLACEMENTS BY rack, the nearest first\n")[2].splitlines()
    assert [line.split()[:3] for line in table[:3]] == [
        ["PLACEMENT", "NODES", "FIT"],
        ["r2", "1", "3"],
        ["r1", "1", "1"],
    ]


def test_json_has_the_members_and_the_next_pod(run: Run, write: Write) -> None:
    got = answer(run("why", "podgroup", "train", "-f", gang(write), *GATE, "-o", "json"))
    assert got["members"] == {"count": 5, "placed": 0, "minimum": 5, "missing": 5, "notCreated": 0}
    last = got["lastAttempt"]
    assert (last["fit"], last["remaining"], last["next"]["pod"]) == (3, 1, "default/train-3")
    assert [one["text"] for one in last["next"]["nearestFit"]] == ["2 nodes lack 1 CPU"]


def test_unknown_groups_exit_with_2_and_the_cure(run: Run, write: Write) -> None:
    result = run("why", "podgroup", "trial", "-f", gang(write), *GATE)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines()[-1] == (
        "no podgroup default/trial is known here: check the name and the namespace"
    )
    result = run("why", "podgroup", "train", "-f", gang(write))
    assert result.exit_code == 2
    assert "turn on --feature-gates GenericWorkload=true" in result.stderr.splitlines()[-1]
    assert run("why", "podgroup", "a/b/c", "-f", gang(write), *GATE).exit_code == 2
