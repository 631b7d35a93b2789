"""The command line in Go's spelling, and what it makes of the configuration."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from berth_host.cli.scheduler.flags import FLAGS
from berth_host.cli.scheduler.parsing import FlagError, parse
from berth_host.cli.scheduler.settings import loaded, settings
from berth_host.config.emulation import EMULATIONS, NO_EMULATION
from berth_host.config.errors import ConfigurationError


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("", "leader-elect", True),
        ("--leader-elect=false", "leader-elect", False),
        ("--leader-elect=F", "leader-elect", False),
        ("--leader-elect", "leader-elect", True),
        ("--leader_elect=0", "leader-elect", False),
        ("--v=2", "v", 2),
        ("--v 2", "v", 2),
        ("-v 2", "v", 2),
        ("-v=2", "v", 2),
        ("-v2", "v", 2),
        ("", "secure-port", 10259),
        ("--secure-port=0", "secure-port", 0),
        ("--secure-port=0x10", "secure-port", 16),
        ("--secure-port=017", "secure-port", 15),
        ("--secure-port=0b11", "secure-port", 3),
        ("--secure-port=+1_0", "secure-port", 10),
        ("--bind-address=::", "bind-address", "::"),
        ("--leader-elect-lease-duration=1m30s", "leader-elect-lease-duration", 90.0),
        ("--leader-elect-retry-period 500ms", "leader-elect-retry-period", 0.5),
        ("", "pod-max-in-unschedulable-pods-duration", 300.0),
        ("--kube-api-qps=1e2", "kube-api-qps", 100.0),
        ("--config a --config=b", "config", "b"),
        ("--config=", "config", ""),
        ("--config=a=b", "config", "a=b"),
        ("", "authorization-always-allow-paths", ("/healthz", "/readyz", "/livez")),
        ("--authorization-always-allow-paths=/a,/b", "authorization-always-allow-paths", ("/a", "/b")),
        (
            "--feature-gates=AllAlpha=false --feature-gates=A=true,B=false",
            "feature-gates",
            ("AllAlpha=false", "A=true", "B=false"),
        ),
        (
            "--feature-gates=kube:A=true --feature-gates=kube:B=false",
            "feature-gates",
            ("kube:A=true", "kube:B=false"),
        ),
        ("--version", "version", True),
        ("--v=1 --", "v", 1),
    ],
)
def test_a_flag_is_read_as_go_reads_it(line: str, name: str, value: object) -> None:
    assert parse(line.split()).value(name) == value


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("--leader-elected", "unknown flag: --leader-elected (did you mean --leader-elect?)"),
        ("--xyzzy=1", "unknown flag: --xyzzy"),
        ("-x", "unknown shorthand flag: 'x' in -x"),
        ("--config", "flag needs an argument: --config"),
        ("-v", "flag needs an argument: -v"),
        ("-v=-1", 'invalid argument "-1" for "--v" flag: want a whole number from 0'),
        (
            "--feature-gates=kube:A=true --feature-gates=B=true",
            'invalid argument "B=true" for "--feature-gates" flag: '
            "set kube feature gates with default empty prefix or kube: prefix consistently, do not mix use",
        ),
        (
            "--leader-elect=perhaps",
            'invalid argument "perhaps" for "--leader-elect" flag: want true or false',
        ),
        ("--secure-port=ten", 'invalid argument "ten" for "--secure-port" flag: want a whole number'),
        ("--secure-port=08", 'invalid argument "08" for "--secure-port" flag: want a whole number'),
        ("-v=0x1", 'invalid argument "0x1" for "--v" flag: want a whole number from 0'),
        (
            "--bind-address=",
            'invalid argument "" for "--bind-address" flag: '
            "want an IP address; 0.0.0.0 or :: for all that this machine has",
        ),
        (
            "--bind-address=localhost",
            'invalid argument "localhost" for "--bind-address" flag: '
            "want an IP address; 0.0.0.0 or :: for all that this machine has",
        ),
        ("--kube-api-qps=x", 'invalid argument "x" for "--kube-api-qps" flag: want a number'),
        (
            "--leader-elect-lease-duration=15",
            'invalid argument "15" for "--leader-elect-lease-duration" flag: invalid duration "15": '
            "the unit is missing (ns, us, ms, s, m or h)",
        ),
        (
            "--feature-gates=A",
            'invalid argument "A" for "--feature-gates" flag: '
            "missing bool value for A: want A=true or A=false",
        ),
        ("--leader-elect false", "berth scheduler takes no arguments, only flags: 'false'"),
        ("-- scheduler.yaml", "berth scheduler takes no arguments, only flags: 'scheduler.yaml'"),
    ],
)
def test_error_of_an_invalid_command_line_names_the_reason(line: str, text: str) -> None:
    with pytest.raises(FlagError) as caught:
        parse(line.split())
    assert str(caught.value) == text


def test_help_takes_precedence_over_all_flags() -> None:
    assert parse(["--nonsense", "-h"][1:]).wants_help
    assert parse(["--v=2", "--help"]).wants_help


def test_every_flag_of_kube_scheduler_is_known() -> None:
    """The names on its `/flagz`, recorded from 1.36.2; berth's own are the difference."""
    recorded = (Path(__file__).parent / "testdata" / "flagz.txt").read_text().split("\n")
    names = {line.partition(":")[0] for line in recorded if line} - {"help"}
    assert names - set(FLAGS) == set()
    own = {
        "no-convert",
        "event-loop",
        "query-bind-address",
        "query-secure-port",
        "ui",
        "shadow",
        "emulation-forward-compatible",
        "runtime-config-emulation-forward-compatible",
    }
    assert set(FLAGS) - names == own


