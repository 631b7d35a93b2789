"""A host's answer about its queue -> the text of `kubectl berth queue` without `-o json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from berth_sdk.rfc3339 import parse_time

from berth_host.cli.rendering.columns import columns, count_of
from berth_host.cli.rendering.why import age


def queue_text(answer: Mapping[str, Any], *, is_wide: bool = False) -> str:
    """Return the numbers by part, a table of reasons and a table of pods. `is_wide`: with more columns."""
    total = sum(answer["parts"].values())
    if not total:
        return "no pod waits\n"
    numbers = ", ".join(f"{count} {part}" for part, count in answer["parts"].items() if count)
    sections = [f"{count_of(total, 'pod')}: {numbers}"]
    reasons = [(item["plugin"] or "-", str(item["pods"]), item["text"]) for item in answer["reasons"]]
    if reasons:
        sections.append(columns(("PLUGIN", "PODS", "REASON"), reasons, right=(1,)))
    if answer["reasonCount"] > len(reasons):
        sections[-1] += f"\n{answer['reasonCount'] - len(reasons)} more reasons"
    now_s = parse_time(answer["answeredAt"])
    pods = [_row(item, now_s, is_wide=is_wide) for item in answer["pods"]]
    header: tuple[str, ...] = ("POD", "PART", "AGE", "ATTEMPTS", "PLUGIN", "REASON")
    if is_wide:
        header += ("RETRY", "PRIORITY", "SCHEDULER", "GROUP", "NOMINATED")
    sections.append(columns(header, pods, right=(2, 3)) if pods else "no pod is as asked for")
    # A host of an older version leaves out no first pods.
    last = answer.get("offset", 0) + len(pods)
    if pods and answer["matching"] > last:
        left = count_of(answer["matching"] - last, "more pod")
        sections[-1] += f"\n{left}: raise --limit, or give --offset {last}"
    return "\n\n".join(sections) + "\n"


def _row(item: Mapping[str, Any], now_s: float, *, is_wide: bool) -> tuple[str, ...]:
    reason = item["reason"]
    row = (
        item["key"],
        item["part"],
        age(now_s - parse_time(item["created"])),
        str(item["attempts"]),
        reason["plugin"] or "-",
        reason["text"],
    )
    if not is_wide:
        return row
    retry = "-" if item["retryAt"] is None else f"in {age(parse_time(item['retryAt']) - now_s)}"
    return (
        *row,
        retry,
        str(item["priority"]),
        item["schedulerName"],
        item["group"] or "-",
        item["nominatedNode"] or "-",
    )
