"""A new extension point is one row of `ExtensionPoint`: every list of points is derived from the table."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import berth_sdk.extension_points
import pytest
from berth_host.config.berth.points import POINT_RULES
from berth_host.config.decoding.types_v1 import PLUGIN_SETS
from berth_host.config.default_plugins import EXTENSION_POINTS, WEIGHTED_POINTS
from berth_sdk.extension_points import METHODS, ExtensionPoint

LAST_ROW = "    POD_GROUP_POST_FILTER = _point("
# The table with one more row, in a child: the point is made before anything imports it.
CHILD = """
import importlib.util, json, pathlib, sys
spec = importlib.util.find_spec("berth_sdk.extension_points")
module = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = module
source = pathlib.Path(spec.origin).read_text()
last, row = sys.argv[1:]
assert source.count(last) == 1
exec(compile(source.replace(last, row + last), spec.origin, "exec"), vars(module))

from berth_host.config.berth.points import POINT_RULES
from berth_host.config.decoding.types_v1 import PLUGIN_SETS
from berth_host.config.default_plugins import EXTENSION_POINTS, POINT_INTERFACES, WEIGHTED_POINTS
from berth_host.metrics.scheduler_metrics import SchedulerMetrics
from berth_host.rpc.call import keys_of
from berth_host.rpc.calls import _told

point = module.ExtensionPoint(19)
call = _told(point, local=None)
times = SchedulerMetrics().points("default-scheduler")
class Made:
    def pre_try(self): ...
print(json.dumps({
    "interface": POINT_INTERFACES.get("preTry"), "all": "preTry" in EXTENSION_POINTS,
    "weighted": WEIGHTED_POINTS.get("filter"),
    "sets": "preTry" in PLUGIN_SETS, "rule": POINT_RULES["preTry"].config_point,
    "rpc": call.rpc, "keys": call.keys, "deadline_s": call.default_deadline_s,
    "timed": len(times.at), "derived": point in module.points_of(Made),
}))
"""


def with_row(row: str) -> dict[str, Any]:
    """Return what the lists say of a point, of which only this row was written."""
    child = subprocess.run(
        [sys.executable, "-c", CHILD, LAST_ROW, row], capture_output=True, text=True, check=False
    )
    assert child.returncode == 0, child.stderr
    found: dict[str, Any] = json.loads(child.stdout)
    return found


def test_new_point_with_a_list_is_one_row() -> None:
    assert with_row('    PRE_TRY = _point(19, "pre_try", assembled=17)\n') == {
        "interface": "PreTryPlugin",
        "all": True,
        "weighted": None,
        "sets": True,
        "rule": "preTry",
        "rpc": "PreTry",
        "keys": ["preTry"],
        "deadline_s": 1.0,
        "timed": 20,
        "derived": True,
    }


@pytest.mark.parametrize(
    ("column", "weighted", "keys"),
    [("", None, ["preTry"]), (", part_of=FILTER", "filter", ["preTry", "filter"])],
    ids=["without a list", "part of another point"],
)
def test_column_says_where_a_point_has_its_list(column: str, weighted: str | None, keys: list[str]) -> None:
    found = with_row(f'    PRE_TRY = _point(19, "pre_try"{column})\n')
    assert (found["interface"], found["sets"]) == (None, False)
    assert (found["weighted"], found["keys"]) == (weighted, keys)


def test_lists_that_kube_scheduler_shows_are_in_its_order() -> None:
    assert (
        *("preEnqueue", "queueSort", "preFilter", "filter", "postFilter", "preScore", "score", "reserve"),
        *("permit", "preBind", "bind", "postBind", "multiPoint"),
        *("placementGenerate", "placementScore", "placementFeasible", "podGroupPostFilter"),
    ) == PLUGIN_SETS
    assert (
        *("preFilter", "filter", "postFilter", "reserve", "preScore", "score", "preBind", "bind", "postBind"),
        *(
            "permit",
            "preEnqueue",
            "queueSort",
            "placementGenerate",
            "placementScore",
            "placementFeasible",
            "podGroupPostFilter",
        ),
    ) == EXTENSION_POINTS
    assert WEIGHTED_POINTS == {"score": "score", "placementScore": "placement score"}
    assert set(EXTENSION_POINTS) <= set(POINT_RULES)


def test_every_point_has_its_number_and_its_methods() -> None:
    assert [point.value for point in ExtensionPoint] == list(range(1, 19))
    assert {point: point.methods for point in ExtensionPoint} == METHODS
    assert all(METHODS.values())
    assert ExtensionPoint.NORMALIZE_SCORE.part_of is ExtensionPoint.SCORE
    assert berth_sdk.extension_points.ExtensionPoint(4) is ExtensionPoint.FILTER
