"""Older documents are converted, v1 passes unchanged, and no input ends in a traceback."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from berth_host.config.default_plugins import EXTENSION_POINTS
from berth_host.config.errors import ConfigurationError
from berth_host.config.loading import load_configuration
from berth_host.older_config.conversion import Converter, convert, form_of
from berth_host.older_config.nodes import node_of
from berth_host.older_config.shapes import DOCUMENTS
from berth_host.older_config.table import TABLE, Form, Subject
from hypothesis import given
from hypothesis import strategies as st

GROUP = "kubescheduler.config.k8s.io"
KIND = "KubeSchedulerConfiguration"
VERSIONS = ["v1alpha1", "v1alpha2", "v1beta1", "v1beta2", "v1beta3"]


@pytest.mark.parametrize(
    ("document", "form"),
    [
        ({"apiVersion": f"{GROUP}/v1", "kind": KIND}, None),
        ({"apiVersion": f"{GROUP}/v1beta3", "kind": KIND}, Form.V1BETA3),
        ({"apiVersion": f"{GROUP}/v2", "kind": KIND}, None),
        ({"apiVersion": "v1", "kind": "Policy"}, Form.POLICY),
        ({"kind": "Policy"}, Form.POLICY),
        ({"apiVersion": f"{GROUP}/v1", "kind": "Policy"}, Form.POLICY),
        ({"apiVersion": "apps/v1", "kind": "Policy"}, None),
        ({"predicates": []}, Form.POLICY),
        ({"extenders": []}, Form.POLICY),
        ({"plugins": {}}, Form.FLAT),
        ({"plugins": {}, "apiVersion": f"{GROUP}/v1"}, None),
        ({"parallelism": 3}, None),
        ({"apiVersion": 1, "kind": KIND}, None),
        ({}, None),
    ],
)
def test_the_form_is_recognised_by_version_and_kind_or_by_the_fields(
    document: Any, form: Form | None
) -> None:
    assert form_of(node_of(document, 1)) is form


def test_v1_document_is_not_changed_by_the_conversion() -> None:
    root = node_of({"apiVersion": f"{GROUP}/v1", "kind": KIND, "profiles": [{"x": 1}]}, 1)
    converted = convert(root, is_yaml=True, source="f")
    assert converted.root is root
    assert converted.warnings == ()


def test_error_of_a_lone_plugin_config_entry_names_the_cure() -> None:
    text = '{"name": "Mine", "args": {"a": 1}}'
    with pytest.raises(ConfigurationError, match=r"list it under profiles\[\].pluginConfig"):
        load_configuration(text, source="f", older=Converter)


def test_lines_of_the_older_file_are_kept() -> None:
    text = f"apiVersion: {GROUP}/v1alpha1\nkind: {KIND}\nbindTimeoutSeconds: 5\n"
    text += "hardPodAffinitySymmetricWeight: 101\n"
    with pytest.raises(ConfigurationError) as caught:
        load_configuration(text, source="f", older=Converter)
    assert (caught.value.kind, caught.value.line) == ("validation", 4)


def test_an_error_in_a_joined_part_comes_with_the_warning_that_it_was_joined() -> None:
    text = f"apiVersion: {GROUP}/v1alpha1\nkind: {KIND}\nplugins: {{}}\n...\nplugins: {{}}\n"
    with pytest.raises(ConfigurationError, match='key "plugins" already set in map') as caught:
        load_configuration(text, source="f", older=Converter)
    assert caught.value.line == 5
    assert ["joined" in warning for warning in caught.value.warnings] == [True]


NAMES = st.sampled_from(
    [row.name for row in TABLE if row.subject is Subject.PLUGIN] + ["NodeAffinity", "*", "X"]
)
FIELDS = sorted({name for fields in DOCUMENTS.values() for name in fields})
POINTS = ["postFilter", "unreserve", "normalizeScore", "score", "filter", "preScore", "multiPoint"]
REGISTERED = {"X": frozenset(EXTENSION_POINTS) - {"queueSort"}}
WORDS = st.sampled_from(["", "a", "System", "10s", *FIELDS]) | NAMES
PLUGIN_LISTS = st.lists(
    st.fixed_dictionaries({"name": NAMES}, optional={"weight": st.integers(-1, 9)}), max_size=3
)
PLUGINS = st.dictionaries(
    st.sampled_from(POINTS),
    PLUGIN_LISTS | st.fixed_dictionaries({}, optional={"enabled": PLUGIN_LISTS, "disabled": PLUGIN_LISTS}),
    max_size=3,
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
PROFILE = st.fixed_dictionaries(
    {},
    optional={
        "plugins": PLUGINS,
        "pluginConfig": st.lists(st.fixed_dictionaries({"name": NAMES, "args": VALUES}), max_size=2),
    },
)
DOCUMENT = st.one_of(
    st.dictionaries(WORDS, VALUES, max_size=4),
    PROFILE,
    st.fixed_dictionaries({"profiles": st.lists(PROFILE, max_size=2)}),
)


@pytest.mark.slow
@given(document=DOCUMENT, version=st.sampled_from([*VERSIONS, None]), kind=st.sampled_from([KIND, "Policy"]))
def test_any_values_are_converted_or_refused_with_findings(
    document: dict[str, Any], version: str | None, kind: str
) -> None:
    if version is not None:
        meta = "v1" if kind == "Policy" else f"{GROUP}/{version}"
        document = {**document, "apiVersion": meta, "kind": kind}
    for text in (json.dumps(document), yaml.safe_dump(document, allow_unicode=True)):
        try:
            loaded = load_configuration(text, source="f", registered=REGISTERED, older=Converter)
        except ConfigurationError as err:
            assert err.findings
        else:
            saved = json.dumps(loaded.document)
            again = load_configuration(saved, source="f", registered=REGISTERED, older=Converter)
            assert again.converted_from is None
            assert again.document == loaded.document
            assert again.profiles == loaded.profiles


@given(rest=st.text() | st.text("{}[]:,-\n ay.#'"))
def test_any_text_after_an_end_mark_is_read_or_refused_with_findings(rest: str) -> None:
    text = f"apiVersion: {GROUP}/v1alpha1\nkind: {KIND}\n...\n{rest}"
    try:
        assert load_configuration(text, source="f", older=Converter).profiles
    except ConfigurationError as err:
        assert err.findings


@pytest.mark.parametrize("version", ["v1", "v1beta3"])
def test_config_map_that_holds_a_configuration_is_refused_with_the_command_that_writes_it_to_a_file(
    version: str,
) -> None:
    held = f"apiVersion: {GROUP}/{version}\nkind: {KIND}\n"
    metadata = {"name": "mine", "namespace": "kube-system"}
    text = yaml.safe_dump(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"my-config.yaml": held}}
    )
    with pytest.raises(ConfigurationError) as err:
        load_configuration(text, source="f", older=Converter)
    want = "kubectl -n kube-system get configmap mine -o 'jsonpath={.data.my-config\\.yaml}' > my-config.yaml"
    assert want in str(err.value)
