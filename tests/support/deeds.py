"""All that a scheduler does to a cluster, deed by deed, as something that a test can wait for.

For tests of what the chart's rights allow (tests/cluster/test_rbac.py): berth runs as `Deployed`, with
`VALUES`, and `Meddles` lets the test come in between.
"""

from __future__ import annotations

import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from support import device_objects as devices
from support.chart import Json
from support.deployed import Deployed, token_of
from support.meddles import BIND, FAIL, HOLD, LABEL, STALE
from support.waiting import wait_until

READER: Final = {
    "apiVersion": "v1",
    "kind": "ServiceAccount",
    "metadata": {"name": "reader", "namespace": "default"},
}


def _named(*others: str) -> list[Json]:
    """Return the plugins that are asked at a point: ours first."""
    return [{"name": name} for name in ("Meddles", *others)]


VALUES: Final[Json] = {
    "config": {
        "podInitialBackoffSeconds": 1,
        "leaderElection": {"leaseDuration": "6s", "renewDeadline": "4s", "retryPeriod": "500ms"},
        "profiles": [
            {
                "schedulerName": "berth",
                "plugins": {
                    "preBind": {
                        "disabled": [{"name": "*"}],
                        "enabled": _named("VolumeBinding", "DynamicResources"),
                    },
                    "bind": {"disabled": [{"name": "*"}], "enabled": _named("DefaultBinder")},
                },
            }
        ],
    },
    "plugins": [{"name": "Meddles", "inProcess": "support.meddles:Meddles"}],
    "metrics": {"readers": [{"kind": "ServiceAccount", "name": "reader", "namespace": "default"}]},
    "answers": {"readers": [{"kind": "ServiceAccount", "name": "reader", "namespace": "default"}]},
}


