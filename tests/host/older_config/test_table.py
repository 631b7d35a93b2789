"""The mapping table: every row names plugins that exist, and every row is what conversion does."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from berth_host.config.configuration import LoadedConfiguration
from berth_host.config.decoding.go_types import json_fields
from berth_host.config.decoding.types_v1 import PluginsV1
from berth_host.config.default_plugins import DEFAULT_PLUGINS_BY_NAME
from berth_host.config.loading import load_configuration
from berth_host.older_config.conversion import Converter
from berth_host.older_config.shapes import DOCUMENTS
from berth_host.older_config.table import (
    DEFAULT_WEIGHTS_BEFORE_V1BETA3,
    FIELDS,
    PLUGINS,
    POINTS,
    PREDICATES,
    PRIORITIES,
    TABLE,
    Change,
    Form,
    Row,
    field_row,
)

GROUP = "kubescheduler.config.k8s.io"
KIND = "KubeSchedulerConfiguration"
SHAPE = {"shape": [{"utilization": 0, "score": 0}]}


def load(document: dict[str, object]) -> LoadedConfiguration:
    return load_configuration(json.dumps(document), source="f", older=Converter)


def of_form(form: Form, profile: dict[str, object]) -> dict[str, object]:
    if form is Form.FLAT:
        return profile
    meta = {"apiVersion": f"{GROUP}/{form}", "kind": KIND}
    return meta | (profile if form is Form.V1ALPHA1 else {"profiles": [profile]})


def test_every_name_has_one_row_and_every_row_a_form() -> None:
    names = Counter((row.subject, row.name) for row in TABLE)
    assert names.most_common(1)[0][1] == 1
    assert all(row.forms and row.since for row in TABLE)
    assert all(bool(row.becomes) != (row.change is Change.DROPPED) for row in TABLE)


def test_plugins_and_points_of_v1_exist() -> None:
    plugins = {name for row in (*PLUGINS, *PREDICATES, *PRIORITIES) for name in row.becomes}
    assert plugins | DEFAULT_WEIGHTS_BEFORE_V1BETA3.keys() <= DEFAULT_PLUGINS_BY_NAME.keys()
    assert {name for row in POINTS for name in row.becomes} <= json_fields(PluginsV1).keys()


CASES = [pytest.param(row, form, id=f"{row.name}-{form}") for row in PLUGINS for form in sorted(row.forms)]


@pytest.mark.parametrize(("row", "form"), CASES)
def test_every_plugin_of_every_form_becomes_the_one_of_its_row(row: Row, form: Form) -> None:
    (becomes,) = row.becomes or ("NodeResourcesFit",)
    point = "score" if "score" in DEFAULT_PLUGINS_BY_NAME[becomes].points else "filter"
    listed: object = [{"name": row.name}]
    plugins = {point: listed if form is Form.FLAT else {"enabled": listed, "disabled": [{"name": "*"}]}}
    config = [{"name": row.name, "args": SHAPE}] if row.strategy == "RequestedToCapacityRatio" else []
    loaded = load(of_form(form, {"plugins": plugins, "pluginConfig": config}))
    found = [plugin.name for plugin in loaded.profiles[0].plugins_at(point)]
    assert found == list(row.becomes)
    assert any(f"plugin {row.name} " in warning for warning in loaded.warnings)


@pytest.mark.parametrize("row", POINTS, ids=lambda row: row.name)
def test_every_point_of_every_form_becomes_the_one_of_its_row(row: Row) -> None:
    for form in sorted(row.forms):
        enabled: object = [{"name": "ImageLocality"}]
        plugins = {row.name: {"enabled": enabled}, "score": {"enabled": enabled}}
        document = of_form(form, {"plugins": plugins})
        text = json.dumps(document).replace("ImageLocality", "Mine")
        registered = {"Mine": frozenset({"score", *row.becomes})}
        loaded = load_configuration(text, source="f", registered=registered, older=Converter)
        assert loaded.profiles[0].plugins_at(row.becomes[0])[-1].name == "Mine"
        assert any(f"extension point {row.name} becomes" in warning for warning in loaded.warnings)


VALUES: dict[str, object] = {
    "schedulerName": "a",
    "plugins": {},
    "pluginConfig": [],
    "algorithmSource.provider": "ClusterAutoscalerProvider",
    "hardPodAffinitySymmetricWeight": 3,
    "bindTimeoutSeconds": 5,
    "disablePreemption": True,
    "healthzBindAddress": "",
    "metricsBindAddress": "",
    "failureDomains": "zone",
    "leaderElection.lockObjectNamespace": "a",
    "leaderElection.lockObjectName": "a",
    "leaderElection.resourceLock": "configmaps",
    "alwaysCheckAllPredicates": False,
}
FIELD_CASES = [
    pytest.param(name, form, id=f"{name}-{form}") for name in VALUES for form in sorted(field_row(name).forms)
]


@pytest.mark.parametrize(("name", "form"), FIELD_CASES)
def test_every_field_of_every_form_is_accepted_with_a_warning(name: str, form: Form) -> None:
    outer, _, inner = name.partition(".")
    value = {inner: VALUES[name]} if inner else VALUES[name]
    meta: dict[str, object] = {"apiVersion": f"{GROUP}/{form}", "kind": KIND}
    if form in (Form.POLICY, Form.FLAT):
        meta = {"apiVersion": "v1", "kind": "Policy"} if form is Form.POLICY else {}
    loaded = load(meta | {outer: value})
    row = field_row(name)
    wanted = f"becomes {row.becomes[0]}" if row.becomes else "is dropped"
    assert any(f" {outer}" in warning and wanted in warning for warning in loaded.warnings)


@pytest.mark.parametrize("name", [name for name in VALUES if "." not in name])
def test_a_field_changed_in_the_forms_that_have_it(name: str) -> None:
    have = {form for form, fields in DOCUMENTS.items() if name in fields}
    assert field_row(name).forms == have


def test_fields_without_a_generic_case_are_listed() -> None:
    rest = {row.name for row in FIELDS} - VALUES.keys()
    assert rest == {
        *("apiVersion", "kind Policy", "plugins.*[] (a bare list)", "default weights"),
        *("algorithmSource.policy", "extenders[].apiVersion"),
        *("PodTopologySpreadArgs.defaultConstraints", "extenders[].enableHttps", "extenders[].httpTimeout"),
    }
