"""BerthConfiguration: which fields are read, and which errors a bad one gets."""

from __future__ import annotations

import sys

import pytest
from berth_host.config.berth.configuration import (
    BerthConfiguration,
    BerthPlugin,
    TlsFiles,
    TracingConfiguration,
    Transport,
)
from berth_host.config.berth.points import FailurePolicy, PointPolicy
from berth_host.config.decoding.core_v1 import LabelSelectorV1
from berth_host.config.errors import ConfigurationError
from berth_host.config.loading import load_berth_configuration
from support.endpoints import BAD_ENDPOINTS, GOOD_ENDPOINTS

HEADER = "apiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n"
SOCKET = "endpoint: 'unix:///run/x.sock'"


def load(text: str) -> BerthConfiguration:
    return load_berth_configuration(HEADER + text, source="b.yaml")


def plugin(fields: str) -> BerthPlugin:
    return load(f"plugins:\n- {{name: X, {fields}}}\n").plugins[0]


def error_of(text: str) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        load(text)
    return caught.value


def test_nothing_given_means_defaults() -> None:
    assert load("") == BerthConfiguration()
    assert load("plugins: null\ncycleBudget: null").cycle_budget_s == 1.0
    assert load_berth_configuration("a: 1\n", source="f") == BerthConfiguration()


def test_all_fields_are_read() -> None:
    got = load(
        "cycleBudget: 1500ms\n"
        "plugins:\n"
        "- name: GpuShare\n"
        "  endpoint: gpu.example:8443\n"
        "  required: true\n"
        "  scope: {namespaceSelector: {}, podSelector: {matchLabels: {a: b}}, resources: [example.com/gpu]}\n"
        "  points: {filter: {deadline: 100ms, policy: Ignore}, score: {policy: Fail},"
        " preBind: {deadline: 10m}}\n"
        "  tls: {caFile: /ca, certFile: /cert, keyFile: /key, serverName: gpu}\n"
        "  maxConcurrency: 4\n"
    )
    assert got.cycle_budget_s == 1.5
    found = got.plugin("GpuShare")
    assert found is not None
    assert (found.endpoint, found.required, found.max_concurrency) == ("gpu.example:8443", True, 4)
    assert found.tls == TlsFiles(ca_file="/ca", cert_file="/cert", key_file="/key", server_name="gpu")
    assert found.scope.namespace_selector == LabelSelectorV1()
    assert found.scope.pod_selector == LabelSelectorV1(match_labels={"a": "b"})
    assert found.scope.resources == ("example.com/gpu",)
    assert found.points.keys() == {"filter", "score", "preBind"}
    assert found.settings("filter") == PointPolicy(0.1, FailurePolicy.IGNORE)
    assert found.settings("score") == PointPolicy(0.25, FailurePolicy.FAIL)
    assert found.settings("preBind").deadline_s == 600


def test_three_ways_to_a_plugin() -> None:
    assert plugin("command: [python, -m, my.plugin]").command == ("python", "-m", "my.plugin")
    assert plugin("inProcess: 'my.plugins:Gpu'").in_process == "my.plugins:Gpu"
    assert plugin(SOCKET).endpoint == "unix:///run/x.sock"


def test_credential_of_an_endpoint_is_shared_by_its_plugins() -> None:
    assert plugin(f"{SOCKET}, credentialFile: /run/secret").credential_file == "/run/secret"
    error = error_of(f"plugins: [{{name: A, {SOCKET}, credentialFile: /run/a}}, {{name: B, {SOCKET}}}]")
    assert [finding.field for finding in error.errors] == ["plugins[1].credentialFile"]
    assert "expects one credential" in str(error)


def test_transport_of_an_endpoint_is_shared_by_its_plugins() -> None:
    assert plugin(SOCKET).transport is Transport.FRAMED
    assert plugin(f"{SOCKET}, transport: unary").transport is Transport.UNARY
    assert plugin("command: [x], transport: unary").to_json()["transport"] == "unary"
    assert "transport" not in plugin("inProcess: 'a:B'").to_json()
    error = error_of(f"plugins: [{{name: A, {SOCKET}, transport: unary}}, {{name: B, {SOCKET}}}]")
    assert [finding.field for finding in error.errors] == ["plugins[1].transport"]
    assert "is asked in one way" in str(error)


