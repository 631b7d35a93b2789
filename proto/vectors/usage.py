"""Write usage.json: pods as summaries, and what they come to on a node.

    python proto/write_vectors.py usage

The summaries of `pods` come from the SDK's reader of core/v1 Pods, the sums from the host's own code.
`tests/contract/test_vectors.py` compares them with the SDK's sums.
"""

from __future__ import annotations

from typing import Any

from berth_host.cache.node_info import NodeInfo
from berth_sdk.kube_object import KubeObject
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.pod import Pod
from berth_sdk.wire.records import encode_pod, encode_usage
from vectors.writing import written


def document() -> dict[str, Any]:
    """Return the content of usage.json."""
    pods = {name: _pod(name, spec) for name, spec in _SPECS.items()}
    return {
        "source": "PodSummary and NodeUsage in common.proto; written by proto/write_vectors.py",
        "pods": [
            {"name": name, "manifest": manifest, "summary": written(_amounts(pod))}
            for name, (manifest, pod) in pods.items()
        ],
        "nodes": [
            {"name": name, "pods": list(names), "usage": written(_usage([pods[one][1] for one in names]))}
            for name, names in _NODES.items()
        ],
        "changes": [
            {
                "name": name,
                "usage": written(_usage([pods[one][1] for one in here])),
                "removed": list(gone),
                "added": list(come),
                "after": written(
                    _usage([pods[one][1] for one in (*(p for p in here if p not in gone), *come)])
                ),
            }
            for name, here, gone, come in _CHANGES
        ],
    }


def _container(cpu: str | None = None, memory: str | None = None, **fields: Any) -> dict[str, Any]:
    requests = {key: value for key, value in (("cpu", cpu), ("memory", memory)) if value is not None}
    requests.update(fields.pop("others", {}))
    return {"name": "c", "image": "example.com/app:1", "resources": {"requests": requests}, **fields}


_SPECS: dict[str, dict[str, Any]] = {
    "plain": {"containers": [_container("500m", "1Gi")]},
    "no-requests": {"containers": [_container()]},
    "cpu-alone": {"containers": [_container("250m")]},
    "two-containers": {"containers": [_container("100m", "64Mi"), _container()]},
    "explicit-zero": {"containers": [_container("0", "0")]},
    "init-larger": {"initContainers": [_container("2", "128Mi")], "containers": [_container("500m", "1Gi")]},
    "sidecar": {
        "initContainers": [_container("100m", "32Mi", restartPolicy="Always"), _container("1", "16Mi")],
        "containers": [_container("200m", "64Mi")],
    },
    "overhead": {"containers": [_container("500m", "1Gi")], "overhead": {"cpu": "250m", "memory": "120Mi"}},
    "extended": {"containers": [_container("1", "1Gi", others={"example.com/gpu": "2"})]},
    "ports": {"containers": [_container("100m", "64Mi", ports=[{"containerPort": 80, "hostPort": 8080}])]},
    "same-port": {
        "containers": [_container("100m", "64Mi", ports=[{"containerPort": 81, "hostPort": 8080}])]
    },
    "pod-level": {"resources": {"requests": {"cpu": "3", "memory": "4Gi"}}, "containers": [_container("1")]},
}
_NODES: dict[str, tuple[str, ...]] = {
    "no pods": (),
    "one pod": ("plain",),
    "defaults for what is not requested": ("no-requests", "cpu-alone", "two-containers"),
    "an explicit zero gets no default": ("explicit-zero",),
    "init containers, sidecars, overhead": ("init-larger", "sidecar", "overhead"),
    "extended resources and pod-level requests": ("extended", "pod-level"),
    "a host port of two pods is one": ("ports", "same-port"),
}
_CHANGES: tuple[tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...]], ...] = (
    ("one goes", ("plain", "no-requests"), ("plain",), ()),
    ("one comes", ("plain",), (), ("cpu-alone",)),
    ("one goes, two come", ("plain", "extended"), ("extended",), ("sidecar", "ports")),
)


def _pod(name: str, spec: dict[str, Any]) -> tuple[dict[str, Any], Pod]:
    metadata = {"namespace": "default", "name": name, "uid": f"uid-{name}"}
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    return manifest, Pod.from_object(KubeObject.of(manifest))


def _amounts(pod: Pod) -> pb.PodSummary:
    """Return the reference and the amounts of a pod, without the rest of its summary."""
    whole = encode_pod(pod)
    return pb.PodSummary(
        ref=whole.ref,
        requests=whole.requests,
        non_zero_requests=whole.non_zero_requests,
        score_requests=whole.score_requests,
        host_ports=whole.host_ports,
    )


def _usage(pods: list[Pod]) -> pb.NodeUsage:
    node = NodeInfo("n0")
    for pod in pods:
        node.add_pod(pod)
    return encode_usage(node.usage())