def test_defaults_are_kube_schedulers() -> None:
    recorded = (Path(__file__).parent / "testdata" / "flagz.txt").read_text().split("\n")
    # What the recording set itself.
    given = {"authentication-kubeconfig", "authorization-kubeconfig", "bind-address", "config", "secure-port"}
    given |= {"feature-gates", "vmodule"}  # maps there, shown as ""
    for line in filter(None, recorded):
        name, _, shown = line.partition(":")
        flag = FLAGS.get(name)
        if flag is not None and name not in given:
            assert _as_go(flag.default) == shown.strip(), name


def _as_go(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case float() if value in (50.0,):
            return "50"
        case float():
            return "5m0s" if value == 300 else f"{value:g}s"
        case tuple():
            return f"[{','.join(value)}]"
        case _:
            return str(value)


def test_warnings_name_flags_that_are_deprecated_ignored_or_without_effect() -> None:
    assert list(parse(["--kubeconfig=k", "--vmodule=a=2", "--leader-elect=false"]).warnings()) == [
        "--kubeconfig is deprecated",
        "--vmodule has no effect in berth",
    ]
    assert list(parse(["--kubeconfig=k", "--config=c", "--profiling=false"]).warnings()) == [
        "--kubeconfig is ignored: --config is given; say it in that file",
        "--profiling is ignored: --config is given; say it in that file",
    ]


# --- precedence ----------------------------------------------------------------------------------

DOCUMENT = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaseDuration: 40s, resourceName: mine}
clientConnection: {kubeconfig: /from/file, qps: 7}
enableProfiling: false
"""


def test_without_a_file_flags_override_the_defaults() -> None:
    line = (
        "--kubeconfig=/k --kube-api-qps=9 --kube-api-burst=11 --kube-api-content-type=application/json "
        "--profiling=false --leader-elect-lease-duration=20s --leader-elect-resource-name=other"
    )
    scheduler = loaded(parse(line.split()), {}).scheduler
    connection, election = scheduler.client_connection, scheduler.leader_election
    assert (connection.kubeconfig, connection.qps, connection.burst) == ("/k", 9, 11)
    assert connection.content_type == "application/json"
    assert (election.lease_duration_s, election.resource_name) == (20.0, "other")
    assert election.renew_deadline_s == 10.0
    assert not scheduler.enable_profiling


def test_with_a_file_only_leader_election_flags_override_it(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.yaml"
    path.write_text(DOCUMENT)
    line = (
        f"--config={path} --kubeconfig=/k --kube-api-qps=9 --profiling=true "
        "--leader-elect-renew-deadline=30s --leader-elect-resource-name=other"
    )
    result = loaded(parse(line.split()), {})
    connection, election = result.scheduler.client_connection, result.scheduler.leader_election
    assert (connection.kubeconfig, connection.qps) == ("/from/file", 7)
    assert not result.scheduler.enable_profiling
    assert (election.lease_duration_s, election.renew_deadline_s) == (40.0, 30.0)
    assert election.resource_name == "other"
    assert result.scheduler_json["leaderElection"]["renewDeadline"] == "30s"  # type: ignore[index, call-overload]  # JSON


def test_values_of_flags_are_validated_too(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.yaml"
    path.write_text(DOCUMENT)
    for line, text in (
        (
            f"--config={path} --leader-elect-renew-deadline=50s",
            "--leader-elect-renew-deadline=50s: leaseDuration must be greater than renewDeadline, 50s",
        ),
        (
            "--leader-elect-lease-duration=5s",
            "--leader-elect-lease-duration=5s: leaseDuration must be greater than renewDeadline, 10s",
        ),
        (
            "--leader-elect-resource-lock=endpoints",
            '--leader-elect-resource-lock=endpoints: resourceLock value must be "leases"',
        ),
        ("--leader-elect-resource-name=", "--leader-elect-resource-name=: must not be empty"),
        ("--kube-api-burst=-3", "--kube-api-burst=-3: must be non-negative"),
    ):
        with pytest.raises(ConfigurationError) as caught:
            loaded(parse(line.split()), {})
        assert str(caught.value) == text


def test_findings_about_the_file_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.yaml"
    path.write_text(DOCUMENT.replace("leaseDuration: 40s", "leaseDuration: 4s"))
    for more in ([], ["--leader-elect-resource-name=other"]):
        with pytest.raises(ConfigurationError, match=rf"^{path}:4: leaderElection\.leaseDuration: .*RenewD"):
            loaded(parse([f"--config={path}", *more]), {})


def test_feature_gates_reach_the_configuration() -> None:
    with pytest.raises(ConfigurationError, match="unrecognized feature gate: Nonsense"):
        loaded(parse(["--feature-gates=Nonsense=true"]), {})
    assert loaded(parse(["--feature-gates=SchedulerAsyncPreemption=false"]), {}).profiles


@pytest.mark.parametrize("line", ["--emulated-version=kube=1.36", "--emulated-version=1.36"])
def test_emulated_version_reaches_the_configuration_and_stays_through_a_reload(line: str) -> None:
    flags = parse([line])
    assert list(flags.warnings()) == []
    configuration = loaded(flags, {})
    assert configuration.emulation is EMULATIONS["1.36"]
    assert settings(flags, configuration, {}).load().emulation is EMULATIONS["1.36"]


def test_without_emulated_version_every_correction_is_on() -> None:
    assert loaded(parse([]), {}).emulation is NO_EMULATION


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("1.35", "cannot emulate kube-scheduler 1.35: want kube=1.36"),
        ("wardle=1.2,kube=1.36", "component not registered: wardle"),
        ("kube=1.36.1", "invalid version 1.36.1"),
    ],
)
def test_unknown_emulated_version_is_refused(value: str, problem: str) -> None:
    with pytest.raises(FlagError, match=re.escape(problem)):
        parse([f"--emulated-version={value}"])


def test_emulated_version_is_given_once() -> None:
    with pytest.raises(FlagError, match="duplicate version flag"):
        parse(["--emulated-version=1.36", "--emulated-version=kube=1.36"])
