"""`managedResources` of plugins: what is refused, and what NodeResourcesFit leaves to whom."""

from __future__ import annotations

from typing import Any

import pytest
from berth_host.config.configuration import LoadedConfiguration
from berth_host.config.errors import ConfigurationError
from berth_host.config.loading import load_berth_configuration, load_configuration

KUBE = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
BERTH = "apiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n"
SOCKET = "endpoint: 'unix:///run/x.sock'"
LEFT = "managedResources: [{name: a.b/gpu, ignoredByScheduler: true}]"
BOTH = "managedResources: [{name: a.b/gpu, ignoredByScheduler: true}, {name: a.b/nic}]"
FILTERS = "plugins: {filter: {enabled: [{name: X}]}}"
OWN = "pluginConfig: [{name: NodeResourcesFit, args: {ignoredResources: [x/y, a.b/gpu]}}]"
EXTENDER = "extenders: [{urlPrefix: u, managedResources: [{name: a.b/other, ignoredByScheduler: true}]}]\n"


def load(first: str, *plugins: str, **registered: frozenset[str]) -> LoadedConfiguration:
    listed = "".join(
        f"- {{name: {name}, {fields}}}\n" for name, fields in zip(("X", "Other"), plugins, strict=False)
    )
    text = f"{KUBE}{first}---\n{BERTH}plugins:\n{listed}"
    return load_configuration(text, source="f.yaml", registered=registered)


def ignored(loaded: LoadedConfiguration, profile: int = 0) -> Any:
    args = loaded.profiles[profile].plugin_args["NodeResourcesFit"]
    assert isinstance(args, dict)
    return args.get("ignoredResources")


def error_of(first: str, *plugins: str, **registered: frozenset[str]) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        load(first, *plugins, **registered)
    return caught.value


def test_managed_resources_are_read_and_shown() -> None:
    plugin = load_berth_configuration(f"{BERTH}plugins: [{{name: X, {SOCKET}, {BOTH}}}]", source="f").plugins[
        0
    ]
    assert (plugin.managed_names, plugin.left_to_it) == (("a.b/gpu", "a.b/nic"), ("a.b/gpu",))
    assert plugin.to_json()["managedResources"] == [
        {"name": "a.b/gpu", "ignoredByScheduler": True},
        {"name": "a.b/nic"},
    ]


@pytest.mark.parametrize(
    "fields", [SOCKET, f"{SOCKET}, managedResources: []", f"{SOCKET}, managedResources: null"]
)
def test_without_managed_resources_nothing_changes(fields: str) -> None:
    loaded = load(f"profiles:\n- {FILTERS}\n  {OWN}\n", fields)
    assert ignored(loaded) == ["x/y", "a.b/gpu"]
    assert "managedResources" not in loaded.berth.plugins[0].to_json()


def test_node_resources_fit_leaves_the_resource_out_where_the_plugin_filters() -> None:
    first = f"profiles:\n- schedulerName: a\n  {FILTERS}\n- schedulerName: b\n"
    loaded = load(first, f"{SOCKET}, {BOTH}")
    assert ignored(loaded, 0) == ["a.b/gpu"]
    assert ignored(loaded, 1) is None
    assert (
        'plugin "X" manages a.b/gpu, a.b/nic, and profile "b" does not enable it: for pods of that profile '
        "NodeResourcesFit alone counts the resource" in loaded.warnings
    )


@pytest.mark.parametrize(
    ("first", "want"),
    [
        pytest.param(f"profiles:\n- {FILTERS}\n  {OWN}\n", ["x/y", "a.b/gpu"], id="the user's own"),
        pytest.param(
            f"{EXTENDER}profiles:\n- {FILTERS}\n  {OWN}\n", ["a.b/other", "a.b/gpu"], id="extender's"
        ),
    ],
)
def test_what_is_ignored_already_stays_ignored(first: str, want: list[str]) -> None:
    loaded = load(first, f"{SOCKET}, {LEFT}")
    assert ignored(loaded) == want
    shown = {config.name: config.args for config in loaded.profiles[0].plugin_config}["NodeResourcesFit"]
    assert isinstance(shown, dict)
    assert shown["ignoredResources"] == ["x/y", "a.b/gpu"]


def test_profile_without_node_resources_fit_has_nothing_to_leave_out() -> None:
    first = (
        "profiles:\n- plugins: {multiPoint: {disabled: [{name: NodeResourcesFit}], enabled: [{name: X}]}}\n"
    )
    assert "NodeResourcesFit" not in load(first, f"{SOCKET}, {LEFT}").profiles[0].plugin_args


