"""The dashboard is up to date, asks only for metrics and labels that exist, and can be laid out."""

from __future__ import annotations

import json
import re

import pytest
from berth_host.metrics import families
from berth_host.metrics.family import Family, Kind

from deploy import dashboard

FAMILIES = {family.name: family for family in (*families.KUBE_SCHEDULER, *families.BERTH)}
OF_PROMETHEUS = {"namespace", "job", "le"}
PANELS = [panel for row in dashboard.ROWS.values() for panel in row]
_QUERIED = re.compile(r"\b(?P<name>(?:berth|scheduler|rest_client|leader_election)_\w+)\{OWN\}")
_GROUPED = re.compile(r"by \((?P<labels>[^)]*)\)")
_SHOWN = re.compile(r"\{\{(?P<label>\w+)\}\}")


def family_of(name: str) -> Family:
    """Return the family of a series; those of a histogram have endings."""
    if name in FAMILIES:
        return FAMILIES[name]
    base, _, ending = name.rpartition("_")
    assert ending in ("bucket", "sum", "count"), f"no metric {name}"
    assert FAMILIES[base].kind is Kind.HISTOGRAM, name
    return FAMILIES[base]


def test_file_is_up_to_date() -> None:
    assert dashboard.PATH.read_text() == dashboard.made(), "run python tests/deploy/dashboard.py"


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.title)
def test_panel_asks_for_metrics_and_labels_that_exist(panel: dashboard.Panel) -> None:
    for expression, legend in panel.queries:
        asked = [family_of(found["name"]) for found in _QUERIED.finditer(expression)]
        assert asked, expression
        grouped = {
            label.strip() for found in _GROUPED.finditer(expression) for label in found["labels"].split(",")
        }
        for family in asked:
            assert grouped <= {*family.labels, *OF_PROMETHEUS}, (family.name, grouped)
            assert "rate(" not in expression or family.kind is not Kind.GAUGE, family.name
        assert {found["label"] for found in _SHOWN.finditer(legend)} <= grouped, legend


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(dashboard.made())["panels"]:
        at = panel["gridPos"]
        here = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not taken & here, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= here