def test_identity_of_an_endpoint_is_shared_by_its_plugins() -> None:
    found = plugin(f"{SOCKET}, allowedUIDs: [1000, 0]")
    assert found.allowed_uids == (1000, 0)
    assert found.to_json()["allowedUIDs"] == [1000, 0]
    error = error_of(f"plugins: [{{name: A, {SOCKET}, allowedUIDs: [7]}}, {{name: B, {SOCKET}}}]")
    assert [finding.field for finding in error.errors] == ["plugins[1].allowedUIDs"]
    # Any plugin of the folder may be at any of its sockets.
    folder = "socketFolder: /run/berth/plugins\nplugins: "
    assert len(load(f"{folder}[{{name: A, allowedUIDs: [7]}}, {{name: B, allowedUIDs: [7]}}]").plugins) == 2
    error = error_of(f"{folder}[{{name: A, allowedUIDs: [7]}}, {{name: B}}, {{name: C, {SOCKET}}}]")
    assert [finding.field for finding in error.errors] == ["plugins[1].allowedUIDs"]
    assert "must be the same for all plugins of socketFolder" in str(error)
    tcp = "endpoint: 'host:80'"
    other = TLS.replace("b", "other")
    error = error_of(
        f"plugins: [{{name: A, {tcp}, {TLS}}}, {{name: B, {tcp}, {TLS}}}, {{name: C, {tcp}, {other}}}]"
    )
    assert [finding.field for finding in error.errors] == ["plugins[2].tls"]
    assert "has one certificate" in str(error)


@pytest.mark.parametrize("endpoint", ["localhost:1", "127.0.0.1:65535", "[::1]:80"])
def test_plaintext_is_for_loopback(endpoint: str) -> None:
    assert plugin(f"endpoint: '{endpoint}', insecure: true").insecure


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("plugin: []", "decode", 'unknown field "plugin" (did you mean "plugins"?)'),
        ("plugins: {}", "decode", "expected a list"),
        (f"plugins: [{{name: X, {SOCKET}, pionts: {{}}}}]", "decode", 'did you mean "points"?'),
        (f"plugins: [{{name: X, {SOCKET}, points: {{Filter: {{}}}}}}]", "decode", 'did you mean "filter"?'),
        (f"plugins: [{{name: X, name: Y, {SOCKET}}}]", "decode", "already set"),
        (f"plugins: [{{name: X, {SOCKET}, points: {{filter: {{deadline: 250}}}}}}]", "decode", "a duration"),
        ("cycleBudget: 1", "decode", "a duration with a unit"),
        ("cycleBudget: 5 s", "decode", "duration"),
    ],
)
def test_wrong_shape(text: str, kind: str, message: str) -> None:
    error = error_of(text)
    assert error.kind == kind
    assert message in error.text
    assert error.text.startswith("b.yaml:3: ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "apiVersion: config.berth.io/v1\nkind: BerthConfiguration\n",
            'did you mean "config.berth.io/v1alpha1"?',
        ),
        ("apiVersion: config.berth.io/v1alpha1\nkind: BerthConfig\n", 'did you mean "BerthConfiguration"?'),
        ("apiVersion: config.berth.io/v1alpha1\n", "expected BerthConfiguration, got no text"),
    ],
)
def test_other_version_or_kind(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_berth_configuration(text, source="b.yaml")
    assert caught.value.kind == "decode"
    assert message in caught.value.text


TLS = "tls: {caFile: a, certFile: b, keyFile: c}"


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        pytest.param("required: true", ["Required plugins[0]"], id="no place"),
        pytest.param(f"{SOCKET}, command: [x]", ["Forbidden plugins[0].command"], id="two places"),
        pytest.param(
            f"{SOCKET}, command: [], inProcess: ''",
            ["Forbidden plugins[0].command", "Forbidden plugins[0].inProcess"],
            id="three places",
        ),
        pytest.param("endpoint: ''", ["Invalid plugins[0].endpoint"], id="empty endpoint"),
        pytest.param("endpoint: 'host:0'", ["Invalid plugins[0].endpoint"], id="port 0"),
        pytest.param("endpoint: 'host:80'", ["Required plugins[0].tls"], id="TCP without TLS"),
        pytest.param(
            "endpoint: 'host:80', insecure: true", ["Forbidden plugins[0].insecure"], id="plaintext"
        ),
        pytest.param(
            f"endpoint: 'localhost:80', insecure: true, {TLS}", ["Forbidden plugins[0].tls"], id="both"
        ),
        pytest.param(
            "endpoint: 'host:80', tls: {caFile: a}",
            ["Required plugins[0].tls.certFile", "Required plugins[0].tls.keyFile"],
            id="half of mutual TLS",
        ),
        pytest.param(f"{SOCKET}, {TLS}", ["Forbidden plugins[0].tls"], id="TLS on a socket"),
        pytest.param("command: [x], insecure: true", ["Forbidden plugins[0].insecure"], id="insecure child"),
        pytest.param(
            "command: [x], credentialFile: /c",
            ["Forbidden plugins[0].credentialFile"],
            id="child's credential",
        ),
        pytest.param(
            f"{SOCKET}, allowedUIDs: [-1, 4294967295]",
            ["Invalid plugins[0].allowedUIDs[0]", "Invalid plugins[0].allowedUIDs[1]"],
            id="users",
        ),
        pytest.param(
            "command: [x], allowedUIDs: [1]", ["Forbidden plugins[0].allowedUIDs"], id="user of a child"
        ),
        pytest.param(
            f"endpoint: 'host:80', {TLS}, allowedUIDs: [1]",
            ["Forbidden plugins[0].allowedUIDs"],
            id="user at TCP",
        ),
        pytest.param(f"{SOCKET}, transport: http", ["NotSupported plugins[0].transport"], id="transport"),
        pytest.param(
            "inProcess: 'a:B', transport: unary", ["Forbidden plugins[0].transport"], id="no transport"
        ),
        pytest.param("command: []", ["Required plugins[0].command"], id="empty command"),
        pytest.param("command: ['']", ["Required plugins[0].command[0]"], id="empty program"),
        pytest.param('command: [a, "b\\0"]', ["Invalid plugins[0].command[1]"], id="zero byte"),
        pytest.param("inProcess: 'my.module'", ["Invalid plugins[0].inProcess"], id="no class"),
        pytest.param(
            f"{SOCKET}, maxConcurrency: -1", ["Invalid plugins[0].maxConcurrency"], id="concurrency"
        ),
        pytest.param(
            f"{SOCKET}, scope: {{podSelector: {{matchExpressions: [{{key: k, operator: Gt}}]}},"
            " resources: [a b]}",
            [
                "NotSupported plugins[0].scope.podSelector.matchExpressions[0].operator",
                "Invalid plugins[0].scope.resources[0]",
            ],
            id="scope",
        ),
        pytest.param(
            f"{SOCKET}, points: {{filter: {{policy: Neutral, deadline: 11s}}, bind: {{policy: Ignore}}}}",
            [
                "Invalid plugins[0].points.filter.deadline",
                "NotSupported plugins[0].points.filter.policy",
                "NotSupported plugins[0].points.bind.policy",
            ],
            id="points",
        ),
        pytest.param(
            f"{SOCKET}, points: {{unreserve: {{policy: Fail}}, preBind: {{deadline: 601s}},"
            " score: {deadline: 0s}}",
            [
                "Invalid plugins[0].points.score.deadline",
                "Forbidden plugins[0].points.unreserve.policy",
                "Invalid plugins[0].points.preBind.deadline",
            ],
            id="fixed outcome and limits",
        ),
    ],
)
def test_values_that_make_no_sense(fields: str, want: list[str]) -> None:
    error = error_of(f"plugins:\n- {{name: X, {fields}}}\n")
    assert error.kind == "validation"
    assert [f"{str(f.type).removeprefix('FieldValue')} {f.field}" for f in error.errors] == want
    assert all(finding.line == 4 for finding in error.findings)