class Deeds:
    """The deeds of a scheduler, each with objects of its own, called after `tag`.

    A deed sets its objects up and returns the question whether the scheduler has done it.
    """

    def __init__(self, berth: Deployed, folder: Path) -> None:
        self._berth = berth
        self.leader = berth.lead()
        self._servers = berth.servers
        self._folder = folder

    def prepare(self) -> None:
        """The cluster: a node with devices, one for preemption; classes."""
        for name, cpu in (("n1", "64"), ("small", "1")):
            allocatable = {"cpu": cpu, "memory": "64Gi", "pods": "500"}
            labels = {"kubernetes.io/hostname": name, "small": str(name == "small").lower()}
            node = _object("Node", name, labels=labels, status={"allocatable": allocatable})
            node["status"]["capacity"] = allocatable
            self._servers.create("/api/v1/nodes", node)
        slices = [devices.device(f"d{number}") for number in range(20)]
        self._make("resource.k8s.io/v1/resourceslices", devices.resource_slice("n1", slices))
        classes = (
            devices.device_class(),
            devices.device_class("extended", extendedResourceName="example.com/gpu"),
        )
        for one in classes:
            self._make("resource.k8s.io/v1/deviceclasses", one)
        for name, provisioner in (("static", "kubernetes.io/no-provisioner"), ("made", "example.com/maker")):
            storage: Json = _object("StorageClass", name, api="storage.k8s.io/v1")
            storage |= {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
            self._make("storage.k8s.io/v1/storageclasses", storage)
        high = _object("PriorityClass", "high", api="scheduling.k8s.io/v1") | {"value": 1000}
        self._make("scheduling.k8s.io/v1/priorityclasses", high)

    # --- deeds ---------------------------------------------------------------------------------

    def bind(self, tag: str) -> Callable[[], bool]:
        """A pod gets its node."""
        pod = self._pod(f"bind-{tag}")
        return lambda: self._node_of(pod) == "n1"

    def say_so(self, tag: str) -> Callable[[], bool]:
        """There is an event about it."""
        pod = self._pod(f"say-{tag}")
        return lambda: any(event["reason"] == "Scheduled" for event in self._events(pod))

    def say_again(self, tag: str) -> Callable[[], bool]:
        """The same event twice is a series: of a pod that is tried again because another one went."""
        pod = self._pod(f"again-{tag}", cpu="1k")
        wait_until(lambda: self._events(pod), "the event is there")
        other = self._pod(f"other-{tag}")
        wait_until(lambda: self._node_of(other), f"{other} is bound")
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
        self._servers.request("DELETE", f"/api/v1/namespaces/default/pods/{other}", body)
        return lambda: any(event.get("series") for event in self._events(pod))

    def give_the_reason(self, tag: str) -> Callable[[], bool]:
        """A pod that fits nowhere says so in its status."""
        pod = self._pod(f"large-{tag}", cpu="1k")
        return lambda: any(
            condition["type"] == "PodScheduled" and condition["status"] == "False"
            for condition in self._status(pod).get("conditions", ())
        )

    def preempt(self, tag: str) -> Callable[[], bool]:
        """A pod of low priority goes; the one that a budget protects stays."""
        victim = self._pod(f"victim-{tag}", cpu="400m", nodeSelector={"small": "true"})
        kept = self._pod(f"kept-{tag}", cpu="400m", labels={"kept": tag}, nodeSelector={"small": "true"})
        wait_until(lambda: self._node_of(victim) and self._node_of(kept), "the small node is full")
        budget = _object("PodDisruptionBudget", f"kept-{tag}", api="policy/v1")
        budget["spec"] = {"minAvailable": 1, "selector": {"matchLabels": {"kept": tag}}}
        self._make("policy/v1/namespaces/default/poddisruptionbudgets", budget)
        self._pod(f"high-{tag}", cpu="400m", nodeSelector={"small": "true"}, priorityClassName="high")

        def done() -> bool:
            found = self._berth.get(f"/api/v1/namespaces/default/pods/{victim}")
            is_gone = found is None or "deletionTimestamp" in found["metadata"]
            other = self._berth.get(f"/api/v1/namespaces/default/pods/{kept}") or {"metadata": {}}
            return is_gone and "deletionTimestamp" not in other["metadata"]

        return done

    def bind_a_volume(self, tag: str, *, held: bool = False) -> Callable[[], bool]:
        """A volume that waited for the pod's node is the claim's. `held`: somebody changes it
        meanwhile.
        """
        volume = _object("PersistentVolume", f"v-{tag}")
        volume["spec"] = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "static",
            "hostPath": {"path": "/data"},
        }
        self._servers.create("/api/v1/persistentvolumes", volume)
        # As the controller of volumes would, which does not run.
        status = {"status": {"phase": "Available"}}
        kind = "application/merge-patch+json"
        self._servers.request("PATCH", f"/api/v1/persistentvolumes/v-{tag}/status", status, content_type=kind)
        self._claim(f"v-{tag}", "static")
        pod = self._pod(f"volume-{tag}", claim=f"v-{tag}", held=held)
        path = f"/api/v1/persistentvolumes/v-{tag}"
        if held:
            self._meddle(pod, path)
        return lambda: "claimRef" in (self._berth.get(path) or {"spec": {}})["spec"]

    def choose_a_node_for_a_claim(self, tag: str, *, held: bool = False) -> Callable[[], bool]:
        """A claim learns for which node its volume is to be made."""
        self._claim(f"m-{tag}", "made")
        pod = self._pod(f"made-{tag}", claim=f"m-{tag}", held=held)
        path = f"/api/v1/namespaces/default/persistentvolumeclaims/m-{tag}"
        if held:
            self._meddle(pod, path)
        name = "volume.kubernetes.io/selected-node"
        return lambda: name in ((self._berth.get(path) or {})["metadata"].get("annotations") or {})

    def allocate(self, tag: str, *, held: bool = False, protected: bool = False) -> Callable[[], bool]:
        """A claim gets a device. `protected`: it has the finalizer already, so its status comes first."""
        finalizers = ["resource.kubernetes.io/delete-protection"] if protected else []
        claim = devices.claim(f"c-{tag}", devices.exactly(), metadata={"finalizers": finalizers})
        self._make("resource.k8s.io/v1/namespaces/default/resourceclaims", claim)
        pod = self._pod(
            f"device-{tag}", held=held, resourceClaims=[{"name": "c", "resourceClaimName": f"c-{tag}"}]
        )
        path = f"/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/c-{tag}"
        if held:
            self._meddle(pod, path)
        return lambda: "allocation" in ((self._berth.get(path) or {}).get("status") or {})

    def change_a_claim_too_late(self, tag: str) -> Callable[[], bool]:
        """A claim changes between a plugin's answer and the write: the server says so."""
        claim = devices.claim(f"late-{tag}", devices.exactly())
        self._make("resource.k8s.io/v1/namespaces/default/resourceclaims", claim)
        pod = self._pod(f"late-{tag}", labels={LABEL: STALE})
        return lambda: self._node_of(pod) == "n1"

    def make_a_claim(self, tag: str) -> Callable[[], bool]:
        """A pod that asks for a device as a resource gets a claim."""
        pod = self._pod(f"extended-{tag}", extended=True)
        return lambda: self._node_of(pod) == "n1" and "extendedResourceClaimStatus" in self._status(pod)

    def take_a_claim_back(self, tag: str) -> Callable[[], bool]:
        """Where binding fails the claim goes again; more than one is never there."""
        pod = self._pod(f"back-{tag}", extended=True, labels={LABEL: FAIL})
        path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"

        def claims() -> set[str]:
            items = (self._berth.get(path) or {})["items"]
            return {one["metadata"]["name"] for one in items if one["metadata"]["name"].startswith(pod)}

        wait_until(claims, "the claim is made")
        first = claims()
        return lambda: not first & claims()

    def believe_a_plugin(self, tag: str) -> Callable[[], bool]:
        """A pod that a plugin has bound is read back."""
        pod = self._pod(f"own-{tag}", labels={LABEL: BIND})
        wait_until((self._folder / f"{pod}.held").exists, f"{pod} is in Bind")
        binding = {"metadata": {"name": pod}, "target": {"kind": "Node", "name": "n1"}}
        path = f"/api/v1/namespaces/default/pods/{pod}/binding"
        self._servers.request("POST", path, {"apiVersion": "v1", "kind": "Binding", **binding})
        (self._folder / f"{pod}.go").touch()
        return lambda: any(event["reason"] == "Scheduled" for event in self._events(pod))

    def show_metrics(self, tag: str) -> Callable[[], bool]:
        """Who may read the metrics gets them, by a token that nobody has shown before."""
        token = token_of(self._servers, "reader", "default")
        return lambda: _status_of(self.leader.port, "/metrics", token) == 200

    def say_where(self, tag: str) -> Callable[[], bool]:
        """A question about a pod of a class of the cluster is answered."""
        pod = _object("Pod", f"asked-{tag}")
        container = {"name": "c", "image": "app"}
        pod["spec"] = {"schedulerName": "berth", "priorityClassName": "high", "containers": [container]}
        token = token_of(self._servers, "reader", "default")
        body = json.dumps(pod).encode()
        return lambda: _status_of(self.leader.port, "/berth/v1/fit", token, body) == 200

    # --- objects -------------------------------------------------------------------------------

    def remove_pods(self) -> None:
        """So that a failed deed is not tried again."""
        path = "/api/v1/namespaces/default/pods"
        for pod in (self._berth.get(path) or {})["items"]:
            name = pod["metadata"]["name"]
            (self._folder / f"{name}.go").touch()
            body = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
            self._servers.request("DELETE", f"{path}/{name}", body)

    def _pod(
        self,
        name: str,
        *,
        cpu: str = "10m",
        labels: Mapping[str, str] | None = None,
        claim: str = "",
        held: bool = False,
        extended: bool = False,
        **spec: Any,
    ) -> str:
        wants: Json = {"cpu": cpu, **({"example.com/gpu": "1"} if extended else {})}
        resources = {"requests": wants, "limits": {key: wants[key] for key in wants if "/" in key}}
        pod = _object("Pod", name, labels={**(labels or {}), **({LABEL: HOLD} if held else {})})
        pod["spec"] = {
            "schedulerName": "berth",
            "nodeSelector": {"small": "false"},
            "containers": [{"name": "c", "image": "app", "resources": resources}],
            **spec,
        }
        if claim:
            pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
        self._servers.create("/api/v1/namespaces/default/pods", pod)
        return name

    def _claim(self, name: str, storage_class: str) -> None:
        claim = _object("PersistentVolumeClaim", name)
        claim["spec"] = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": "1Gi"}},
        }
        self._servers.create("/api/v1/namespaces/default/persistentvolumeclaims", claim)

    def _make(self, where: str, body: Json) -> None:
        self._servers.create(f"/apis/{where}", body)

    def _meddle(self, pod: str, path: str) -> None:
        """Change the object while the pod is held, and let the scheduler see that before it goes on."""
        wait_until((self._folder / f"{pod}.held").exists, f"{pod} is in PreBind")
        patch = {"metadata": {"labels": {"changed": "meanwhile"}}}
        self._servers.request("PATCH", path, patch, content_type="application/merge-patch+json")
        time.sleep(0.5)  # the change travels by a watch, of which nothing outside tells
        (self._folder / f"{pod}.go").touch()

    def _node_of(self, pod: str) -> str:
        found = self._berth.get(f"/api/v1/namespaces/default/pods/{pod}") or {"spec": {}}
        node: str = found["spec"].get("nodeName", "")
        return node

    def _status(self, pod: str) -> Json:
        status: Json = (self._berth.get(f"/api/v1/namespaces/default/pods/{pod}") or {}).get("status") or {}
        return status

    def _events(self, pod: str) -> list[Json]:
        items = (self._berth.get("/apis/events.k8s.io/v1/namespaces/default/events") or {})["items"]
        return [event for event in items if (event.get("regarding") or {}).get("name") == pod]


def _object(kind: str, name: str, *, api: str = "v1", labels: Any = None, **more: Any) -> Json:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, "labels": labels or {}}, **more}


def _status_of(port: int, path: str, token: str, body: bytes | None = None) -> int:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    headers = {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(f"https://127.0.0.1:{port}{path}", data=body, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=20, context=context) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as err:
        return err.code
