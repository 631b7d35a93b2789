"""A host's answer about its plugins -> the text of `kubectl berth plugins` without `-o`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from berth_host.cli.rendering.columns import columns


def running_plugins_text(answer: Mapping[str, Any]) -> str:
    """One row per plugin, attached ones first; then the problems, one line each."""
    listed = sorted(answer["plugins"], key=lambda item: (item["runs"] == "inProcess", item["name"]))
    rows = [
        (
            item["name"],
            "in process" if item["attachment"] is None else item["attachment"]["place"],
            "" if item["attachment"] is None else item["attachment"]["state"],
            "" if item["attachment"] is None else item["attachment"]["transport"],
            str(sum(call["calls"] for call in item["calls"])),
            _mean_ms(item),
            str(sum(sum(call["failures"].values()) for call in item["calls"]) or "-"),
            ", ".join(dict.fromkeys(point for profile in item["profiles"] for point in profile["points"])),
        )
        for item in listed
    ]
    header = ("NAME", "RUNS", "STATE", "TRANSPORT", "CALLS", "MS/CALL", "FAILED", "POINTS")
    parts = [columns(header, rows, right=(4, 5, 6))]
    problems = [line for item in listed for line in _problems(item)]
    if answer["missing"]:
        problems.append(f"not in this build: {', '.join(answer['missing'])}")
    if problems:
        parts.append("\n".join(problems))
    return "\n\n".join(parts) + "\n"


def _mean_ms(item: Mapping[str, Any]) -> str:
    calls = sum(call["calls"] for call in item["calls"])
    return f"{sum(call['totalMs'] for call in item['calls']) / calls:.3f}" if calls else "-"


def _problems(item: Mapping[str, Any]) -> list[str]:
    name, attachment = item["name"], item["attachment"]
    lines = []
    if not item["available"]:
        what = "required, so pods in its scope fail" if item["required"] else "its policies apply"
        reason = (attachment or {}).get("reason") or "it cannot be asked"
        lines.append(f"{name} is not attached ({what}): {reason}")
    if attachment is not None:
        lines += [f"{name}: {warning}" for warning in attachment["warnings"]]
    for call in item["calls"]:
        said = [f"{count} {kind}" for kind, count in call["failures"].items()]
        said += [f"policy {policy} {count} times" for policy, count in call["policies"].items()]
        if said:
            lines.append(f"{name}: {call['call']} failed: {', '.join(said)}")
    if item["violations"]:
        lines.append(f"{name}: {item['violations']} answers broke the contract")
    return lines
