"""Requests of cluster-autoscaler to an expander: messages made by protoc, with pods and nodes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import kube_wire
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_tools import protoc

SHARE: Final = "gpu-share.berth.io/gpu-milli"
COUNT: Final = "gpu-share.berth.io/gpu-count"
GPUS: Final = "gpu-share.berth.io/gpu"
# The autoscaler's own message, with what it reads and writes.
PROTO: Final = """
syntax = "proto3";
package grpcplugin;
message BestOptionsRequest {
  repeated Option options = 1;
  map<string, bytes> node_map = 2;
  map<string, bytes> node_bytes_map = 3;
}
message BestOptionsResponse { repeated Option options = 1; }
message Option {
  string node_group_id = 1;
  int32 node_count = 2;
  string debug = 3;
  repeated bytes pod = 4;
  repeated bytes pod_bytes = 5;
}
"""


def messages_of(folder: Path) -> dict[str, Any]:
    """Return the classes of the autoscaler's messages. `folder`: for the files of protoc."""
    (folder / "expander.proto").write_text(PROTO)
    made = ["protoc", f"-I{folder}", f"--descriptor_set_out={folder}/out", "expander.proto"]
    assert protoc.main(made) == 0
    files = descriptor_pb2.FileDescriptorSet.FromString((folder / "out").read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"grpcplugin.{name}"))
        for name in ("BestOptionsRequest", "BestOptionsResponse")
    }


def pod(name: str, *, cpu: str = "1", gpus: int = 0, **spec: Any) -> dict[str, Any]:
    """Return the fields of a pod as the autoscaler sends it; `gpus`: it takes half of so many GPUs."""
    requests = {"cpu": cpu, "memory": "1Gi"} | ({SHARE: str(500 * gpus)} if gpus else {})
    metadata: dict[str, Any] = {"name": name, "namespace": "default"}
    if gpus:
        metadata["annotations"] = {SHARE: "500", COUNT: str(gpus)}
    container = {"name": "c", "image": "app", "resources": {"requests": requests}}
    return {"metadata": metadata, "spec": {"containers": [container], "priority": 0, **spec}}


def node(name: str, *, cpu: str = "8", gpus: int = 0, **labels: str) -> dict[str, Any]:
    """Return the fields of a template node."""
    amounts = {"cpu": cpu, "memory": "32Gi", "pods": "110"}
    amounts |= {GPUS: str(gpus), SHARE: str(1000 * gpus)} if gpus else {}
    return {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": amounts}}


def question(
    messages: dict[str, Any],
    options: Sequence[tuple[str, int, Sequence[dict[str, Any]]]],
    nodes: dict[str, dict[str, Any]],
    *,
    form: str = "bytes",
) -> bytes:
    """Return a BestOptionsRequest of (group, number of nodes, pods).

    `form`: bytes, as of a new autoscaler, or messages, as an old one sends it.
    """
    request = messages["BestOptionsRequest"]()
    for group, count, pods in options:
        option = request.options.add(node_group_id=group, node_count=count)
        of = option.pod_bytes if form == "bytes" else option.pod
        of.extend(kube_wire.encode("Pod", one) for one in pods)
    there = request.node_bytes_map if form == "bytes" else request.node_map
    for group, one in nodes.items():
        there[group] = kube_wire.encode("Node", one)
    sent: bytes = request.SerializeToString()
    return sent
