"""Clusters with GPUs for tests of GpuShare: manifests, the example's configuration, the outside check."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from support.examples import EXAMPLES, example
from support.hosts import World, node, pod
from support.plugin_processes import PluginProcess

PACKAGE = EXAMPLES / "gpu_share"
SERVED = "berth_gpu_share:GpuShare"
SHARE = "gpu-share.berth.io/"
check: Any = example("openb/check_placements.py")
Manifest = dict[str, Any]


def gpu_node(name: str, gpus: int, *, cpu: str = "64", model: str = "T4") -> Manifest:
    """Return a node with GPUs, or with none."""
    made = node(name, cpu=cpu, memory="256Gi", labels={SHARE + "model": model} if gpus else {})
    if gpus:
        made["status"]["allocatable"] |= {SHARE + "gpu": str(gpus), SHARE + "gpu-milli": str(1000 * gpus)}
    return made


def gpu_pod(name: str, milli: int, count: int = 1, *, model: str = "", **more: Any) -> Manifest:
    """Return a pod that wants `milli` of each of `count` GPUs."""
    made = pod(name, **more)
    told = {SHARE + "gpu-milli": str(milli), SHARE + "gpu-count": str(count)}
    made["metadata"]["annotations"] = told | ({SHARE + "gpu-model": model} if model else {})
    amounts = {SHARE + "gpu": str(count), SHARE + "gpu-milli": str(count * milli)}
    (container,) = made["spec"]["containers"]
    container["resources"]["requests"] |= amounts
    container["resources"]["limits"] = amounts
    return made


def configuration(*, permit: str = "", **place: Any) -> str:
    """Example's own file, with the plugin at another place, and a Permit plugin if one is named."""
    scheduler, own = yaml.safe_load_all((PACKAGE / "scheduler.yaml").read_text(encoding="utf-8"))
    if permit:
        scheduler["profiles"][0]["plugins"]["permit"] = {"enabled": [{"name": permit}]}
    (plugin,) = own["plugins"]
    del plugin["command"]
    plugin |= place
    if "inProcess" in place:
        del plugin["required"]
    else:  # what is placed counts here, not how fast
        own["cycleBudget"] = "60s"
        plugin["points"] = {
            point: {"deadline": "10s"} for point in ("filter", "score", "reserve", "unreserve", "preBind")
        }
    return str(yaml.safe_dump_all([scheduler, own]))


def gpu_process(socket_path: Path) -> PluginProcess:
    """Return the plugin in a process of its own."""
    return PluginProcess(
        socket_path, SERVED, environment={"PYTHONPATH": f"{PACKAGE}:{EXAMPLES.parent}/tests"}
    )


def placements(world: World) -> dict[str, tuple[str, str]]:
    """(node, GPUs) of every pod, empty strings for one that is pending."""
    key = SHARE + "gpu-index"
    return {
        item.ref.name: (
            item.get("spec.nodeName") or "",
            item.get("metadata.annotations", {}).get(key, "") if item.get("spec.nodeName") else "",
        )
        for item in world.server.list("pods")
    }


def violations(
    folder: Path, manifests: Iterable[Manifest], placed: Mapping[str, tuple[str, str]]
) -> list[str]:
    """Return the findings of the check from outside on these placements."""
    (folder / "manifests").mkdir(exist_ok=True)
    listed = {"kind": "List", "items": list(manifests)}
    (folder / "manifests" / "all.json").write_text(json.dumps(listed))
    lines = [
        f'default/{name},{node_name},"{SHARE}gpu-index={index}"\n'
        if index
        else f"default/{name},{node_name}\n"
        for name, (node_name, index) in placed.items()
    ]
    (folder / "placements.csv").write_text("".join(lines))
    result = check.read_placements(folder / "placements.csv")
    return list(check.violations(folder / "manifests", result, shared_gpus=True))