@pytest.mark.parametrize("endpoint", BAD_ENDPOINTS)
def test_the_error_of_a_bad_endpoint_names_the_form(endpoint: str) -> None:
    (finding,) = error_of(f"plugins:\n- {{name: X, endpoint: '{endpoint}'}}\n").findings
    assert finding.field == "plugins[0].endpoint"
    assert "unix:///absolute/path" in str(finding) or "take a shorter one" in str(finding)


@pytest.mark.parametrize("endpoint", GOOD_ENDPOINTS)
def test_a_good_endpoint_is_read(endpoint: str) -> None:
    tls = "" if endpoint.startswith("unix:") else f", {TLS}"
    assert plugin(f"endpoint: '{endpoint}'{tls}").endpoint == endpoint


def test_policy_comes_with_the_nearest_legal_one() -> None:
    error = error_of(f"plugins:\n- name: X\n  {SOCKET}\n  points:\n    filter: {{policy: fail}}\n")
    assert str(error) == (
        'b.yaml:7: plugins[0].points.filter.policy: Unsupported value: "fail": supported values: "Fail", '
        '"Ignore" (did you mean "Fail"?)'
    )


def test_names_are_unique_and_well_formed() -> None:
    error = error_of(f"plugins: [{{{SOCKET}}}, {{name: a b, {SOCKET}}}, {{name: a b, {SOCKET}}}]")
    assert [finding.field for finding in error.errors] == [
        "plugins[0].name",
        "plugins[1].name",
        "plugins[2].name",
        "plugins[2].name",
    ]


