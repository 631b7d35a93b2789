"""`berth check-config`: the JSON shapes, the readable form, and what bad input gets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from berth_host.cli.main import berth
from click.testing import CliRunner, Result

HEADER = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
BERTH = "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n"


def run(text: str, *arguments: str) -> Result:
    return CliRunner().invoke(berth, ["check-config", "-", *arguments], input=text, catch_exceptions=False)


def shown(text: str, *arguments: str) -> dict[str, Any]:
    result = run(text, "-o", "json", *arguments)
    loaded: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == (2 if "error" in loaded else 0)
    return loaded


def test_json_of_a_good_file_has_four_parts() -> None:
    got = shown(HEADER + "profiles: [{schedulerName: a, percentageOfNodesToScore: 5}]")
    assert list(got) == ["config", "profiles", "berth", "warnings"]
    assert list(got["profiles"][0]) == [
        *("schedulerName", "percentageOfNodesToScore", "plugins", "mergedPlugins", "pluginConfig")
    ]
    assert got["profiles"][0]["plugins"]["score"][0] == {"name": "TaintToleration", "weight": 3}
    assert got["profiles"][0]["plugins"]["bind"] == [{"name": "DefaultBinder"}]
    assert got["berth"]["cycleBudget"] == "1s"


def test_json_of_a_rejected_file_has_kind_text_and_fields() -> None:
    got = shown(HEADER + "parallelism: 0")
    assert list(got) == ["error"]
    assert got["error"]["kind"] == "validation"
    assert [(error["type"], error["field"]) for error in got["error"]["errors"]] == [
        ("FieldValueInvalid", "parallelism")
    ]
    assert got["error"]["errors"][0]["text"].startswith("standard input:3: parallelism: Invalid value: 0")


def test_json_of_an_undecodable_file_has_no_fields() -> None:
    got = shown(HEADER + "paralelism: 0")
    assert got["error"]["kind"] == "decode"
    assert got["error"]["errors"] == []
    assert 'did you mean "parallelism"?' in got["error"]["text"]


@pytest.mark.parametrize("text", ["a: [", f"{HEADER}{BERTH}plugin: []", f"{HEADER}x: 1\n{BERTH}y: 1"])
def test_json_of_a_malformed_file_is_json_too(text: str) -> None:
    got = shown(text)
    assert got["error"]["kind"] == "decode"
    assert "y" not in got["error"]["text"].split(": ")


def test_json_of_a_profile_that_cannot_be_built_has_the_configuration_too() -> None:
    got = shown(HEADER + "parallelism: 3\nprofiles: [{plugins: {filter: {enabled: [{name: X}]}}}]")
    assert got["error"]["kind"] == "profile"
    assert got["config"]["parallelism"] == 3


def test_plugins_and_gates_of_the_command_line_exist() -> None:
    text = HEADER + "profiles: [{plugins: {multiPoint: {enabled: [{name: Mine, weight: 2}, {name: Two}]}}}]"
    gates = ["--feature-gates", "GenericWorkload=true,KMSv1=true", "--feature-gates", "AllBeta=True"]
    got = shown(text, "--plugin", "Mine=filter,score", "--plugin", "Two=permit", *gates)
    plugins = got["profiles"][0]["plugins"]
    assert plugins["score"][-1] == {"name": "Mine", "weight": 2}
    assert plugins["permit"] == [{"name": "GangScheduling"}, {"name": "Two"}]


def test_readable_form_names_points_weights_and_served_plugins() -> None:
    result = run(
        HEADER
        + "profiles: [{plugins: {multiPoint: {enabled: [{name: Gpu, weight: 4}]}}}]\n"
        + BERTH
        + "plugins: [{name: Gpu, endpoint: 'unix:///run/gpu.sock', required: true, points: {score: {}}}]\n"
    )
    assert result.exit_code == 0
    assert "standard input is valid: 1 profile\n" in result.stdout
    assert "TaintToleration x3" in result.stdout
    assert "Gpu x4" in result.stdout
    assert "unix:///run/gpu.sock, required" in result.stdout
    assert "warning: plugin" in result.stderr


def test_readable_form_says_what_node_resources_fit_leaves_to_whom() -> None:
    result = run(
        HEADER
        + "profiles: [{plugins: {filter: {enabled: [{name: Gpu}]}}}]\n"
        + BERTH
        + "plugins: [{name: Gpu, endpoint: 'unix:///run/gpu.sock', managedResources: [{name: a.b/c},"
        + " {name: a.b/d, ignoredByScheduler: true}]}]\n"
    )
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    assert "required; manages a.b/c, a.b/d; NodeResourcesFit leaves a.b/d to it" in text


def test_readable_errors_name_file_line_and_cure(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text(HEADER + "profiles:\n- schedulerNam: a\n")
    result = CliRunner().invoke(berth, ["check-config", str(file)])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == (
        f'{file}:4: unknown field "profiles[0].schedulerNam" (did you mean "schedulerName"?)\n'
    )


def test_check_config_shows_extenders() -> None:
    assert "http://x:1" in run(HEADER + "extenders: [{urlPrefix: 'http://x:1', filterVerb: f}]").stdout


def test_points_of_an_in_process_class_are_read_and_a_missing_class_is_an_error() -> None:
    text = HEADER + "profiles: [{plugins: {multiPoint: {enabled: [{name: Mine}]}}}]\n" + BERTH
    where = "berth_plugins.node_name:NodeName"
    got = shown(f"{text}plugins: [{{name: Mine, inProcess: '{where}'}}]")
    assert got["profiles"][0]["plugins"]["filter"][-1] == {"name": "Mine"}
    absent = f"{text}plugins: [{{name: Mine, inProcess: 'no.such.module:X'}}]"
    missing = run(absent)
    assert missing.exit_code == 2
    assert "plugin Mine (no.such.module:X) cannot be loaded: No module named 'no'" in missing.stderr
    assert "--plugin Mine=POINT,POINT" in missing.stderr
    error = json.loads(run(absent, "-o", "json").stdout)["error"]
    assert "no.such.module" in error["text"]
    assert run(absent, "--plugin", "Mine=permit").exit_code == 0
    both = run(absent.replace(HEADER, f"{HEADER}parallelism: 0\n")).stderr.splitlines()
    assert both[0].startswith("standard input:3: parallelism: ")
    assert both[1].startswith("standard input: plugins[0].inProcess: plugin Mine (no.such.module:X) cannot")
    assert len(both) == 2


def test_plugin_command_that_is_not_on_this_machine_is_a_warning(tmp_path: Path) -> None:
    """The host may run elsewhere, so it is no error."""
    place = tmp_path / "not-executable"
    place.write_text("")
    commands = [["no-such-program", "x"], [str(place)], ["python3", "-m", "gpu"]]
    plugins = [{"name": f"P{index}", "command": command} for index, command in enumerate(commands)]
    result = run(HEADER + BERTH + f"plugins: {json.dumps(plugins)}")
    told = [line for line in result.stderr.splitlines() if "].command: " in line]
    problem = "is not an executable program on this machine; the host's machine must have it"
    assert result.exit_code == 0
    assert told == [
        f"warning: plugins[0].command: 'no-such-program' {problem}",
        f"warning: plugins[1].command: '{place}' {problem}",
    ]


def test_errors_of_both_documents_are_reported_together_with_path_and_line() -> None:
    first = f"{HEADER}parallelism: 0\npodMaxBackoffSeconds: -1\n"
    result = run(f"{first}{BERTH}cycleBudget: 1h\nplugins:\n- {{name: Gpu, endpoint: nowhere}}\n")
    assert result.exit_code == 2
    assert [line.split(": ")[:2] for line in result.stderr.splitlines()] == [
        ["standard input:3", "parallelism"],
        ["standard input:4", "podMaxBackoffSeconds"],
        ["standard input:10", "plugins[0].endpoint"],
        ["standard input:8", "cycleBudget"],
    ]


def test_unknown_fields_of_both_documents_are_reported_together() -> None:
    stderr = run(f"{HEADER}paralelism: 1\n{BERTH}cycleBugdet: 1s\n").stderr
    assert [line.partition(": ")[0] for line in stderr.splitlines()] == [
        "standard input:3",
        "standard input:7",
    ]
    assert 'did you mean "parallelism"?' in stderr
    assert 'did you mean "cycleBudget"?' in stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--plugin", "Mine"], "is not NAME=POINT,POINT"),
        (["--plugin", "Mine=filtr"], "did you mean 'filter'?"),
        (["--plugin", "Mine=zzz"], "use preFilter, filter"),
        (["--plugin", "Mine=filter", "--plugin", "Mine=score"], "given twice"),
        (["--feature-gates", "GenericWorkload"], "want GenericWorkload=true or GenericWorkload=false"),
        (["--feature-gates", "GenericWorkload=yes"], "want true or false"),
        (["--feature-gates", "GenericWorkloa=true"], 'did you mean "GenericWorkload"?'),
        (["-o", "xml"], "is not"),
    ],
)
def test_wrong_arguments_exit_2_with_the_cure(arguments: list[str], message: str) -> None:
    result = run(HEADER, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_file_in_utf_16_is_read(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text(HEADER, encoding="utf-16")
    result = CliRunner().invoke(berth, ["check-config", str(file)])
    assert result.exit_code == 0, result.stderr


def test_file_that_is_no_text_or_missing_exits_2(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"a: 1\nb: \xff")
    result = CliRunner().invoke(berth, ["check-config", str(file)])
    assert (result.exit_code, result.stderr) == (2, f"{file}:2: not UTF-8: byte 0xff\n")
    assert CliRunner().invoke(berth, ["check-config", str(tmp_path / "missing")]).exit_code == 2


OLD = HEADER.replace("config.k8s.io/v1", "config.k8s.io/v1beta2")


def test_an_older_file_is_shown_converted_with_its_warnings() -> None:
    result = run(OLD + "healthzBindAddress: ''\nprofiles: [{schedulerName: packing}]\n")
    assert result.exit_code == 0
    assert "converted from v1beta2" in result.stdout
    assert "  - schedulerName: packing\n" in result.stdout
    assert "TaintToleration x1" in result.stdout
    assert "warning: line 3: healthzBindAddress: field healthzBindAddress is dropped" in result.stderr
    got = shown(OLD)
    assert got["converted"]["apiVersion"] == "kubescheduler.config.k8s.io/v1"
    assert len(got["warnings"]) == 2


def test_yaml_is_a_file_to_save_that_is_stable() -> None:
    words = "[y, 'on', '1e3', '010', '<<', plain, '']"
    text = (
        f"{OLD}profiles: [{{pluginConfig: [{{name: X, args: {{words: {words}, n: 1}}}}]}}]\n"
        f"{BERTH}cycleBudget: 2s\n"
    ).replace("[y,", "['y',")
    first = run(text, "-o", "yaml")
    again = run(first.stdout, "-o", "yaml")
    assert first.exit_code == again.exit_code == 0
    assert again.stdout == first.stdout
    assert "converted" not in again.stderr
    assert "becomes" not in again.stderr
    assert "\n---\napiVersion: config.berth.io/v1alpha1\n" in first.stdout
    assert shown(first.stdout)["berth"]["cycleBudget"] == "2s"
    words_after = shown(first.stdout)["profiles"][0]["pluginConfig"][0]["args"]["words"]
    assert words_after == ["y", "on", "1e3", "010", "<<", "plain", ""]


def test_no_convert_refuses_older_files_as_kube_scheduler_does() -> None:
    result = run(OLD, "--no-convert")
    assert result.exit_code == 2
    assert 'no kind "KubeSchedulerConfiguration" is registered for version' in result.stderr
    assert shown(OLD, "--no-convert")["error"]["kind"] == "decode"


def test_an_end_mark_in_an_older_file_does_not_end_it() -> None:
    text = HEADER.replace("/v1", "/v1alpha1") + "\n...\n\nplugins:\n  reserve: {enabled: [{name: Mine}]}\n"
    got = shown(text, "--plugin", "Mine=reserve")
    assert got["profiles"][0]["plugins"]["reserve"][-1] == {"name": "Mine"}
    assert "joined to the first part" in got["warnings"][0]


def test_an_error_after_conversion_comes_with_the_warnings() -> None:
    text = OLD + "profiles: [{plugins: {filter: {enabled: [{name: Foo}]}}}]"
    result = run(text)
    assert result.exit_code == 2
    assert "warning: line 1: apiVersion" in result.stderr
    assert '"Foo" does not exist' in result.stderr
    assert shown(text)["warnings"]


def test_emulated_version_is_shown() -> None:
    assert "emulates" not in run(HEADER).stdout
    shown_as = run(HEADER, "--emulated-version", "kube=1.36").stdout
    assert any(line.split() == ["emulates", "kube-scheduler", "1.36"] for line in shown_as.splitlines())
