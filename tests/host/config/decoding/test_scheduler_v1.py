"""Strict decoding of the first document: versions, kinds, fields, arguments."""

from __future__ import annotations

import pytest
from berth_host.config.decoding.args_v1 import InterPodAffinityArgsV1
from berth_host.config.decoding.go_types import MAX_SUGGESTIONS
from berth_host.config.decoding.scheduler_v1 import DecodedScheduler, decode_scheduler
from berth_host.config.errors import ConfigurationError
from berth_host.config.source.documents import read_documents

HEADER = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def decode(text: str) -> DecodedScheduler:
    documents = read_documents(text)
    assert documents.scheduler is not None
    return decode_scheduler(documents.scheduler, is_yaml=documents.is_yaml, source="f.yaml")


def error_of(text: str) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        decode(text)
    assert caught.value.kind == "decode"
    return caught.value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Object 'Kind' is missing"),
        ("kind: KubeSchedulerConfiguration\n", "Object 'apiVersion' is missing"),
        ("[1]\n", "expected an object"),
        ("apiVersion: 1\nkind: x\n", "apiVersion must be a string"),
        ("apiVersion: a/b/c\nkind: x\n", "unexpected GroupVersion string"),
        (HEADER.replace("/v1", "/v1beta3"), "this release reads kubescheduler.config.k8s.io/v1"),
        (HEADER.replace("KubeS", "kubeS"), 'did you mean "KubeSchedulerConfiguration"?'),
        (HEADER.replace("KubeSchedulerConfiguration", "NodeAffinityArgs"), "couldn't decode as"),
    ],
)
def test_document_of_another_kind_is_refused(text: str, message: str) -> None:
    assert message in error_of(text).text


def test_everything_that_is_wrong_is_named_in_file_order() -> None:
    error = error_of(
        HEADER
        + "paralelism: 3\n"
        + "leaderElection: {leaseDuration: 15}\n"
        + "profiles:\n- schedulerName: a\n  schedulerName: b\n  plugins: {scores: {x: 1, x: 2}}\n"
    )
    assert [str(finding.located("f")) for finding in error.findings] == [
        'f:3: unknown field "paralelism" (did you mean "parallelism"?)',
        'f:4: leaderElection.leaseDuration: expected a duration with a unit, such as "15s", '
        "got the number 15",
        'f:7: profiles[0]: key "schedulerName" already set in map',
        'f:8: unknown field "profiles[0].plugins.scores" (did you mean "score"?)',
        'f:8: profiles[0].plugins.scores: key "x" already set in map',
    ]
    assert error.line == 3
    assert error.errors == ()


def test_near_names_are_looked_for_in_the_first_findings_alone() -> None:
    """Looking for them takes most of the time that a file of 300 000 unknown keys takes to refuse."""
    error = error_of(HEADER + "".join(f"paralelism{number}: 3\n" for number in range(300)))
    assert len(error.findings) == 300
    assert [finding.suggestion for finding in error.findings] == [
        *["parallelism"] * MAX_SUGGESTIONS,
        *[None] * (300 - MAX_SUGGESTIONS),
    ]


def with_args(name: str, args: str) -> str:
    return f"{HEADER}profiles:\n- pluginConfig:\n  - name: {name}\n    args: {args}\n"


def test_arguments_of_a_default_plugin_are_decoded_into_their_type() -> None:
    entry = decode(with_args("InterPodAffinity", "{hardPodAffinityWeight: 0}")).plugin_config[0][0]
    assert entry.typed == InterPodAffinityArgsV1(hard_pod_affinity_weight=0)


@pytest.mark.parametrize("args", ["null", "{}", "{kind: InterPodAffinityArgs}", '{apiVersion: ""}'])
def test_absent_arguments_and_absent_type_mean_the_default_type(args: str) -> None:
    entry = decode(with_args("InterPodAffinity", args)).plugin_config[0][0]
    assert isinstance(entry.typed, InterPodAffinityArgsV1)


@pytest.mark.parametrize("args", ["text", "[1]", "3", "{nested: {k: [1, 2.5]}}"])
def test_arguments_of_any_other_plugin_stay_as_they_stand(args: str) -> None:
    entry = decode(with_args("Mine", args)).plugin_config[0][0]
    documents = read_documents(args if args[0] != "{" else f"x: {args}")
    assert documents.scheduler is not None
    want = documents.scheduler.to_json()
    assert entry.args == (want["x"] if isinstance(want, dict) else want)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("heavy", "expected an object"),
        ("[1]", "expected an object"),
        ("{kind: NodeAffinityArgs}", "were not of type InterPodAffinityArgs, got NodeAffinityArgs"),
        ("{kind: InterPodAffinityArg}", 'did you mean "InterPodAffinityArgs"?'),
        ("{apiVersion: kubescheduler.config.k8s.io/v1beta3}", "no kind"),
        ("{apiVersion: v1}", "no kind"),
        ("{hardPodAffinityWeigth: 1}", 'did you mean "hardPodAffinityWeight"?'),
        ("{hardPodAffinityWeight: 1.5}", "an integer of 32 bits"),
        ("{hardPodAffinityWeight: 1, hardPodAffinityWeight: 2}", "already set"),
    ],
)
def test_wrong_arguments_of_a_default_plugin_are_refused(args: str, message: str) -> None:
    error = error_of(with_args("InterPodAffinity", args))
    assert message in error.text
    assert error.line == 6


def json_with_args(name: str, args: str) -> str:
    return (
        '{"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", '
        f'"profiles": [{{"pluginConfig": [{{"name": "{name}", "args": {args}}}]}}]}}'
    )


def test_repeated_keys_of_opaque_arguments_count_in_yaml_only() -> None:
    repeated = '{"a": 1, "a": 2}'
    assert decode(json_with_args("Mine", repeated)).plugin_config[0][0].args == {"a": 2}
    assert "already set" in error_of("# YAML\n" + json_with_args("Mine", repeated)).text


def test_a_json_number_with_a_point_is_no_integer() -> None:
    assert "an integer" in error_of(json_with_args("InterPodAffinity", '{"hardPodAffinityWeight": 1.0}')).text
    decode("# YAML\n" + json_with_args("InterPodAffinity", '{"hardPodAffinityWeight": 1.0}'))