def test_the_limit_of_messages_is_that_of_the_plugin_or_of_the_whole_file() -> None:
    both = f"plugins: [{{name: A, {SOCKET}, maxMessageBytes: 16777216}}, {{name: B, endpoint: 'unix:///b'}}]"
    default, raised = load(both), load(f"maxMessageBytes: 8388608\n{both}")
    assert [default.message_limit(plugin) for plugin in default.plugins] == [16777216, 4194304]
    assert [raised.message_limit(plugin) for plugin in raised.plugins] == [16777216, 8388608]
    assert default.to_json()["maxMessageBytes"] == 4194304
    assert "maxMessageBytes" not in default.plugins[1].to_json()


@pytest.mark.parametrize("limit", ["0", "65535", "268435457", "-1"])
def test_the_limit_of_messages_has_limits(limit: str) -> None:
    error = error_of(f"maxMessageBytes: {limit}\nplugins: [{{name: A, {SOCKET}, maxMessageBytes: {limit}}}]")
    assert {finding.field for finding in error.errors} == {"maxMessageBytes", "plugins[0].maxMessageBytes"}
    assert f"Invalid value: {limit}: not in valid range [65536, 268435456] (bytes)" in error.text


def test_plugins_of_one_process_have_one_limit_of_messages() -> None:
    error = error_of(f"plugins: [{{name: A, {SOCKET}, maxMessageBytes: 65536}}, {{name: B, {SOCKET}}}]")
    assert [finding.field for finding in error.errors] == ["plugins[1].maxMessageBytes"]
    error = error_of("plugins: [{name: A, inProcess: 'a:B', maxMessageBytes: 65536}]")
    assert "inProcess needs none: the plugin gets no messages" in error.text


@pytest.mark.parametrize("budget", ["0s", "9ms", "61s", "-1s"])
def test_cycle_budget_has_limits(budget: str) -> None:
    assert [finding.field for finding in error_of(f"cycleBudget: {budget}").errors] == ["cycleBudget"]


def test_shown_as_json_it_says_everything_that_counts() -> None:
    shown = load(f"plugins:\n- {{name: X, {SOCKET}, points: {{filter: {{deadline: 1500us}}}}}}").to_json()
    assert isinstance(shown["plugins"], list)
    first = shown["plugins"][0]
    assert isinstance(first, dict)
    assert isinstance(first["points"], dict)
    assert first["points"]["filter"] == {"deadline": "1.5ms", "policy": "Fail"}
    assert shown["cycleBudget"] == "1s"


def test_handle_permit_names_the_plugins_whose_waits_may_be_ended() -> None:
    assert plugin(SOCKET).may_end_waits_of is None
    assert "handle" not in plugin(SOCKET).to_json()
    assert plugin(f"{SOCKET}, handle: {{permit: []}}").may_end_waits_of == frozenset()
    found = plugin("inProcess: 'a:B', handle: {permit: [Gang, Budget]}")
    assert found.may_end_waits_of == frozenset({"Gang", "Budget"})
    assert found.to_json()["handle"] == {"permit": ["Budget", "Gang"]}
    error = error_of(f"plugins: [{{name: A, {SOCKET}, handle: {{permit: [Gang, '', Gang]}}}}]")
    assert [finding.field for finding in error.errors] == [
        "plugins[0].handle.permit[1]",
        "plugins[0].handle.permit[2]",
    ]


def test_tracing_is_off_unless_the_field_is_there() -> None:
    assert load("").tracing is None
    assert load("tracing: {}").tracing == TracingConfiguration()
    got = load("tracing: {endpoint: 'otel:4317', samplingRatePerMillion: 10000}").tracing
    assert got == TracingConfiguration(endpoint="otel:4317", sampling_rate_per_million=10000)
    assert load("tracing: {endpoint: 'https://otel.example:4317'}").tracing is not None


@pytest.mark.parametrize(
    ("fields", "path", "cure"),
    [
        ("samplingRatePerMillion: -1", "tracing.samplingRatePerMillion", "not in valid range [0, 1000000]"),
        ("samplingRatePerMillion: 1000001", "tracing.samplingRatePerMillion", "[0, 1000000]"),
        ("endpoint: ''", "tracing.endpoint", "such as localhost:4317"),
        ("endpoint: otel", "tracing.endpoint", "such as localhost:4317"),
        ("endpoint: 'ftp://otel:4317'", "tracing.endpoint", "such as localhost:4317"),
    ],
)
def test_wrong_tracing_is_refused(fields: str, path: str, cure: str) -> None:
    (finding,) = error_of(f"tracing: {{{fields}}}").findings
    assert finding.field == path
    assert cure in finding.message


def test_tracing_without_its_packages_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    (finding,) = error_of("tracing: {}").findings
    assert finding.field == "tracing"
    assert "pip install 'berth-host[tracing]'" in finding.message
