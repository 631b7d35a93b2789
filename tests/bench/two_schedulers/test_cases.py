"""The cases of `berth bench two-schedulers`, and the recount of the nodes."""

from __future__ import annotations

import pytest
import yaml
from berth_bench.rendering.two_schedulers import outcomes_text
from berth_bench.two_schedulers.cases import CASES, CPU_M, chosen, configuration, nodes
from berth_bench.two_schedulers.figures import Outcome, overfull
from berth_host.cli.main import berth
from click.testing import CliRunner


@pytest.mark.parametrize(
    ("room", "on_nodes", "want"),
    [
        ({"a": 2, "b": 2}, ["a", "a", "b"], (0, 0)),
        ({"a": 2, "b": 2}, ["a", "a", "a", "a", "b"], (2, 1)),
        ({"a": 1, "b": 1}, ["a", "a", "b", "b"], (2, 2)),
        ({"a": 1}, ["a", "gone"], (1, 1)),
        ({"a": 1}, [], (0, 0)),
    ],
)
def test_pods_beyond_the_room_of_each_node_are_counted(
    room: dict[str, int], on_nodes: list[str], want: tuple[int, int]
) -> None:
    assert overfull(room, on_nodes) == want


@pytest.mark.parametrize(("count", "places"), [(2, 2), (7, 100), (50, 2500)])
def test_nodes_have_the_places_that_were_asked_for(count: int, places: int) -> None:
    made = list(nodes(count, places))
    assert len(made) == count
    assert sum(int(one["status"]["allocatable"]["cpu"][:-1]) for one in made) == places * CPU_M


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_scheduler_has_half_of_the_pods_unless_they_share_a_name(case: object) -> None:
    (one,) = chosen([case.name])  # type: ignore[attr-defined]
    names = [pod["spec"]["schedulerName"] for pod in one.pods(10)]
    assert [names.count(name) for name in dict.fromkeys(names)] == ([10] if one.one_name else [5, 5])
    pools = [pod["spec"].get("nodeSelector", {}).get("pool") for pod in one.pods(4)]
    assert pools == (["0", "1", "0", "1"] if one.parted else [None] * 4)
    for name in one.scheduler_names:
        (profile,) = yaml.safe_load(configuration(name))["profiles"]
        assert profile["schedulerName"] == name


def test_table_names_the_schedulers_and_their_figures() -> None:
    outcome = Outcome(
        case="c",
        title="two of them",
        rate=0.0,
        nodes=2,
        places=3,
        pods=5,
        bound=4,
        too_many=1,
        overfull_nodes=1,
        sent_back=7,
    )
    header, line = outcomes_text([outcome]).splitlines()
    assert header.split()[:3] == ["SCHEDULERS", "PODS", "PLACES"]
    assert line.split() == ["two", "of", "them", "5", "3", "4", "1", "1", "7"]
    assert outcome.as_json("berth bench")["command"] == "berth bench"


def test_unknown_case_is_named_with_the_known_ones() -> None:
    done = CliRunner().invoke(berth, ["bench", "two-schedulers", "both"])
    assert done.exit_code == 2
    assert "there is no case both: there are kube-kube" in done.output


def test_list_prints_the_cases() -> None:
    done = CliRunner().invoke(berth, ["bench", "two-schedulers", "--list"])
    assert done.output.split() == [case.name for case in CASES]
