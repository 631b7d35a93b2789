"""`berth scheduler` without a cluster: what it writes, refuses and says."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import yaml
from berth_host import __main__ as entry
from berth_host.cli.main import berth
from berth_host.cli.scheduler.flags import FLAGS
from berth_host.cli.scheduler.parsing import FlagError, parse
from berth_host.cli.scheduler.settings import loaded, logging_of, runs_on_uvloop, settings
from berth_host.config.loading import default_configuration
from click.testing import CliRunner, Result

TESTDATA = Path(__file__).parent / "testdata"
KUBECONFIG = "/etc/kubernetes/scheduler.conf"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(berth, ["scheduler", *arguments])


def test_written_configuration_equals_that_of_kube_scheduler(tmp_path: Path) -> None:
    """Recorded from kube-scheduler 1.36.2 with the same flags."""
    path = tmp_path / "written.yaml"
    flags = (f"--kubeconfig={KUBECONFIG}", "--secure-port=0", f"--write-config-to={path}")
    result = run(*flags, "--emulated-version=1.36")

    assert result.exit_code == 0, result.output
    recorded = yaml.safe_load((TESTDATA / "completed.yaml").read_text())
    assert yaml.safe_load(path.read_text()) == recorded


def test_configuration_may_come_from_standard_input(tmp_path: Path) -> None:
    path = tmp_path / "written.yaml"
    given = (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles: [{schedulerName: from-there}]\n"
    )
    arguments = ["scheduler", "--config", "-", f"--write-config-to={path}"]
    result = CliRunner().invoke(berth, arguments, input=given)
    assert result.exit_code == 0, result.output
    assert yaml.safe_load(path.read_text())["profiles"][0]["schedulerName"] == "from-there"


def test_written_configuration_can_be_read_again_and_means_the_same(tmp_path: Path) -> None:
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    given = tmp_path / "given.yaml"
    given.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "leaderElection: {leaseDuration: 20s}\n"
        "profiles: [{schedulerName: a, percentageOfNodesToScore: 50},"
        " {schedulerName: b, plugins: {score: {disabled: [{name: '*'}]}}}]\n"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 2s\n"
    )
    assert run(f"--config={given}", f"--write-config-to={first}").exit_code == 0
    assert run(f"--config={first}", f"--write-config-to={second}").exit_code == 0

    assert first.read_text() == second.read_text()
    scheduler, own = yaml.safe_load_all(first.read_text())
    assert scheduler["leaderElection"]["leaseDuration"] == "20s"
    assert scheduler["profiles"][0]["percentageOfNodesToScore"] == 50
    assert own["cycleBudget"] == "2s"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--leader-elected"], "unknown flag: --leader-elected (did you mean --leader-elect?)"),
        (["--logging-format=xml"], "--logging-format 'xml': want text or json"),
        (["--event-loop=trio"], "want uvloop or asyncio"),
        (["--config=/nonexistent.yaml"], "/nonexistent.yaml: cannot be read: No such file or directory"),
        (["--feature-gates=Nonsense=true"], "unrecognized feature gate: Nonsense"),
        (["--secure-port=99999"], "--secure-port 99999: must be between 0 and 65535"),
        (["--query-secure-port=-1"], "--query-secure-port -1: must be between 0 and 65535"),
        (
            ["--secure-port=1234", "--query-secure-port=1234"],
            "--query-secure-port 1234: is that of --secure-port",
        ),
        (["--client-ca-file=/nonexistent"], "--client-ca-file /nonexistent: cannot be read"),
        (["--kubeconfig=/nonexistent"], "/nonexistent"),
        (["--write-config-to=/nonexistent/a"], "--write-config-to /nonexistent/a: No such file or directory"),
        (
            ["--leader-elect-retry-period=12s"],
            "--leader-elect-retry-period=12s: renewDeadline must be greater than retryPeriod*JitterFactor",
        ),
        (
            ["--shadow", "--leader-elect=true"],
            "--shadow --leader-elect=true: a shadow holds no Lease; leave --leader-elect out",
        ),
        (
            ["--leader-elect-resource-name=A/../b"],
            "--leader-elect-resource-name=A/../b: resourceName 'A/../b': a lowercase RFC 1123 subdomain",
        ),
        (
            ["--leader-elect-resource-namespace=a.b"],
            "--leader-elect-resource-namespace=a.b: resourceNamespace 'a.b': a lowercase RFC 1123 label",
        ),
        (["stray"], "berth scheduler takes no arguments, only flags: 'stray'"),
    ],
)
def test_bad_input_is_one_line_and_kube_schedulers_exit_code(arguments: list[str], text: str) -> None:
    result = run("--secure-port=0", *arguments)

    assert result.exit_code == 1
    told = [line for line in result.stderr.splitlines() if line.startswith("berth: ")]
    assert len(told) == 1
    assert text in told[0]
    assert "Traceback" not in result.output


def test_version_and_help_start_no_scheduler() -> None:
    assert run("--version").stdout.startswith("berth ")
    shown = run("--help")
    assert shown.exit_code == 0
    for name in FLAGS:
        assert name in shown.stdout


def test_warnings_go_to_standard_error(tmp_path: Path) -> None:
    result = run("--kube-api-qps=9", "--vmodule=a=1", f"--write-config-to={tmp_path / 'w'}")
    assert "warning: --kube-api-qps is deprecated" in result.stderr
    assert "warning: --vmodule has no effect in berth" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", ("INFO", "text")),
        ("-v=1", ("INFO", "text")),
        ("-v=2", ("DEBUG", "text")),
        ("--logging-format=json --v=4", ("DEBUG", "json")),
    ],
)
def test_attempts_are_logged_from_v_2_on(line: str, expected: tuple[str, str]) -> None:
    assert logging_of(parse(line.split())) == expected


@pytest.mark.parametrize(
    ("line", "is_installed", "expected"),
    [
        ("", True, True),
        ("", False, True),
        ("--event-loop=uvloop", True, True),
        ("--event-loop=asyncio", True, False),
        ("--event-loop=asyncio", False, False),
    ],
)
def test_uvloop_is_the_event_loop_unless_the_flag_says_asyncio(
    monkeypatch: pytest.MonkeyPatch, line: str, is_installed: bool, expected: bool
) -> None:
    if not is_installed:
        monkeypatch.setitem(sys.modules, "uvloop", None)
    assert runs_on_uvloop(parse(line.split())) is expected


def test_uvloop_that_was_asked_for_and_is_not_installed_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    with pytest.raises(FlagError, match=r"uvloop is not installed: pip install 'berth-host\[uvloop\]'"):
        runs_on_uvloop(parse(["--event-loop=uvloop"]))


def test_flags_reach_the_process(tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    authority.write_text("PEM")
    line = (
        "--master=https://m:6443 --bind-address=127.0.0.1 --secure-port=0"
        " --tls-cert-file=/c --tls-private-key-file=/k"
        f" --client-ca-file={authority} --authorization-always-allow-paths=/metrics"
        " --authentication-kubeconfig=/a --authorization-kubeconfig=/z"
        " --pod-max-in-unschedulable-pods-duration=1m"
    )
    made = settings(parse(line.split()), default_configuration(), {})
    serving = made.serving
    assert (made.master, made.authentication_kubeconfig, made.authorization_kubeconfig) == (
        "https://m:6443",
        "/a",
        "/z",
    )
    assert (serving.bind_address, serving.port, serving.always_allowed) == ("127.0.0.1", 0, ("/metrics",))
    assert (serving.cert_file, serving.key_file) == (Path("/c"), Path("/k"))
    assert serving.trust.client_ca == "PEM"
    assert made.options.max_in_pool_s == 60.0
    assert dict(made.flags)["pod-max-in-unschedulable-pods-duration"] == "1m0s"
    assert dict(made.flags)["leader-elect"] == "true"


def test_shadow_elects_no_leader_whatever_the_file_says(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.yaml"
    path.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "leaderElection: {leaderElect: true}\n"
    )
    flags = parse([f"--config={path}", "--shadow"])
    configuration = loaded(flags, {})
    assert not configuration.scheduler.leader_election.leader_elect
    assert settings(flags, configuration, {}).shadow is not None
    flags = parse([f"--config={path}"])
    assert settings(flags, loaded(flags, {}), {}).shadow is None


def test_the_alias_takes_the_same_flags(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["berth-scheduler", "--version"])
    with pytest.raises(SystemExit) as caught:
        entry.scheduler()
    assert not caught.value.code
    assert capsys.readouterr().out.startswith("berth ")


def test_existing_files_of_the_kubeconfig_variable_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "config"
    there.touch()
    other = tmp_path / "other"
    other.touch()
    for given, taken in (
        (f"/nowhere{os.pathsep}{there}", str(there)),
        (
            f"{there}{os.pathsep}/nowhere{os.pathsep}{tmp_path / 'other'}",
            f"{there}{os.pathsep}{tmp_path / 'other'}",
        ),
        ("/nowhere", "/nowhere"),
        ("", ""),
    ):
        monkeypatch.setenv("KUBECONFIG", given)
        assert settings(parse([]), default_configuration(), {}).default_kubeconfig == taken