@pytest.mark.parametrize(
    ("fields", "want", "cure"),
    [
        pytest.param(
            "managedResources: [{name: cpu}, {name: ''}, {name: kubernetes.io/x}]",
            [
                "Invalid plugins[0].managedResources[0].name",
                *["Invalid plugins[0].managedResources[1].name"] * 2,
                "Invalid plugins[0].managedResources[2].name",
            ],
            "write it as domain/name, such as example.com/gpu, outside kubernetes.io",
            id="not an extended resource",
        ),
        pytest.param(
            "managedResources: [{name: a.b/gpu}, {name: a.b/gpu}]",
            ["Invalid plugins[0].managedResources[1].name"],
            "name it once",
            id="twice",
        ),
        pytest.param(
            "managedResources: [{name: a.b/gpu}], scope: {resources: [a.b/gpu]}",
            ["Forbidden plugins[0].scope.resources"],
            "leave scope.resources out",
            id="scope.resources",
        ),
        pytest.param(
            f"{LEFT}, required: false",
            ["Forbidden plugins[0].required"],
            "write points.filter.policy: Fail, or leave ignoredByScheduler out",
            id="may be absent",
        ),
        pytest.param(
            f"{LEFT}, points: {{filter: {{policy: Ignore}}}}",
            ["Forbidden plugins[0].points.filter.policy"],
            "write policy: Fail, or leave ignoredByScheduler out",
            id="may fail",
        ),
        pytest.param(
            f"{LEFT}, points: {{simulateFilter: {{policy: Ignore}}}}",
            ["Forbidden plugins[0].points.simulateFilter.policy"],
            "write policy: Fail, or leave ignoredByScheduler out",
            id="may fail beside nominated pods",
        ),
        pytest.param(
            f"{LEFT}, required: false,"
            " points: {filter: {policy: Fail}, simulateFilter: {deadline: 1s}}",
            ["Forbidden plugins[0].required"],
            "write points.simulateFilter.policy: Fail, or leave ignoredByScheduler out",
            id="may be absent beside nominated pods",
        ),
        pytest.param(
            f"{LEFT}, scope: {{podSelector: {{}}, namespaceSelector: {{}}}}",
            ["Forbidden plugins[0].scope.namespaceSelector", "Forbidden plugins[0].scope.podSelector"],
            "leave podSelector out, or leave ignoredByScheduler out",
            id="some pods only",
        ),
    ],
)
def test_settings_that_leave_a_resource_to_nobody_are_refused(
    fields: str, want: list[str], cure: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_berth_configuration(f"{BERTH}plugins:\n- {{name: X, {SOCKET}, {fields}}}\n", source="f.yaml")
    error = caught.value
    assert error.kind == "validation"
    assert [f"{str(f.type).removeprefix('FieldValue')} {f.field}" for f in error.errors] == want
    assert cure in error.text
    assert all(finding.line == 4 for finding in error.findings)


@pytest.mark.parametrize(
    "fields",
    [
        "managedResources: [{name: a.b/gpu}], required: false",
        "managedResources: [{name: a.b/gpu}], points: {filter: {policy: Ignore}}",
        "managedResources: [{name: a.b/gpu}], scope: {podSelector: {}}",
        f"{LEFT}, required: false, points: {{filter: {{policy: Fail}}}}",
        f"{LEFT}, points: {{filter: {{deadline: 1s}}, score: {{policy: Ignore}}}}",
        f"{LEFT}, points: {{simulateFilter: {{deadline: 1s}}, preFilter: {{policy: Ignore}}}}",
    ],
)
def test_settings_that_leave_every_resource_to_somebody_are_accepted(fields: str) -> None:
    load_berth_configuration(f"{BERTH}plugins:\n- {{name: X, {SOCKET}, {fields}}}\n", source="f.yaml")


def test_a_resource_has_one_manager_among_plugins() -> None:
    error = error_of("", f"{SOCKET}, {LEFT}", f"{SOCKET}, {LEFT}")
    assert [finding.field for finding in error.errors] == ["plugins[1].managedResources[0].name"]
    assert 'plugin "X" manages this resource already' in error.text


def test_a_resource_has_one_manager_among_plugins_and_extenders() -> None:
    error = error_of(f"{EXTENDER}profiles: [{{{FILTERS}}}]\n", f"{SOCKET}, {LEFT.replace('gpu', 'other')}")
    assert error.kind == "validation"
    assert error.text.startswith("f.yaml:9: plugins[0].managedResources[0].name: Invalid value: ")
    assert "extenders[0] manages this resource already" in error.text
    assert "leave it out in one of the two places" in error.text


def test_node_resources_fit_cannot_leave_a_resource_to_itself() -> None:
    fields = f"{{name: NodeResourcesFit, inProcess: 'a:B', {LEFT}}}"
    with pytest.raises(ConfigurationError, match="cannot leave a resource to itself"):
        load_berth_configuration(f"{BERTH}plugins: [{fields}]", source="f")


NOT_AT_FILTER = (
    "but the profile does not enable it at filter: add it to plugins.filter, or leave managedResources out"
)


@pytest.mark.parametrize(
    ("plugins", "where", "want"),
    [
        pytest.param("{score: {enabled: [{name: X}]}}", SOCKET, NOT_AT_FILTER, id="another point"),
        pytest.param(
            "{multiPoint: {enabled: [{name: X}]}, filter: {disabled: [{name: X}]}}",
            SOCKET,
            NOT_AT_FILTER,
            id="disabled at filter",
        ),
        pytest.param(
            "{multiPoint: {enabled: [{name: X}]}}",
            "inProcess: 'a:X'",
            "does not implement filter, but manages a.b/gpu: give the plugin that method",
            id="a class without Filter",
        ),
    ],
)
@pytest.mark.parametrize("resources", [LEFT, "managedResources: [{name: a.b/gpu}]"])
def test_plugin_that_manages_a_resource_filters_wherever_it_is_enabled(
    plugins: str, where: str, want: str, resources: str
) -> None:
    first = f"profiles:\n- schedulerName: a\n  {FILTERS}\n- schedulerName: b\n  plugins: {plugins}\n"
    registered = {"X": frozenset({"score"})} if "inProcess" in where else {}
    if registered:
        first = f"profiles:\n- plugins: {plugins}\n"
    error = error_of(first, f"{where}, {resources}", **registered)
    assert error.kind == "profile"
    assert want in error.text
    assert ".enabled: creating profile for scheduler name " in error.text
