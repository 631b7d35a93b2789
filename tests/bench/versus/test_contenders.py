"""The configuration of each contender."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from berth_bench.versus import contenders
from berth_bench.versus.contenders import Beside, Contender
from berth_bench.versus.label_rank import LabelRank
from berth_host.config.loading import load_configuration
from berth_host.plugins.registry import ClassRegistry

ALL = (
    contenders.BERTH,
    contenders.BERTH_PLUGIN,
    contenders.BERTH_BY_NODE,
    contenders.BERTH_BY_NODE_INSIDE,
    contenders.BERTH_GO,
    contenders.BERTH_GO_BY_NODE,
    contenders.KUBE_SCHEDULER,
    contenders.KUBE_SCHEDULER_CACHING,
    contenders.KUBE_SCHEDULER_EXTENDER,
    contenders.BERTH_SHADOWED,
    contenders.SHADOW,
)


def first(contender: Contender) -> dict[str, Any]:
    said: dict[str, Any] = yaml.safe_load(contender.configuration("http://127.0.0.1:1"))
    return said


@pytest.mark.parametrize("contender", ALL, ids=lambda one: one.name)
def test_percentage_of_nodes_to_score_is_set_explicitly(contender: Contender) -> None:
    samples = contender is contenders.KUBE_SCHEDULER
    assert first(contender)["percentageOfNodesToScore"] == (0 if samples else 100)


@pytest.mark.parametrize("contender", ALL, ids=lambda one: one.name)
def test_extender_receives_names_only_if_it_caches_nodes(contender: Contender) -> None:
    extenders = first(contender).get("extenders", [])
    assert contender.extends == bool(extenders)
    cached = contender.beside is Beside.NODE_CACHING_EXTENDER
    assert [one["nodeCacheCapable"] for one in extenders] == ([cached] if contender.extends else [])
    assert all(one["urlPrefix"] == "http://127.0.0.1:1" for one in extenders)


def test_shadow_has_the_configuration_of_the_deciding_berth_and_writes_nothing() -> None:
    for shadowed in (contenders.BERTH_SHADOWED, contenders.KUBE_SCHEDULER_SHADOWED):
        assert shadowed.beside is Beside.SHADOW
        assert not shadowed.flags
    assert contenders.SHADOW.flags == ("--shadow",)
    assert contenders.SHADOW.configuration() == contenders.BERTH.configuration()


def test_plugin_is_required_and_enabled_at_filter_and_score() -> None:
    contender = contenders.BERTH_PLUGIN
    registered = ClassRegistry({"LabelRank": LabelRank}).points()
    text = f"{contender.configuration()}---\n{contender.berth_configuration()}"
    loaded = load_configuration(text, source="test", registered=registered)
    plugin = loaded.berth.plugin("LabelRank")
    assert plugin is not None
    assert plugin.required
    assert plugin.command is not None
    assert plugin.command[-1] == "berth_bench.versus.label_rank:LabelRank"
    (profile,) = loaded.profiles
    assert profile.plugins_at("filter")[-1].name == "LabelRank"
    assert [one.weight for one in profile.plugins_at("score") if one.name == "LabelRank"] == [1]
    assert contenders.BERTH.berth_configuration() == ""


@pytest.mark.parametrize(
    ("contender", "where"),
    [
        (contenders.BERTH_BY_NODE, "command"),
        (contenders.BERTH_BY_NODE_INSIDE, "in_process"),
        (contenders.BERTH_BY_ROW, "command"),
        (contenders.BERTH_BY_ROW_INSIDE, "in_process"),
        (contenders.BERTH_GO, "command"),
        (contenders.BERTH_GO_BY_NODE, "command"),
    ],
    ids=lambda one: one if isinstance(one, str) else one.name,
)
def test_declared_plugin_runs_served_or_in_process(contender: Contender, where: str) -> None:
    text = f"{contender.configuration()}---\n{contender.berth_configuration()}"
    loaded = load_configuration(text, source="test", registered=ClassRegistry({}).points())
    plugin = loaded.berth.plugin(contender.plugin_name)
    assert plugin is not None
    assert [name for name in ("command", "in_process") if getattr(plugin, name) is not None] == [where]
