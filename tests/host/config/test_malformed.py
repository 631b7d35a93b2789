"""Whatever the text, loading either succeeds or raises ConfigurationError."""

from __future__ import annotations

import json

import pytest
import yaml
from berth_host.config.decoding.args_v1 import ARGS_TYPES
from berth_host.config.decoding.go_types import json_fields
from berth_host.config.decoding.types_v1 import (
    Extender,
    KubeSchedulerConfiguration,
    PluginSetV1,
    PluginsV1,
    PluginV1,
    ProfileV1,
)
from berth_host.config.default_plugins import DEFAULT_PLUGINS_BY_NAME
from berth_host.config.errors import ConfigurationError
from berth_host.config.loading import load_berth_configuration, load_configuration
from hypothesis import given
from hypothesis import strategies as st

HEADER = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
BERTH = "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n"

_TYPES = (
    *(KubeSchedulerConfiguration, ProfileV1, PluginsV1, PluginSetV1, PluginV1, Extender),
    *ARGS_TYPES.values(),
)
FIELD_NAMES = sorted({name for cls in _TYPES for name in json_fields(cls)})
WORDS = (
    st.sampled_from([*DEFAULT_PLUGINS_BY_NAME, "*", "", "10s", "-1s", "List", "leases", "y", "0x", "Zm9v"])
    | st.text()
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | WORDS
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(FIELD_NAMES) | st.text(), inner, max_size=5)
    ),
    max_leaves=20,
)
DOCUMENTS = st.dictionaries(st.sampled_from(FIELD_NAMES), VALUES, max_size=6)


def load(text: str) -> None:
    try:
        loaded = load_configuration(text, source="f", registered={"Mine": frozenset({"filter", "score"})})
    except ConfigurationError as err:
        assert err.findings
        assert str(err)
    else:
        assert loaded.profiles


@given(text=st.text() | st.text("{}[]:,-&*!|>'\"%@`#?\n\t ay01.~<"))
def test_any_text(text: str) -> None:
    load(text)
    load(HEADER + text)
    load(f"{HEADER}{BERTH}{text}")


@pytest.mark.slow
@given(document=DOCUMENTS)
def test_any_values_in_yaml(document: dict[str, object]) -> None:
    load(HEADER + yaml.safe_dump(document, allow_unicode=True))


@pytest.mark.long
@pytest.mark.slow
@given(document=DOCUMENTS)
def test_any_values_in_json(document: dict[str, object]) -> None:
    kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    load(json.dumps(document | kind))


@pytest.mark.slow
@given(kind=st.sampled_from(sorted(ARGS_TYPES)), data=st.data())
def test_any_arguments(kind: str, data: st.DataObject) -> None:
    fields = st.sampled_from(sorted(json_fields(ARGS_TYPES[kind])))
    args = data.draw(st.dictionaries(fields, VALUES, max_size=4))
    entry = {"name": kind.removesuffix("Args"), "args": args}
    load(HEADER + yaml.safe_dump({"profiles": [{"pluginConfig": [entry]}]}, allow_unicode=True))


@given(document=st.dictionaries(st.sampled_from(["plugins", "cycleBudget"]), VALUES))
def test_any_values_for_berth(document: dict[str, object]) -> None:
    try:
        load_berth_configuration(f"{HEADER}{BERTH}{yaml.safe_dump(document, allow_unicode=True)}", source="f")
    except ConfigurationError as err:
        assert err.findings


@pytest.mark.parametrize(
    "text", ["\ud800", "\x00", "\ufeff", "\x85", "{" * 5000, "- " * 5000, "a: " + "9" * 10_000]
)
def test_odd_text(text: str) -> None:
    load(text)
    load(HEADER + text)
