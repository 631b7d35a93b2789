"""The scope that a plugin declares: which pods are inside."""

from __future__ import annotations

from typing import Any

import pytest
from berth_host.model.declared_scope import scope_test
from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import Pod
from berth_sdk.scope import Scope

KNOWN: dict[tuple[str, str, str], dict[str, Any]] = {
    ("PersistentVolumeClaim", "fast", "default"): {"spec": {"storageClassName": "ssd"}},
    ("PersistentVolumeClaim", "slow", "default"): {"spec": {"storageClassName": "disk"}},
    ("ResourceClaim", "gpu", "default"): {
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu.example.com"}}]}}
    },
    ("ResourceClaim", "either", "default"): {
        "spec": {
            "devices": {
                "requests": [
                    {"firstAvailable": [{"deviceClassName": "x"}, {"deviceClassName": "gpu.example.com"}]}
                ]
            }
        }
    },
    ("ResourceClaim", "nic", "default"): {
        "spec": {"devices": {"requests": [{"exactly": {"deviceClassName": "nic.example.com"}}]}}
    },
}


def find(kind: str, name: str, namespace: str) -> KubeObject | None:
    raw = KNOWN.get((kind, name, namespace))
    return None if raw is None else KubeObject("v1", kind, parsed=raw)


def pod(spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **meta: Any) -> Pod:
    raw = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default", "uid": "u", **meta},
        "spec": {"containers": [{"name": "c", "image": "i"}], **(spec or {})},
        "status": status or {},
    }
    return Pod.from_object(KubeObject.of(raw))


def wants(amounts: dict[str, str]) -> Pod:
    return pod({"containers": [{"name": "c", "image": "i", "resources": {"limits": amounts}}]})


def claims(*names: str, **more: Any) -> Pod:
    entries = [{"name": f"e{i}", "resourceClaimName": name} for i, name in enumerate(names)]
    return pod({"resourceClaims": entries}, **more)


def volumes(*names: str) -> Pod:
    return pod({"volumes": [{"name": n, "persistentVolumeClaim": {"claimName": n}} for n in names]})


GPU = Scope(device_classes=("gpu.example.com",))
SSD = Scope(storage_classes=("ssd",))
TEMPLATE = {"resourceClaims": [{"name": "e", "resourceClaimTemplateName": "t"}]}


@pytest.mark.parametrize(
    ("scope", "subject", "inside"),
    [
        pytest.param((), pod(), False, id="no term: no pod"),
        pytest.param((Scope(),), pod(), True, id="no condition that is known: every pod"),
        pytest.param((Scope(label_selector="a in (b)"),), pod(labels={"a": "b"}), True, id="labels"),
        pytest.param((Scope(label_selector="a in (b)"),), pod(labels={"a": "c"}), False, id="other labels"),
        pytest.param(
            (Scope(annotation_keys=("x", "y")),), pod(annotations={"y": ""}), True, id="annotations"
        ),
        pytest.param((Scope(annotation_keys=("x",)),), pod(annotations={"y": ""}), False, id="no annotation"),
        pytest.param((Scope(namespaces=("a", "default")),), pod(), True, id="namespace"),
        pytest.param((Scope(namespaces=("a",)),), pod(), False, id="other namespace"),
        pytest.param((Scope(resources=("e.com/g",)),), wants({"e.com/g": "0"}), True, id="resource"),
        pytest.param((Scope(resources=("e.com/g",)),), wants({"cpu": "1"}), False, id="other resource"),
        pytest.param((GPU,), claims("gpu"), True, id="device class"),
        pytest.param((GPU,), claims("nic", "either"), True, id="first available"),
        pytest.param((GPU,), claims("nic"), False, id="other device class"),
        pytest.param((GPU,), claims("unknown"), True, id="unknown claim"),
        pytest.param((GPU,), pod(), False, id="no claim"),
        pytest.param((GPU,), pod(TEMPLATE), True, id="claim that is not made yet"),
        pytest.param(
            (GPU,),
            pod(TEMPLATE, {"resourceClaimStatuses": [{"name": "e", "resourceClaimName": "nic"}]}),
            False,
            id="made claim",
        ),
        pytest.param(
            (GPU,), pod(TEMPLATE, {"resourceClaimStatuses": [{"name": "e"}]}), False, id="no claim needed"
        ),
        pytest.param((SSD,), volumes("slow", "fast"), True, id="storage class"),
        pytest.param((SSD,), volumes("slow"), False, id="other storage class"),
        pytest.param((SSD,), volumes("unknown"), True, id="unknown volume claim"),
        pytest.param((SSD,), pod(), False, id="no volume"),
        pytest.param((SSD, GPU), claims("gpu"), True, id="one of the terms"),
        pytest.param(
            (Scope(namespaces=("default",), label_selector="a"),), pod(), False, id="all conditions of a term"
        ),
    ],
)
def test_pod_is_inside_if_it_meets_all_conditions_of_one_term(
    scope: tuple[Scope, ...], subject: Pod, inside: bool
) -> None:
    assert scope_test(scope, find)(subject) is inside
