"""Why a pod is not on one node: the verdicts on that node in its latest attempt."""

from __future__ import annotations

import difflib

import numpy as np
from berth_sdk.pod import Pod
from berth_sdk.status import Status

from berth_host.app.answers.answering_host import AnsweringHost
from berth_host.app.answers.whereabouts import Whereabouts
from berth_host.explain.diagnosis import Diagnosis, Outcome
from berth_host.explain.explanation import FIT_PLUGIN, NO_REASON
from berth_host.explain.nearest_fit import grouped, lacking
from berth_host.explain.pod_answer import OnNode


def on_node(host: AnsweringHost, pod: Pod, where: Whereabouts, latest: Diagnosis | None, node: str) -> OnNode:
    """`latest`: the attempt to look at; None: the pod was not tried."""
    if where.node == node:
        return OnNode(node=node, verdict="bound", text=f"it is on {node}")
    if where.attempt is not None and where.attempt.node_name == node:
        return OnNode(node=node, verdict="waiting", text=f"{node} is reserved for it")
    found = None if latest is None else _found_out(host, pod, latest, node)
    if host.queue.nominator.node_of(pod.uid) == node:
        text = f"{node} is promised to it: it goes there when its victims have left, unless it fits elsewhere"
        reasons = found.reasons if found else ()
        plugin = found.plugin if found else ""
        return OnNode(node=node, verdict="nominated", text=text, plugin=plugin, reasons=reasons)
    if found is not None and found.verdict == "rejected":
        return found
    if host.objects.node(node) is None:
        return OnNode(node=node, verdict="unknown", text=_unknown_text(host, node))
    return found or OnNode(node=node, verdict="untried", text="the pod has not been tried yet")


def _found_out(host: AnsweringHost, pod: Pod, latest: Diagnosis, node: str) -> OnNode:
    names = latest.slot_names
    slots = () if names is None else np.flatnonzero(names == node)
    for item in latest.rejections:
        if np.isin(slots, item.slots()).any():
            return _rejected(host, pod, item.status, node)
    if latest.outcome is Outcome.BOUND or latest.node_name:
        return _not_chosen(latest, node)
    if names is None:
        return OnNode(
            node=node, verdict="notKept", text=f"the attempt ended before its nodes: {latest.message}"
        )
    if not len(slots):
        return OnNode(node=node, verdict="new", text=f"{node} came after the last attempt")
    return OnNode(node=node, verdict="notKept", text=f"{node} was not looked at")


def _rejected(host: AnsweringHost, pod: Pod, status: Status, node: str) -> OnNode:
    text = f"{status.plugin} rejected {node}: {', '.join(status.reasons) or NO_REASON}"
    if status.plugin == FIT_PLUGIN:
        info, known = host.cache.node_info(node), host.objects.node(node)
        if info is not None and known is not None:
            used = {**info.requested, "pods": len(info.pods)}
            text += "".join(f"; {item.text}" for item in grouped(pod, [(node, lacking(pod, known, used))]))
    return OnNode(
        node=node, verdict="rejected", text=text, plugin=status.plugin, reasons=tuple(status.reasons)
    )


def _not_chosen(latest: Diagnosis, node: str) -> OnNode:
    """The attempt found a node: only the best ones are kept."""
    scores = latest.top_scores
    chosen = next((item for item in scores if item.node_name == latest.node_name), None)
    own = next((item for item in scores if item.node_name == node), None)
    if own is not None and chosen is not None:
        text = f"the pod fits on {node}, which scored {own.total}; {chosen.node_name} scored {chosen.total}"
        return OnNode(node=node, verdict="fits", text=text)
    went = "the pod went to" if latest.outcome is Outcome.BOUND else "the attempt chose"
    text = f"{went} {latest.node_name}; "
    if latest.feasible_count <= max(1, len(scores)):
        return OnNode(node=node, verdict="rejected", text=f"{text}{node} did not pass the filters")
    names = ", ".join(item.node_name for item in scores)
    return OnNode(
        node=node, verdict="notKept", text=f"{text}{node} was rejected, or scored less than {names}"
    )


def _unknown_text(host: AnsweringHost, node: str) -> str:
    near = difflib.get_close_matches(node, [known.name for known in host.objects.nodes()], n=3)
    return f"there is no node {node}" + (f": did you mean {', '.join(near)}?" if near else "")
