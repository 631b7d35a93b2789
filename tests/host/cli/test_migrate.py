"""`berth migrate`: what it writes and lists for every form, and what bad input gets."""

from __future__ import annotations

import base64
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from berth_host.log.hidden import MASK
from support import input_samples as samples
from support.any_command import prepare
from support.certificates import Authority
from support.running_commands import Run
from support.spoilt_input import spoilt

GROUP = "kubescheduler.config.k8s.io"
KIND = "KubeSchedulerConfiguration"
V1 = f"apiVersion: {GROUP}/v1\nkind: {KIND}\n"
BERTH = "apiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n"
PLACED = f"{BERTH}plugins: [{{name: CapacityScheduling, endpoint: 'unix:///run/gang.sock'}}]\n"
GANG: dict[str, Any] = {
    "plugins": {"multiPoint": {"enabled": [{"name": "CapacityScheduling"}]}},
    "pluginConfig": [{"name": "CapacityScheduling", "args": {"permitWaitingTimeSeconds": 60}}],
}
POLICY: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Policy",
    "predicates": [{"name": "PodFitsResources"}, {"name": "MatchNodeSelector"}],
    "priorities": [{"name": "MostRequestedPriority", "weight": 2}],
    "extenders": [
        {
            "urlPrefix": "http://gpu:12345/scheduler",
            "filterVerb": "filter",
            "bindVerb": "bind",
            "enableHttps": False,
            "httpTimeout": 30_000_000_000,
            "nodeCacheCapable": True,
            "managedResources": [{"name": "example.com/gpu-mem", "ignoredByScheduler": True}],
            "ignorable": False,
        }
    ],
}


