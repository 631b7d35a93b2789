"""The requests and limits of pods: the text of `/metrics/resources`.

Source: kube-scheduler `metrics/resources/resources.go`, v1.36.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from berth_sdk.errors import BerthError
from berth_sdk.json.objects import finish, object_steps
from berth_sdk.pod import Pod
from berth_sdk.pod_requests import requests_of

from berth_host.metrics.families import POD_LIMIT, POD_REQUEST
from berth_host.metrics.family import Family

_PODS_PER_TURN: Final = 50
_BYTES: Final = frozenset({"memory", "storage", "ephemeral-storage"})


async def pod_resources_text(pods: Iterable[Pod]) -> bytes:
    """Return the text of both families for all of `pods`. Other tasks of the loop run meanwhile."""
    requests: list[str] = []
    limits: list[str] = []
    for i, pod in enumerate(pods):
        if i % _PODS_PER_TURN == _PODS_PER_TURN - 1:
            await asyncio.sleep(0)
        requests += _lines(POD_REQUEST, pod, pod.requests)
        limits += _lines(POD_LIMIT, pod, _limits(pod))
    text = "".join(
        f"# HELP {family.name} [{family.stability}] {family.help}\n"
        f"# TYPE {family.name} {family.kind.value}\n{''.join(lines)}"
        for family, lines in ((POD_LIMIT, limits), (POD_REQUEST, requests))
        if lines
    )
    return text.encode()


def _lines(family: Family, pod: Pod, amounts: Mapping[str, int]) -> Iterator[str]:
    # Not at the top: the first scrape imports it, and not the start.
    from prometheus_client.utils import floatToGoString

    as_go: Callable[[float], str] = floatToGoString
    where = f'namespace="{pod.namespace}",node="{pod.node_name}",pod="{pod.name}",priority="{pod.priority}"'
    for resource, amount in sorted(amounts.items()):
        if not amount:
            continue
        unit, value = _measured(resource, amount)
        what = f'resource="{resource}",scheduler="{pod.scheduler_name}",unit="{unit}"'
        yield f"{family.name}{{{where},{what}}} {as_go(value)}\n"


def _measured(resource: str, amount: int) -> tuple[str, float]:
    """Return unit and value; `amount` of CPU is in thousandths of a core."""
    if resource == "cpu":
        return "cores", amount / 1000
    if resource in _BYTES or resource.startswith("hugepages-"):
        return "bytes", amount
    return "integer", amount


def _limits(pod: Pod) -> Mapping[str, int]:
    """Return the limits of a pod, added up as requests are. The overhead counts only if there is a limit."""
    if pod.object is None:
        return {}
    # The cache keeps a bound pod as bytes; a parsed form would stay in memory.
    spec = (
        pod.object.parsed if pod.object.is_parsed else finish(object_steps("Pod", pod.object.raw, json.loads))
    ).get("spec") or {}
    wanted = {**spec, "overhead": {}}
    for field in ("containers", "initContainers"):
        wanted[field] = [_limited(container) for container in spec.get(field) or ()]
    if "resources" in spec:
        wanted["resources"] = _limited(spec)["resources"]
    try:
        limits = dict(requests_of(wanted, None).requests)
        if limits and spec.get("overhead"):
            overhead = requests_of({"overhead": spec["overhead"], "containers": []}, None).requests
            limits = {name: amount + overhead.get(name, 0) for name, amount in limits.items()}
    except BerthError:
        return {}  # the API server would have refused this pod
    return limits


def _limited(holder: Mapping[str, Any]) -> dict[str, Any]:
    resources = holder.get("resources") or {}
    return {**holder, "resources": {"requests": resources.get("limits") or {}}}
