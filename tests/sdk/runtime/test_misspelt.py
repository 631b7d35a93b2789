"""A public name that looks like one of ours and is none is refused, with the name that was meant."""

from __future__ import annotations

from typing import Any

import pytest
from berth_sdk.errors import PluginDefinitionError
from berth_sdk.extension_points import Plugin
from berth_sdk.needs import Need
from berth_sdk.runtime.descriptor import describe
from berth_sdk.serve.instance import Instance
from berth_sdk.testing import PluginHost


def nothing(self: Any, *args: Any) -> None: ...


def made(**attributes: Any) -> type:
    return type("Made", (Plugin,), {"filter": nothing} | attributes)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("filter_node", "filter"),
        ("prefilter", "pre_filter"),
        ("preFilter", "pre_filter"),
        ("PostBind", "post_bind"),
        ("on_start", "__init__"),
        ("on_stop", "close"),
        ("shutdown", "close"),
        ("score_node", "score_nodes"),
        ("normalise", "normalize"),
        ("NormalizeScore", "normalize"),
        ("permitt", "permit"),
        ("socre", "score"),
        ("queuing_hint", "queueing_hint"),
        ("unreseve", "unreserve"),
        ("pre_bind_preflight", "pre_bind_pre_flight"),
        ("sort_keys", "sort_key"),
        ("queueing_hints", "queueing_hint"),
        ("add_pods", "add_pod"),
        ("score_table", "score_nodes"),
    ],
)
def test_misspelt_method_is_refused_with_the_one_that_was_meant(written: str, meant: str) -> None:
    with pytest.raises(PluginDefinitionError, match=rf"Made has the method `{written}`.*{meant}"):
        describe(made(**{written: nothing}))


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("need", "needs"),
        ("event", "events"),
        ("depend_on", "depends_on"),
        ("deadline", "deadlines"),
        ("normalisation", "normalization"),
        ("state_needs", "needs"),
        ("pod_need", "needs"),
        ("max_concurency", "max_concurrency"),
        ("read_shared", "reads_shared"),
        ("answer_early", "answers_early"),
    ],
)
def test_unknown_attribute_that_looks_like_ours_is_refused(written: str, meant: str) -> None:
    with pytest.raises(PluginDefinitionError, match=rf"attribute `{written}`.*did you mean `{meant}`"):
        describe(made(**{written: (Need.whole_pod(),)}))


@pytest.mark.parametrize(
    "written", ["find", "store", "reserved", "filters", "_filter_node", "NEED", "scorer", "gpu_free", "mind"]
)
def test_authors_own_names_are_no_concern(written: str) -> None:
    describe(made(**{written: nothing}))


def test_helper_that_the_class_calls_may_be_called_anything() -> None:
    class Helped(Plugin):
        def filter(self, state: Any, pod: Any, node: Any) -> None:
            return self.filter_node(node)

        def filter_node(self, node: Any) -> None: ...

    describe(Helped)


class Shared:
    def prefilter(self, node: Any) -> None: ...


def test_misspelt_name_of_a_base_class_is_refused_with_that_class() -> None:
    class Heir(Shared, Plugin):
        filter = nothing

    with pytest.raises(
        PluginDefinitionError, match="has the method `prefilter` of its base class Shared, which"
    ):
        describe(Heir)


def test_names_of_a_base_class_from_another_distribution_are_no_concern() -> None:
    foreign = type("Foreign", (), {"filter_node": nothing, "event": (), "__module__": "elsewhere.mixins"})
    describe(type("Heir", (foreign, Plugin), {"filter": nothing, "__module__": __name__}))
    plugin = type("Base", (Plugin,), {"filter_node": nothing, "__module__": "elsewhere.plugins"})
    with pytest.raises(PluginDefinitionError, match="`filter_node` of its base class Base"):
        describe(type("Heir", (plugin,), {"filter": nothing, "__module__": __name__}))


class Misspelt(Plugin):
    def filter(self, state: Any, pod: Any, node: Any) -> None: ...

    def prefilter(self, state: Any, pod: Any, nodes: Any) -> None: ...


def test_every_way_to_run_a_plugin_says_the_same() -> None:
    """In process and `check-config`: `tests/host/plugins/test_misspelt_plugins.py`."""
    texts = []
    for run in (
        lambda: describe(Misspelt),
        lambda: PluginHost(Misspelt),
        lambda: Instance({"Misspelt": Misspelt}),
    ):
        with pytest.raises(PluginDefinitionError) as refused:
            run()
        texts.append(str(refused.value))
    assert len(set(texts)) == 1 and "pre_filter" in texts[0]
