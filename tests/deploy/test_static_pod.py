"""The static pod in kube-scheduler's place on kubeadm: berth accepts its flags and its configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from berth_host.cli import configuration
from berth_host.cli.scheduler.parsing import parse
from support.places import ROOT

FOLDER = ROOT / "deploy/static-pod"
POD: dict[str, Any] = yaml.safe_load((FOLDER / "kube-scheduler.yaml").read_text())
(CONTAINER,) = POD["spec"]["containers"]


def test_static_pod_flags_are_berths_and_name_mounted_files() -> None:
    command, *flags = CONTAINER["args"]
    assert command == "scheduler"
    parse(flags)  # raises for one that is not there
    mounted = [mount["mountPath"] for mount in CONTAINER["volumeMounts"]]
    for flag in flags:
        value = flag.partition("=")[2]
        if value.startswith("/"):
            assert any(Path(value).is_relative_to(path) for path in mounted), flag


def test_static_pod_configuration_has_the_name_and_the_lease_of_kube_scheduler() -> None:
    loaded = configuration.load(str(FOLDER / "scheduler.yaml"), {})
    election = loaded.scheduler.leader_election
    assert (election.resource_namespace, election.resource_name) == ("kube-system", "kube-scheduler")
    assert election.leader_elect
    assert [profile.scheduler_name for profile in loaded.profiles] == ["default-scheduler"]
    assert loaded.scheduler.client_connection.kubeconfig == "/etc/kubernetes/scheduler.conf"


def test_static_pod_probes_use_the_port_that_it_listens_on() -> None:
    assert "--bind-address=127.0.0.1" in CONTAINER["args"]
    for which in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = CONTAINER[which]["httpGet"]
        assert (asked["host"], asked["scheme"], asked["port"]) == ("127.0.0.1", "HTTPS", "probe-port")
    assert CONTAINER["ports"] == [{"name": "probe-port", "containerPort": 10259}]
