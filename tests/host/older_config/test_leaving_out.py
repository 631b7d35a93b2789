"""Plugins that berth lacks leave a v1 document, and everything else of the document stays."""

from __future__ import annotations

from typing import Any, TypeAlias

import pytest
import yaml
from berth_host.config.default_plugins import DEFAULT_PLUGINS_BY_NAME
from berth_host.config.source.yaml_reader import read_yaml
from berth_host.older_config.leaving_out import leave_out
from berth_host.older_config.table import Change
from berth_host.older_config.warnings import Remark

Sets: TypeAlias = dict[str, dict[str, list[str]]]
KNOWN = {name: plugin.points for name, plugin in DEFAULT_PLUGINS_BY_NAME.items()} | {
    "Mine": frozenset({"filter", "bind"})
}


def entries(sets: Sets) -> dict[str, Any]:
    """Return plugin sets with the names as entries."""
    return {
        point: {listed: [{"name": name} for name in names] for listed, names in lists.items()}
        for point, lists in sets.items()
    }


def left(text: str) -> tuple[Any, tuple[Remark, ...]]:
    """Return the profiles that stay, and the remarks."""
    root, remarks = leave_out(read_yaml(text).root, KNOWN)
    document = root.to_json()
    return document.get("profiles") if isinstance(document, dict) else document, remarks


@pytest.mark.parametrize(
    "text",
    [
        "kind: X",
        "profiles: 3",
        "profiles: [3, null, []]",
        "profiles: [{plugins: 3, pluginConfig: {a: b}}]",
        "profiles: [{plugins: {filter: [], score: {enabled: {name: X}, disabled: [3, [X], {nam: X}]}}}]",
        "profiles: [{plugins: {filter: {enabled: [{name: '*'}, {name: ''}, {name: Mine}, {name: 3}]}}}]",
        "profiles: [{plugins: {filter: {disabled: [{name: Coscheduling}, {name: X}]}}}]",
        "profiles: [{pluginConfig: [{name: X, args: {a: 1}}, {args: 1}]}]",
    ],
)
def test_document_without_a_plugin_to_leave_out_is_the_same_object(text: str) -> None:
    root = read_yaml(text).root
    assert leave_out(root, KNOWN) == (root, ())
    assert leave_out(root, KNOWN)[0] is root


def test_each_profile_loses_its_own_plugins_and_lists_that_become_empty() -> None:
    profiles, remarks = left("""
profiles:
- schedulerName: a
  percentageOfNodesToScore: 5
  plugins:
    score: {enabled: [{name: Peaks, weight: 2}]}
    filter:
      enabled: [{name: Mine}, {name: X}]
      disabled: [{name: X}]
    permit: {}
  pluginConfig:
  - {name: Peaks, args: {a: 1}}
- schedulerName: b
  plugins: {score: {enabled: [{name: Peaks}]}}
  pluginConfig: [{name: SySched}]
- schedulerName: c
""")
    assert profiles == [
        {
            "schedulerName": "a",
            "percentageOfNodesToScore": 5,
            "plugins": {"filter": {"enabled": [{"name": "Mine"}]}, "permit": {}},
        },
        {"schedulerName": "b"},
        {"schedulerName": "c"},
    ]
    assert [(one.path, one.plugin, one.line) for one in remarks] == [
        ("profiles[0]", "Peaks", 6),
        ("profiles[0]", "X", 8),
        ("profiles[1]", "Peaks", 14),
        ("profiles[1]", "SySched", 15),
    ]
    assert "X is left out (filter, filter (disabled))" in remarks[1].text
    assert "SySched is left out (pluginConfig)" in remarks[3].text


def test_line_of_what_stays_is_that_of_the_older_file() -> None:
    text = "profiles:\n- plugins:\n    filter:\n      enabled:\n      - name: X\n      - name: Mine\n"
    root, _ = leave_out(read_yaml(text).root, KNOWN)
    assert root.line_of("profiles[0].plugins.filter.enabled[0]") == 6


@pytest.mark.parametrize(
    ("plugins", "kept", "taken"),
    [
        pytest.param({"bind": {"enabled": ["X"], "disabled": ["*"]}}, {}, ["bind"], id="at the point"),
        pytest.param(
            {"bind": {"enabled": ["X", "Mine"], "disabled": ["*"]}},
            {"bind": {"enabled": ["Mine"], "disabled": ["*"]}},
            [],
            id="another one is left",
        ),
        pytest.param(
            {"multiPoint": {"enabled": ["X"], "disabled": ["*"]}},
            {
                "multiPoint": {"disabled": ["*"]},
                "queueSort": {"enabled": ["PrioritySort"]},
                "bind": {"enabled": ["DefaultBinder"]},
            },
            ["queueSort", "bind"],
            id="at multiPoint",
        ),
        pytest.param(
            {"multiPoint": {"enabled": ["Peaks"], "disabled": ["DefaultBinder"]}},
            {"multiPoint": {"disabled": ["DefaultBinder"]}},
            [],
            id="it was no Bind plugin",
        ),
        pytest.param(
            {"multiPoint": {"enabled": ["X", "Mine"], "disabled": ["DefaultBinder"]}},
            {"multiPoint": {"enabled": ["Mine"], "disabled": ["DefaultBinder"]}},
            [],
            id="another one at multiPoint",
        ),
    ],
)
def test_default_plugin_takes_over_only_where_none_is_left(
    plugins: Sets, kept: Sets, taken: list[str]
) -> None:
    profiles, remarks = left(yaml.safe_dump({"profiles": [{"plugins": entries(plugins)}]}))
    assert profiles == [{"plugins": entries(kept)} if kept else {}]
    assert [one.path.rpartition(".")[2] for one in remarks if "takes over" in one.text] == taken


def test_precision_of_a_remark_is_that_of_the_tables() -> None:
    enabled = ["QOSSort", "CapacityScheduling", "EBSLimits", "NodePreferAvoidPods", "ImageLocalty"]
    text = yaml.safe_dump({"profiles": [{"plugins": entries({"multiPoint": {"enabled": enabled}})}]})
    _, remarks = left(text)
    found = {one.plugin: one.change for one in remarks if one.plugin}
    assert found == {
        "QOSSort": Change.APPROXIMATED,
        "CapacityScheduling": Change.DROPPED,
        "EBSLimits": Change.APPROXIMATED,
        "NodePreferAvoidPods": Change.DROPPED,
        "ImageLocalty": Change.DROPPED,
    }
