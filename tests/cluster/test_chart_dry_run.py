"""The real API server accepts the chart's objects: every manifest of every values file, and a pod of each.

`--dry-run=server` does everything but the last write: decoding, defaults, validation, admission.
"""

from __future__ import annotations

import json
import subprocess
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import pytest
from berth_bench.versus.real_servers import RealServers, program
from support import chart
from support.chart import Json, of_kind, rendered, the
from support.places import ROOT
from support.waiting import wait_until

pytestmark = pytest.mark.long

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MONITORS: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "servicemonitors.monitoring.coreos.com"},
    "spec": {
        "group": "monitoring.coreos.com",
        "scope": "Namespaced",
        "names": {"kind": "ServiceMonitor", "plural": "servicemonitors", "singular": "servicemonitor"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "required": ["spec"],
                        "properties": {
                            "spec": {
                                "type": "object",
                                "required": ["selector", "endpoints"],
                                "properties": {
                                    "selector": {
                                        "type": "object",
                                        "properties": {
                                            "matchLabels": {
                                                "type": "object",
                                                "additionalProperties": {"type": "string"},
                                            }
                                        },
                                    },
                                    "namespaceSelector": {
                                        "type": "object",
                                        "properties": {
                                            "matchNames": {"type": "array", "items": {"type": "string"}}
                                        },
                                    },
                                    "endpoints": {
                                        "type": "array",
                                        "items": {
                                            "type": "object",
                                            "properties": {
                                                "port": {"type": "string"},
                                                "scheme": {"type": "string", "enum": ["http", "https"]},
                                                "path": {"type": "string"},
                                                "interval": {
                                                    "type": "string",
                                                    "pattern": "^[0-9]+(ms|s|m|h)$",
                                                },
                                                "bearerTokenFile": {"type": "string"},
                                                "tlsConfig": {
                                                    "type": "object",
                                                    "properties": {"insecureSkipVerify": {"type": "boolean"}},
                                                },
                                            },
                                        },
                                    },
                                },
                            }
                        },
                    }
                },
            }
        ],
    },
}
"""The part of the Prometheus operator's resource that the chart uses; strict about fields."""
EVERYTHING: Json = {
    "fullnameOverride": "scheduler-two",
    "image": {"repository": "r.example.com/berth", "digest": f"sha256:{'0' * 64}", "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "pull"}],
    "replicaCount": 3,
    "cycleBudget": "500ms",
    "extraArgs": ["-v=4", "--logging-format=json"],
    "env": [{"name": "GRPC_VERBOSITY", "value": "ERROR"}],
    "extraVolumes": [{"name": "tls", "secret": {"secretName": "tls"}}],
    "extraVolumeMounts": [{"name": "tls", "mountPath": "/tls"}],
    "serviceAccount": {"annotations": {"example.com/a": "b"}},
    "rbac": {"extraRules": [{"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["list"]}]},
    "affinity": {"nodeAffinity": {}},
    "tolerations": [{"operator": "Exists"}],
    "podAnnotations": {"a": "b"},
    "podLabels": {"c": "d"},
    "hostNetwork": True,
    "podDisruptionBudget": {"maxUnavailable": "50%"},
    "metrics": {
        "readers": [{"kind": "Group", "name": "readers", "apiGroup": "rbac.authorization.k8s.io"}],
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    },
    "networkPolicy": {"from": [{"podSelector": {}}], "egress": [{"ports": [{"port": 6443}]}]},
    "plugins": [
        {
            "name": "GpuShare",
            "required": True,
            "maxConcurrency": 4,
            "container": {
                "image": "gpu:1",
                "startupProbe": {"exec": {"command": ["true"]}},
                "env": [{"name": "A", "value": "b"}],
            },
        }
    ],
}
each_choice = pytest.mark.parametrize(
    ("files", "values"),
    [
        *(pytest.param([path], {}, id=path.stem) for path in chart.values_files()),
        pytest.param([], EVERYTHING, id="everything set"),
    ],
)


@pytest.fixture
def monitors(empty_servers: RealServers) -> Iterator[RealServers]:
    """Return the API server after adding the resource ServiceMonitor."""
    empty_servers.request("POST", CRDS, MONITORS)
    path = "/apis/monitoring.coreos.com/v1"

    def is_served() -> bool:
        try:
            return bool(empty_servers.request("GET", path)["resources"])
        except urllib.error.HTTPError:
            return False

    wait_until(is_served, "ServiceMonitors are served")
    yield empty_servers
    empty_servers.request("DELETE", f"{CRDS}/{MONITORS['metadata']['name']}")


def dry_run(servers: RealServers, manifests: list[Json]) -> subprocess.CompletedProcess[str]:
    """Run `kubectl apply --dry-run=server`, strict about fields."""
    items = {"apiVersion": "v1", "kind": "List", "items": manifests}
    return subprocess.run(
        [
            program("kubectl"),
            f"--kubeconfig={servers.kubeconfig()}",
            "apply",
            "--dry-run=server",
            "--validate=strict",
            "-f",
            "-",
        ],
        input=json.dumps(items),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def pod_of(manifests: list[Json]) -> Json:
    """Return a pod as the Deployment's controller would make it."""
    deployment = the(manifests, "Deployment")
    template = deployment["spec"]["template"]
    metadata = {**template["metadata"], "name": "one", "namespace": deployment["metadata"]["namespace"]}
    return {"apiVersion": "v1", "kind": "Pod", **template, "metadata": metadata}


@each_choice
def test_api_server_accepts_the_rendered_manifests(
    monitors: RealServers, files: list[Path], values: Json
) -> None:
    manifests = rendered(*files, values=values, hooks=True)
    done = dry_run(monitors, [*manifests, pod_of(manifests)])
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("(server dry run)") == len(manifests) + 1
    assert "Warning" not in done.stderr


def test_api_server_accepts_the_plain_manifests(monitors: RealServers) -> None:
    static = ROOT / "deploy/static-pod/kube-scheduler.yaml"
    files = [f"--filename={path}" for path in (*sorted(chart.MANIFESTS.glob("*.yaml")), static)]
    line = [str(program("kubectl")), f"--kubeconfig={monitors.kubeconfig()}", "apply", "--dry-run=server"]
    done = subprocess.run([*line, *files], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_manifest_with_an_unknown_field_is_refused(monitors: RealServers) -> None:
    """The dry run reports an unknown field of the Deployment, of its pod and of the ServiceMonitor."""
    manifests = rendered(values=EVERYTHING)
    the(manifests, "Deployment")["spec"]["template"]["spec"]["containers"][0]["imagePullPolice"] = "x"
    assert 'unknown field "imagePullPolice"' in dry_run(monitors, manifests).stderr
    for monitor in of_kind(manifests, "ServiceMonitor"):
        monitor["spec"]["endpoints"][0]["scheme"] = "ftp"
        assert "Unsupported value" in dry_run(monitors, [monitor]).stderr
    pod = pod_of(rendered())
    pod["spec"]["priorityClassName"] = "none"
    assert "no PriorityClass with name none" in dry_run(monitors, [pod]).stderr
