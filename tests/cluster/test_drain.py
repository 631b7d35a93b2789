"""PodDisruptionBudgets of a drain against the eviction API of a real API server, asked with dryRun."""

from __future__ import annotations

import itertools
import urllib.error
from typing import Any, Final

import pytest
from berth_bench.versus.real_servers import RealServers
from berth_host.questions.disruptions import Disruptions
from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import Pod

pytestmark = pytest.mark.long

PODS: Final = "/api/v1/namespaces/default/pods"
BUDGETS: Final = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
SINCE: Final = "2026-01-01T00:00:00Z"
MERGE: Final = "application/merge-patch+json"
STATES: Final[dict[str, dict[str, Any]]] = {
    "ready": {"phase": "Running", "startTime": SINCE, "conditions": [{"type": "Ready", "status": "True"}]},
    "unready": {"phase": "Running", "startTime": SINCE, "conditions": [{"type": "Ready", "status": "False"}]},
    "starting": {"phase": "Pending", "startTime": SINCE},
}
SPECS: Final[dict[str, dict[str, Any]]] = {
    "usual": {"minAvailable": 2},
    "unhealthy": {"minAvailable": 2, "unhealthyPodEvictionPolicy": "AlwaysAllow"},
}
COUNTS: Final[dict[str, dict[str, Any]]] = {
    "free": {"disruptionsAllowed": 1, "currentHealthy": 3, "desiredHealthy": 2, "observedGeneration": 9},
    "full": {"disruptionsAllowed": 0, "currentHealthy": 2, "desiredHealthy": 2, "observedGeneration": 9},
    "short": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 2, "observedGeneration": 9},
    "new": {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0},
    "idle": {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "observedGeneration": 9},
}


def evicted(servers: RealServers, name: str) -> bool:
    """Return True if the API server would evict the pod now."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": "default"},
        "deleteOptions": {"dryRun": ["All"]},
    }
    try:
        answer = servers.request("POST", f"{PODS}/{name}/eviction?dryRun=All", body)
    except urllib.error.HTTPError as err:
        with err:
            assert err.code in (403, 429, 500), err.read()
        return False
    return bool(answer["status"] == "Success")


def add_pod(servers: RealServers, name: str, app: str, status: dict[str, Any]) -> None:
    spec = {"nodeName": "n1", "containers": [{"name": "c", "image": "app"}]}
    metadata = {"name": name, "labels": {"app": app, "any": "yes"}}
    servers.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    servers.request("PATCH", f"{PODS}/{name}/status", {"status": status}, content_type=MERGE)


def add_budget(
    servers: RealServers, name: str, spec: dict[str, Any], status: dict[str, Any], **labels: str
) -> None:
    content = {"selector": {"matchLabels": labels}, **spec}
    made = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}}
    servers.create(BUDGETS, made | {"spec": content})
    servers.request("PATCH", f"{BUDGETS}/{name}/status", {"status": status}, content_type=MERGE)


def test_pods_are_refused_that_the_api_server_does_not_evict(empty_servers: RealServers) -> None:
    servers = empty_servers
    for (kind, spec), (count, status) in itertools.product(SPECS.items(), COUNTS.items()):
        app = f"{kind}-{count}"
        add_budget(servers, app, spec, status, app=app)
        for state, of_pod in STATES.items():
            add_pod(servers, f"{app}-{state}", app, of_pod)
    add_budget(servers, "first", {"minAvailable": 1}, COUNTS["free"], app="two")
    add_budget(servers, "second", {"minAvailable": 1}, COUNTS["free"], app="two")
    add_pod(servers, "two-ready", "two", STATES["ready"])
    add_pod(servers, "none-ready", "none", STATES["ready"])

    budgets = [
        KubeObject.of(item | {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"})
        for item in servers.request("GET", BUDGETS)["items"]
    ]
    decided: dict[str, bool] = {}
    for item in servers.request("GET", PODS)["items"]:
        pod = Pod.from_object(item | {"apiVersion": "v1", "kind": "Pod"})
        # Anew for each pod: a dry run counts no eviction.
        decided[pod.name] = Disruptions(budgets, lambda _: ()).evict(pod) is None
    assert decided == {name: evicted(servers, name) for name in decided}
    assert len(decided) == len(SPECS) * len(COUNTS) * len(STATES) + 2
    assert {True, False} == set(decided.values())