def of_version(version: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": f"{GROUP}/{version}", "kind": KIND} | fields


def config_map(policy: str, key: str = "policy.cfg") -> dict[str, Any]:
    metadata = {"name": "scheduler-policy", "namespace": "kube-system", "uid": "x"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {key: policy}}


SCORED = {"plugins": {"score": {"enabled": [{"name": "NodeResourcesMostAllocated", "weight": 3}]}}}
OLDER: dict[str, str] = {
    "flat": yaml.safe_dump({"plugins": {"filter": [{"name": "NodeName"}]}, "pluginConfig": []}),
    "v1alpha1": yaml.safe_dump(of_version("v1alpha1", schedulerName="a", disablePreemption=True)),
    "v1alpha2": yaml.safe_dump(of_version("v1alpha2", bindTimeoutSeconds=3, profiles=[SCORED])),
    "v1beta1": yaml.safe_dump(of_version("v1beta1", profiles=[SCORED], extenders=POLICY["extenders"])),
    "v1beta2": yaml.safe_dump(of_version("v1beta2", healthzBindAddress="0.0.0.0:1", profiles=[{}])),
    "v1beta3": yaml.safe_dump(of_version("v1beta3", profiles=[{"schedulerName": "b"}])),
    "policy": yaml.safe_dump(POLICY),
    "policy in JSON": json.dumps(POLICY),
    "policy in a ConfigMap": yaml.safe_dump(config_map(json.dumps(POLICY, indent=1))),
    "policy in a ConfigMap in JSON": json.dumps(config_map(yaml.safe_dump(POLICY))),
}


def documents(text: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(text))


@pytest.mark.parametrize("form", OLDER)
def test_every_older_form_becomes_a_v1_file_that_check_config_accepts_and_that_stays(
    form: str, run: Run
) -> None:
    done = run("migrate", "-", stdin=OLDER[form])
    assert done.exit_code == 0, done.stderr
    (document,) = documents(done.stdout)
    assert (document["apiVersion"], document["kind"]) == (f"{GROUP}/v1", KIND)
    assert "line" in done.stderr
    checked = run("check-config", "-", "--no-convert", "-o", "json", stdin=done.stdout)
    before = run("check-config", "-", "-o", "json", stdin=OLDER[form])
    assert checked.exit_code == 0
    for part in ("config", "profiles"):
        assert json.loads(checked.stdout)[part] == json.loads(before.stdout)[part]
    again = run("migrate", "-", stdin=done.stdout)
    assert again.stdout_bytes == done.stdout_bytes
    assert again.stderr == f"standard input is {GROUP}/v1: nothing changes\n"


ODD_TEXTS = (
    *(
        "\u2028",
        "\x85",
        "a\x85b",
        "a\tb",
        " a",
        "a ",
        "y",
        "1e3",
        "",
        "<<",
        "0x1f",
        "1:30",
        "~",
        "- a",
        "a: b",
        "a #b",
    ),
    *(
        "%a",
        "@a",
        "'",
        '"',
        "é☃",
        "😀",
        "a\nb",
        "a\n",
        "\n",
        "long " * 60,
        "2020-01-01",
        "...",
        "---",
        "a\r\nb",
        "\x1b",
    ),
)


def test_odd_texts_in_arguments_stay_what_they_are(run: Run) -> None:
    args = {
        "list": list(ODD_TEXTS),
        "keys": dict.fromkeys(ODD_TEXTS, 1.5),
        "numbers": [2**63, -(2**63), 1e22, True],
    }
    profile = {"plugins": {"filter": {"enabled": [{"name": "Mine"}]}}}
    old = of_version("v1beta3", profiles=[profile | {"pluginConfig": [{"name": "Mine", "args": args}]}])
    done = run("migrate", "-", "--plugin", "Mine=filter", stdin=json.dumps(old))
    words = ("check-config", "-", "--plugin", "Mine=filter", "-o", "json")
    before, after = (json.loads(run(*words, stdin=text).stdout) for text in (json.dumps(old), done.stdout))
    assert after["profiles"] == before["profiles"]
    assert after["profiles"][0]["pluginConfig"][0]["args"] == args
    assert run("migrate", "-", "--plugin", "Mine=filter", stdin=done.stdout).stdout == done.stdout


@pytest.mark.parametrize("seed", range(40))
def test_damaged_file_that_is_accepted_migrates_to_a_file_that_stays(
    seed: int, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    prepare()
    Path("policy.json").write_text(json.dumps(samples.POLICY))
    rng = random.Random(seed)
    text = spoilt(rng.choice(samples.CONFIGURATIONS), rng, spoils=rng.choice((0, 1)))
    plugin = ("--plugin", "Mine=filter,score")
    done = run("migrate", "-", "--raw", *plugin, stdin=text)
    checked = run("check-config", "-", *plugin, stdin=text)
    if "needs no migration" not in done.stderr:
        assert done.exit_code == checked.exit_code
    if done.exit_code == 0:
        assert run("check-config", "-", "--no-convert", *plugin, stdin=done.stdout_bytes).exit_code == 0
        assert (
            run("migrate", "-", "--raw", *plugin, stdin=done.stdout_bytes).stdout_bytes == done.stdout_bytes
        )
    else:
        assert (done.exit_code, done.stdout) == (2, "")


def test_extenders_of_a_policy_carry_over(run: Run) -> None:
    (document,) = documents(run("migrate", "-", stdin=OLDER["policy in a ConfigMap"]).stdout)
    assert document["extenders"] == [
        {
            "urlPrefix": "http://gpu:12345/scheduler",
            "filterVerb": "filter",
            "bindVerb": "bind",
            "httpTimeout": "30s",
            "nodeCacheCapable": True,
            "managedResources": [{"name": "example.com/gpu-mem", "ignoredByScheduler": True}],
            "ignorable": False,
            "enableHTTPS": False,
        }
    ]


@pytest.mark.parametrize(
    "text",
    [
        V1,
        f"# mine\n{V1}profiles: # both\n- schedulerName: 'a'\n  plugins: {{score: {{}}}}\n- schedulerName: b",
        json.dumps(of_version("v1", parallelism=3)),
        f"{V1}...\n---\nkind: Other\n",
        f"{V1}---\n{BERTH}cycleBudget: 2s # short\n",
        f"{V1.replace(chr(10), chr(13) + chr(10))}parallelism: 4\r\n",
        f"{V1}profiles: [{{plugins: {{filter: {{disabled: [{{name: Unknown}}]}}}}}}]\n",
    ],
    ids=["short", "comments", "json", "more documents", "both documents", "CRLF", "disables nobody"],
)
def test_v1_file_passes_byte_for_byte(text: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "v1.yaml").write_bytes(text.encode())
    done = run("migrate", str(tmp_path / "v1.yaml"), "-o", str(tmp_path / "new"))
    assert done.exit_code == 0
    assert (tmp_path / "new" / "scheduler.yaml").read_bytes() == text.encode()
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["scheduler.yaml"]
    assert run("migrate", str(tmp_path / "v1.yaml")).stdout_bytes == text.encode()


def test_plugins_that_berth_lacks_are_left_out_and_listed_with_what_replaces_them(run: Run) -> None:
    unknown = {"multiPoint": {"enabled": [{"name": "CapacityScheduling"}, {"name": "ImageLocalty"}]}}
    old = of_version("v1beta3", profiles=[GANG, {"schedulerName": "b", "plugins": unknown}])
    old["profiles"][0]["schedulerName"] = "a"
    done = run("migrate", "-", stdin=yaml.safe_dump(old))
    assert documents(done.stdout) == [
        of_version("v1", profiles=[{"schedulerName": "a"}, {"schedulerName": "b"}])
    ]
    first, second, third = (line for line in done.stderr.splitlines() if "is left out" in line)
    assert "profiles[0]: CapacityScheduling is left out (multiPoint, pluginConfig)" in first
    assert "instead: a ResourceQuota limits a namespace" in first
    assert "profiles[1]: CapacityScheduling is left out (multiPoint)" in second
    assert 'did you mean "ImageLocality"?' in third
    assert "--berth-config" in third


def test_coscheduling_stays_with_its_arguments(run: Run) -> None:
    profile = {
        "plugins": {
            "multiPoint": {"enabled": [{"name": "Coscheduling"}]},
            "queueSort": {"enabled": [{"name": "Coscheduling"}], "disabled": [{"name": "*"}]},
        },
        "pluginConfig": [{"name": "Coscheduling", "args": {"permitWaitingTimeSeconds": 60}}],
    }
    done = run("migrate", "-", stdin=yaml.safe_dump(of_version("v1beta3", profiles=[profile])))
    assert documents(done.stdout) == [of_version("v1", profiles=[profile])]
    assert "left out" not in done.stderr


def test_removed_plugin_in_a_v1_file_is_left_out_with_its_successor(run: Run) -> None:
    text = f"{V1}profiles: [{{plugins: {{filter: {{enabled: [{{name: EBSLimits}}]}}}}}}]\n"
    done = run("migrate", "-", stdin=text)
    assert documents(done.stdout) == [of_version("v1", profiles=[{}])]
    assert "EBSLimits is left out (filter): gone since v1; use NodeVolumeLimits" in done.stderr


def test_default_plugin_takes_over_where_a_profile_needs_one(run: Run) -> None:
    sort = {"enabled": [{"name": "QOSSort"}], "disabled": [{"name": "*"}]}
    bind = {"multiPoint": {"disabled": [{"name": "DefaultBinder"}], "enabled": [{"name": "MyBinder"}]}}
    old = of_version("v1", profiles=[{"plugins": {"queueSort": sort, **bind}}])
    done = run("migrate", "-", stdin=yaml.safe_dump(old))
    plugins = documents(done.stdout)[0]["profiles"][0]["plugins"]
    assert plugins == {
        "multiPoint": {"disabled": [{"name": "DefaultBinder"}]},
        "bind": {"enabled": [{"name": "DefaultBinder"}]},
    }
    assert "PrioritySort takes over at queueSort" in done.stderr
    assert "DefaultBinder takes over at bind" in done.stderr


def test_profile_without_a_plugin_that_it_needs_is_refused_if_nothing_was_left_out_there(run: Run) -> None:
    text = V1 + (
        "profiles: [{plugins: {queueSort: {disabled: [{name: '*'}]}, score: {enabled: [{name: SySched}]}}}]"
    )
    done = run("migrate", "-", stdin=text)
    assert done.exit_code == 2
    assert "only one queue sort plugin required" in done.stderr


def test_list_says_what_stays_disabled_in_favour_of_a_plugin_that_is_left_out(run: Run) -> None:
    score = {"enabled": [{"name": "Peaks"}], "disabled": [{"name": "ImageLocality"}]}
    everything = {"disabled": [{"name": "*"}]}
    old = of_version("v1", profiles=[{"plugins": {"score": score, "postFilter": everything}}])
    said = run("migrate", "-", stdin=yaml.safe_dump(old)).stderr
    assert "still disables all default plugins at postFilter, ImageLocality at score" in said


def test_plugin_of_a_berth_configuration_stays_with_its_arguments(run: Run, tmp_path: Path) -> None:
    (tmp_path / "berth.yaml").write_text(PLACED)
    old = yaml.safe_dump(of_version("v1beta3", profiles=[GANG]))
    done = run("migrate", "-", "--berth-config", str(tmp_path / "berth.yaml"), stdin=old)
    assert documents(done.stdout) == [of_version("v1", profiles=[GANG]), yaml.safe_load(PLACED)]
    assert "left out" not in done.stderr
    assert run("check-config", "-", stdin=done.stdout).exit_code == 0
    for words in ((), ("--berth-config", str(tmp_path / "berth.yaml"))):
        assert run("migrate", "-", *words, stdin=done.stdout).stdout == done.stdout
    beside = run("migrate", "-", stdin=f"{old}---\n{PLACED}")
    assert beside.stdout == done.stdout


def test_plugin_of_the_command_line_stays(run: Run) -> None:
    old = yaml.safe_dump(of_version("v1beta3", profiles=[GANG]))
    done = run("migrate", "-", "--plugin", "CapacityScheduling=postFilter,reserve", stdin=old)
    assert documents(done.stdout) == [of_version("v1", profiles=[GANG])]
    assert (
        run("check-config", "-", "--plugin", "CapacityScheduling=reserve", stdin=done.stdout).exit_code == 0
    )


def test_files_are_written_whole_listed_and_left_alone_the_second_time(run: Run, tmp_path: Path) -> None:
    old, new = tmp_path / "old.yaml", tmp_path / "made" / "new"
    old.write_text(OLDER["policy"])
    done = run("migrate", str(old), "-o", str(new))
    assert done.stdout == f"{new}/scheduler.yaml written\n{new}/changes.txt written\n"
    assert (new / "changes.txt").read_text() == done.stderr
    assert (new / "scheduler.yaml").read_text() == run("migrate", str(old)).stdout
    times = {file: file.stat().st_mtime_ns for file in new.iterdir()}
    assert run("migrate", str(old), "-o", str(new)).stdout == done.stdout.replace(" written", " unchanged")
    own = run("migrate", str(new / "scheduler.yaml"), "-o", str(new))
    assert own.stdout == f"{new}/scheduler.yaml unchanged\n"
    assert {file: file.stat().st_mtime_ns for file in new.iterdir()} == times


def test_other_files_are_replaced_by_force_alone(run: Run, tmp_path: Path) -> None:
    (tmp_path / "scheduler.yaml").write_text("mine")
    (tmp_path / "old.yaml").write_text(OLDER["v1beta3"])
    words = ("migrate", str(tmp_path / "old.yaml"), "-o", str(tmp_path))
    refused = run(*words)
    assert refused.exit_code == 2
    assert f"{tmp_path}/scheduler.yaml has other content" in refused.stderr
    assert "--force" in refused.stderr
    assert sorted(file.name for file in tmp_path.iterdir()) == ["old.yaml", "scheduler.yaml"]
    assert (tmp_path / "scheduler.yaml").read_text() == "mine"
    assert run(*words, "--force").exit_code == 0
    assert documents((tmp_path / "scheduler.yaml").read_text())[0]["kind"] == KIND


@pytest.mark.parametrize("place", ["a file", "below a file", "the result is a folder", "a removed folder"])
def test_result_that_cannot_be_written_is_an_error_and_leaves_nothing(
    place: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "taken" / "scheduler.yaml").mkdir(parents=True)
    old = tmp_path / "old.yaml"
    old.write_text(OLDER["v1beta3"])
    folder = {"a file": "file", "below a file": "file/new", "the result is a folder": "taken"}.get(
        place, "gone/x"
    )
    if place == "a removed folder":
        (tmp_path / "gone").mkdir()
        monkeypatch.chdir(tmp_path / "gone")
        (tmp_path / "gone").rmdir()
        folder = "x"
    before = sorted(tmp_path.rglob("*"))
    target = folder if place == "a removed folder" else str(tmp_path / folder)
    done = run("migrate", str(old), "-o", target, "--force")
    assert done.exit_code == 1, done.stderr
    assert "the result cannot be written" in done.stderr
    assert "name another folder" in done.stderr
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.slow
def test_full_disk_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "old.yaml").write_text(OLDER["policy"])
    line = f"ulimit -f 0; exec {sys.executable} -B -m berth_host migrate old.yaml -o new"
    done = subprocess.run(["sh", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "the result cannot be written: new/scheduler.yaml: " in done.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["old.yaml"]


def secret_file(folder: Path) -> tuple[str, str]:
    """Write an old file with a real key in it; return the file's path, and the key as it is in the file."""
    pair = Authority().issue("extender")
    data = {
        "certData": base64.b64encode(pair.certificate).decode(),
        "keyData": base64.b64encode(pair.key).decode(),
    }
    extender = {
        "urlPrefix": "https://admin:pa55word@gpu:1/x",
        "filterVerb": "filter",
        "enableHTTPS": True,
        "tlsConfig": {"insecure": True, **data},
    }
    old = folder / "old.yaml"
    old.write_text(yaml.safe_dump(of_version("v1beta3", profiles=[GANG], extenders=[extender])))
    return str(old), data["keyData"]


def test_secrets_are_in_the_file_for_its_owner_and_nowhere_else(run: Run, tmp_path: Path) -> None:
    old, key = secret_file(tmp_path)
    done = run("migrate", old, "-o", str(tmp_path / "new"))
    assert done.exit_code == 0, done.stderr
    written = tmp_path / "new" / "scheduler.yaml"
    assert documents(written.read_text())[0]["extenders"][0]["tlsConfig"]["keyData"] == key
    assert written.stat().st_mode & 0o777 == 0o600
    listed = (tmp_path / "new" / "changes.txt").read_text()
    shown = run("migrate", old)
    reported = run("migrate", old, "--report", "json")
    for text in (
        done.stdout,
        done.stderr,
        listed,
        shown.stdout,
        shown.stderr,
        reported.stdout,
        reported.stderr,
    ):
        assert key not in text
        assert "pa55word" not in text
    assert shown.stdout.count(MASK) == 2
    assert "--raw" in shown.stderr
    raw = run("migrate", old, "--raw").stdout
    assert raw == written.read_text()
    written.chmod(0o644)
    again = run("migrate", str(written), "-o", str(tmp_path / "new"))
    assert again.stdout == f"{written} written\n"
    assert written.stat().st_mode & 0o777 == 0o600
    assert written.read_text() == raw


def test_errors_show_no_secret(run: Run, tmp_path: Path) -> None:
    old, key = secret_file(tmp_path)
    text = Path(old).read_text().replace("filterVerb: filter", "filterVerbs: filter")
    done = run("migrate", "-", stdin=text)
    assert done.exit_code == 2
    assert "filterVerbs" in done.stderr
    assert key not in done.stderr
    policy = POLICY | {"extenders": [{"urlPrefix": "x", "tlsConfig": {"keyData": "s3cr3t no base64"}}]}
    for given in (policy, config_map(json.dumps(policy))):
        refused = run("migrate", "-", stdin=json.dumps(given))
        assert refused.exit_code == 2
        assert "s3cr3t" not in refused.stderr


def test_places_in_the_policy_of_a_config_map_name_the_config_map(run: Run) -> None:
    done = run("migrate", "-", "--report", "json", stdin=OLDER["policy in a ConfigMap"])
    report = json.loads(done.stderr)
    assert {one["source"] for one in report["changes"]} == {
        "ConfigMap kube-system/scheduler-policy, policy.cfg"
    }
    assert report["notes"] == []
    warned = run("check-config", "-", stdin=OLDER["policy in a ConfigMap"]).stderr
    assert "warning: ConfigMap kube-system/scheduler-policy, policy.cfg: line 3: kind: the policy" in warned


def test_report_as_an_object_is_all_of_standard_error(run: Run, tmp_path: Path) -> None:
    old = tmp_path / "old.yaml"
    old.write_text(yaml.safe_dump(of_version("v1beta1", profiles=[GANG | SCORED], metricsBindAddress=":1")))
    done = run("migrate", str(old), "--report", "json", "-o", str(tmp_path / "new"))
    report = json.loads(done.stderr)
    assert report["from"] == "v1beta1"
    assert report["to"] == f"{GROUP}/v1"
    assert report["files"] == [f"{tmp_path}/new/scheduler.yaml", f"{tmp_path}/new/changes.txt"]
    changes = {(entry["field"], entry["change"]) for entry in report["changes"]}
    assert ("metricsBindAddress", "dropped") in changes
    assert ("profiles[0].plugins.score.enabled", "exact") in changes
    assert [one["plugin"] for one in report["changes"] if "plugin" in one] == ["CapacityScheduling"]
    assert yaml.safe_load(run("migrate", str(old), "--report", "yaml").stderr)["files"] == []


BAD: dict[str, tuple[str, str]] = {
    "empty": ("", "no object with apiVersion and kind"),
    "no YAML": ("a: [", "yaml:"),
    "a list": ("- a\n- b\n", "no object with apiVersion and kind"),
    "another kind": ("apiVersion: apps/v1\nkind: Deployment\n", "kind Deployment (apps/v1) is not migrated"),
    "no kind": (f"apiVersion: {GROUP}/v1\n", "the document has no kind"),
    "another version": (f"apiVersion: {GROUP}/v2\nkind: {KIND}\n", f'no version "{GROUP}/v2"'),
    "no version": (f"kind: {KIND}\n", f'{KIND} has no version ""'),
    "a BerthConfiguration": (BERTH, "--berth-config"),
    "several documents": (f"kind: Service\napiVersion: v1\n---\n{V1}", "kind Service (v1) is not migrated"),
    "a field of another form": (V1.replace("/v1", "/v1beta3") + "algorithmSource: {}\n", "algorithmSource"),
    "an error of v1": (V1.replace("/v1", "/v1beta3") + "parallelism: 0\n", ":3: parallelism"),
    "a ConfigMap of others": (yaml.safe_dump(config_map("x", "config.yaml")), "it has config.yaml"),
    "a ConfigMap without data": ("kind: ConfigMap\napiVersion: v1\n", "it has nothing"),
    "a ConfigMap with nonsense": (yaml.safe_dump(config_map("a: [")), "policy.cfg:2: yaml:"),
    "a ConfigMap with no policy": (yaml.safe_dump(config_map(V1)), "this is no Policy"),
    "a policy of nobody": (
        "kind: Policy\napiVersion: v1\npredicates: [{name: GeneralPredicate}]",
        "did you mean",
    ),
    "a policy in the cluster": (
        yaml.safe_dump(
            of_version("v1alpha1", algorithmSource={"policy": {"configMap": {"namespace": "a", "name": "b"}}})
        ),
        "kubectl -n a get configmap b",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_an_error_with_its_cure_and_nothing_is_written(
    name: str, run: Run, tmp_path: Path
) -> None:
    text, wanted = BAD[name]
    done = run("migrate", "-", "-o", str(tmp_path / "new"), stdin=text)
    assert done.exit_code == 2, done.stderr
    assert wanted in done.stderr
    assert done.stdout == ""
    assert not (tmp_path / "new").exists()


def test_files_that_cannot_be_read_are_errors(run: Run, tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"kind: \xff")
    (tmp_path / "large").write_bytes(b"x" * (16 * 2**20 + 1))
    (tmp_path / "v1.yaml").write_text(V1)
    for name, wanted in (
        ("absent", "No such file or directory"),
        ("", "Is a directory"),
        ("binary", "not UTF-8"),
        ("large", "larger than 16 MiB"),
    ):
        for words in (
            (f"{tmp_path}/{name}",),
            (f"{tmp_path}/v1.yaml", "--berth-config", f"{tmp_path}/{name}"),
        ):
            done = run("migrate", *words)
            assert done.exit_code == 2
            assert wanted in done.stderr


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (V1, "has no BerthConfiguration"),
        (f"{BERTH}plugin: []\n", 'did you mean "plugins"?'),
        (f"{BERTH}cycleBudget: 1h\n", "cycleBudget"),
        ("a: [", "yaml:"),
        (PLACED, "a BerthConfiguration is given here and in another file"),
    ],
)
def test_bad_berth_configuration_is_an_error(text: str, wanted: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "berth.yaml").write_text(text)
    given = f"{V1}---\n{BERTH}cycleBudget: 2s\n"
    done = run("migrate", "-", "--berth-config", str(tmp_path / "berth.yaml"), stdin=given)
    assert done.exit_code == 2
    assert wanted in done.stderr


def test_standard_input_is_read_once_and_an_empty_folder_is_refused(run: Run) -> None:
    assert "standard input can be read once" in run("migrate", "-", "--berth-config", "-", stdin=V1).stderr
    assert "name a folder" in run("migrate", "-", "-o", "", stdin=V1).stderr
