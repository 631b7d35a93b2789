"""Each alert of the chart fires for its trouble, and not before; promtool runs the rules."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from berth_host.metrics import families
from support.chart import rendered, the
from support.debian_prometheus import program
from support.places import ROOT

NAMES = {family.name for family in families.BERTH} | {families.MASTER_STATUS.name}
OWN = 'namespace="kube-system", job="berth"'
RUNBOOKS = ROOT / "docs/how-to/alerts"


def promtool() -> Path | None:
    return program("promtool")


def group(**values: Any) -> dict[str, Any]:
    """Return the group of rules that the chart renders."""
    rules = rendered(values={"metrics": {"prometheusRule": {"enabled": True, **values}}})
    (found,) = the(rules, "PrometheusRule")["spec"]["groups"]
    made: dict[str, Any] = found
    return made


# By alert: the series that raise it, where the trouble begins in the fifth minute; the labels that it has;
# what its summary says.
TROUBLE: dict[str, tuple[dict[str, str], dict[str, str], str]] = {
    "BerthPodsPendingTooLong": (
        {
            f'berth_oldest_pending_pod_seconds{{{OWN}, queue="unschedulable"}}': "0x4 1000+60x10",
            f'berth_oldest_pending_pod_seconds{{{OWN}, queue="gated"}}': "9999x15",
            f"leader_election_master_status{{{OWN}}}": "1x15",
        },
        {"queue": "unschedulable"},
        "A pod is pending for 21m 40s in unschedulable.",
    ),
    "BerthPluginDown": (
        {
            f'berth_plugin_absent{{{OWN}, plugin="GpuShare", pod="a"}}': "0x4 1x10",
            f'berth_plugin_absent{{{OWN}, plugin="GpuShare", pod="b"}}': "0x15",
            f'berth_plugin_absent{{{OWN}, plugin="Other"}}': "0x15",
            f"leader_election_master_status{{{OWN}}}": "1x15",
        },
        {"plugin": "GpuShare"},
        "The required plugin GpuShare cannot be called.",
    ),
    "BerthBreakerOpen": (
        {
            f'berth_plugin_circuit_open{{{OWN}, plugin="GpuShare", extension_point="Filter"}}': "0x4 1x10",
            f"leader_election_master_status{{{OWN}}}": "1x15",
        },
        {"plugin": "GpuShare", "extension_point": "Filter"},
        "The circuit breaker of GpuShare at Filter is open.",
    ),
    "BerthLeaderLost": (
        {
            f'leader_election_master_status{{{OWN}, pod="a"}}': "1x4 0x10",
            f'leader_election_master_status{{{OWN}, pod="b"}}': "0x15",
        },
        {},
        "No replica of berth leads, so no pod is scheduled.",
    ),
    "BerthUndoOverdue": (
        {
            f'berth_unreserve_age_seconds{{{OWN}, plugin="GpuShare"}}': "0x4 90+60x10",
            f"leader_election_master_status{{{OWN}}}": "1x15",
        },
        {"plugin": "GpuShare"},
        "GpuShare has not received an Unreserve for 6m 30s.",
    ),
    "BerthPostBindOverdue": (
        {
            f'berth_post_bind_age_seconds{{{OWN}, plugin="GpuShare"}}': "0x4 90+60x10",
            f"leader_election_master_status{{{OWN}}}": "1x15",
        },
        {"plugin": "GpuShare"},
        "The host has held a PostBind to GpuShare for 6m 30s.",
    ),
    "BerthNodesOverfull": (
        {
            f'berth_overfull_nodes{{{OWN}, pod="a"}}': "0x4 3x10",
            f'berth_overfull_nodes{{{OWN}, pod="b"}}': "0x4 2x10",
            f"leader_election_master_status{{{OWN}}}": "1x15",
        },
        {},
        "The pods of 3 nodes request more than the node offers.",
    ),
}


def test_every_alert_has_a_case_and_a_runbook() -> None:
    rules = {rule["alert"]: rule for rule in group()["rules"]}
    assert rules.keys() == TROUBLE.keys()
    pages = {rule["annotations"]["runbook_url"].rpartition("/")[2] for rule in rules.values()}
    assert pages == {path.stem for path in RUNBOOKS.glob("*.md")}
    for rule in rules.values():
        page = rule["annotations"]["runbook_url"].rpartition("/")[2]
        assert rule["alert"] in (RUNBOOKS / f"{page}.md").read_text()


def test_alerts_ask_for_metrics_that_exist() -> None:
    for rule in group()["rules"]:
        asked = set(re.findall(r"\b((?:berth|scheduler|leader_election)_\w+)\{", rule["expr"]))
        assert asked <= NAMES
        assert asked, rule["alert"]


def test_thresholds_and_labels_are_values() -> None:
    rules = {
        rule["alert"]: rule
        for rule in group(pendingSeconds=60, undoSeconds=7, alertLabels={"team": "infra"}, runbookUrl="")[
            "rules"
        ]
    }
    assert rules["BerthPodsPendingTooLong"]["expr"].endswith("> 60")
    assert rules["BerthUndoOverdue"]["expr"].endswith("> 7")
    assert all(rule["labels"]["team"] == "infra" for rule in rules.values())
    assert rules["BerthLeaderLost"]["annotations"]["runbook_url"] == "leader-lost"


@pytest.mark.sampled(every=3)
@pytest.mark.skipif(
    promtool() is None and not os.environ.get("CI"), reason="no promtool: `make envtest` brings it on Debian"
)
@pytest.mark.parametrize("alert", sorted(TROUBLE))
def test_alert_fires_for_its_trouble_alone(tmp_path: Path, alert: str) -> None:
    tool = promtool()
    assert tool is not None, "no promtool, and CI must run this: `make envtest` brings it on Debian"
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [group()]}))
    series, labels, summary = TROUBLE[alert]
    (rule,) = (one for one in group()["rules"] if one["alert"] == alert)
    expected = {
        "exp_labels": {"namespace": "kube-system", **labels, **rule["labels"]},
        "exp_annotations": {"summary": summary, "runbook_url": rule["annotations"]["runbook_url"]},
    }
    # Nothing fires in the third minute; in the tenth, this alert alone.
    checks: list[dict[str, Any]] = [{"eval_time": "3m", "alertname": one} for one in TROUBLE]
    checks += [
        {"eval_time": "10m", "alertname": one, "exp_alerts": [expected] if one == alert else []}
        for one in TROUBLE
    ]
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": checks,
    }
    path = tmp_path / "test.yaml"
    path.write_text(
        yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [test]})
    )
    done = subprocess.run([tool, "test", "rules", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(
    promtool() is None and not os.environ.get("CI"), reason="no promtool: `make envtest` brings it on Debian"
)
def test_without_leader_election_a_replica_that_runs_leads(tmp_path: Path) -> None:
    """The process has no leader_election_master_status then."""
    tool = promtool()
    assert tool is not None, "no promtool, and CI must run this: `make envtest` brings it on Debian"
    values = {
        "replicaCount": 1,
        "config": {"leaderElection": {"leaderElect": False}},
        "metrics": {"prometheusRule": {"enabled": True}},
    }
    spec = the(rendered(values=values), "PrometheusRule")["spec"]
    (rule,) = (one for one in spec["groups"][0]["rules"] if one["alert"] == "BerthLeaderLost")
    expected = {
        "exp_labels": {"namespace": "kube-system", **rule["labels"]},
        "exp_annotations": rule["annotations"],
    }
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(spec))
    test = {
        "interval": "1m",
        "input_series": [{"series": f"berth_build_info{{{OWN}}}", "values": "1x6 stale"}],
        "alert_rule_test": [
            {"eval_time": "6m", "alertname": "BerthLeaderLost"},
            {"eval_time": "10m", "alertname": "BerthLeaderLost", "exp_alerts": [expected]},
        ],
    }
    path = tmp_path / "test.yaml"
    path.write_text(
        yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [test]})
    )
    done = subprocess.run([tool, "test", "rules", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
