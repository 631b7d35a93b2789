"""Builds the message of an unschedulable pod, which users, Kubernetes Events and autoscalers read.

Called when no node fits, or when Reserve or Permit rejects the chosen node.
Source: kube-scheduler `framework/types.go` (FitError.Error), v1.36: entries sort as strings.
"""

from __future__ import annotations

from collections.abc import Mapping

NO_NODES = "no nodes available to schedule pods"


def fit_error_message(
    node_count: int,
    reasons: Mapping[str, int],
    *,
    pre_filter_message: str = "",
    post_filter_message: str = "",
) -> str:
    """Return `0/<node_count> nodes are available: ...`. `reasons`: the number of nodes by reason.

    >>> fit_error_message(3, {"Insufficient cpu": 2, "node(s) were unschedulable": 1})
    '0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu.'
    """
    text = f"0/{node_count} nodes are available:"
    if pre_filter_message:
        text += f" {pre_filter_message}."
    elif reasons:
        text += f" {', '.join(sorted(f'{count} {reason}' for reason, count in reasons.items()))}."
    if post_filter_message:
        text += f" {post_filter_message}"
    return text
