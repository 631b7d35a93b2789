"""A host's answer about its plugins -> the text of `kubectl berth plugins` without `-o`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from berth_sdk.scope import EVERY_POD

from berth_host.cli.rendering.columns import columns

_NOT_NEEDED: Final = frozenset({"Standby", "Drained"})


def running_plugins_text(answer: Mapping[str, Any]) -> str:
    """Return one row per extender, plugin and instance, in-process plugins last, then the declared scopes and
    the problems, one line each.
    """
    listed = sorted(answer["plugins"], key=lambda item: (item["runs"] == "inProcess", item["name"]))
    # A host of an older version does not list extenders.
    extenders = answer.get("extenders", ())
    rows = [*(_extender_row(item) for item in extenders), *(row for item in listed for row in _rows(item))]
    header = ("NAME", "RUNS", "STATE", "TRANSPORT", "CALLS", "MS/CALL", "FAILED", "POINTS")
    parts = [columns(header, rows, right=(4, 5, 6))]
    if scopes := [line for item in listed for line in _scope(item)]:
        parts.append("\n".join(scopes))
    problems = [line for item in extenders for line in _failures(item)]
    problems += [line for item in listed for line in _problems(item)]
    if answer["missing"]:
        problems.append(f"not in this build: {', '.join(answer['missing'])}")
    if problems:
        parts.append("\n".join(problems))
    return "\n\n".join(parts) + "\n"


def running_states(answer: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Return the values whose change a watch shows: instances, their states, and open circuits.

    Raises LookupError and TypeError for an answer of another shape.
    """
    return [
        (
            item["name"],
            circuits,
            *((one["place"], one["state"], one["reason"], one["instance"]) for one in found),
        )
        for item in answer["plugins"]
        for circuits in [tuple((point, one["state"]) for point, one in item["circuits"].items())]
        for found in [[one for one in (item["attachment"], *item["otherInstances"]) if one is not None]]
    ]


def _rows(item: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield the row of the plugin, and a row of each further attached instance."""
    yield (
        item["name"],
        *(("in process", "", "") if item["attachment"] is None else _where(item["attachment"])),
        str(sum(call["calls"] for call in item["calls"])),
        _mean_ms(item),
        str(sum(sum(call["failures"].values()) for call in item["calls"]) or "-"),
        ", ".join(dict.fromkeys(point for profile in item["profiles"] for point in profile["points"])),
    )
    for other in item["otherInstances"]:
        yield (item["name"], *_where(other), "", "", "", "")


def _extender_row(item: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        item["name"],
        item["urlPrefix"],
        f"{', '.join(item['failing'])} fails" if item["failing"] else "",
        "HTTP",
        str(sum(call["calls"] for call in item["calls"])),
        _mean_ms(item),
        str(sum(sum(call["failures"].values()) for call in item["calls"]) or "-"),
        ", ".join(item["verbs"]),
    )


def _where(attachment: Mapping[str, Any]) -> tuple[str, str, str]:
    return attachment["place"], attachment["state"], attachment["transport"]


def _mean_ms(item: Mapping[str, Any]) -> str:
    calls = sum(call["calls"] for call in item["calls"])
    return f"{sum(call['totalMs'] for call in item['calls']) / calls:.3f}" if calls else "-"


def _scope(item: Mapping[str, Any]) -> Iterator[str]:
    # A host of an older version does not say the scope.
    scope = item.get("scope", EVERY_POD)
    if scope != EVERY_POD:
        yield f"{item['name']} declares its scope: {scope}"


def _problems(item: Mapping[str, Any]) -> list[str]:
    name, attachment = item["name"], item["attachment"]
    lines = []
    if not item["available"]:
        what = "required, so pods in its scope fail" if item["required"] else "its policies apply"
        reason = (attachment or {}).get("reason") or "it cannot be asked"
        lines.append(f"{name} is not attached ({what}): {reason}")
    elif attachment is not None and attachment["reason"]:
        lines.append(f"{name} is {attachment['state'].lower()}: {attachment['reason']}")
    if attachment is not None:
        lines += [f"{name}: {warning}" for warning in attachment["warnings"]]
    # The reason of a standby or drained instance is no problem: another instance is called.
    lines += [
        f"{name} at {other['place']} is {other['state'].lower()}: {other['reason']}"
        for other in item["otherInstances"]
        if other["reason"] and other["state"] not in _NOT_NEEDED
    ]
    lines += _failures(item)
    if item["violations"]:
        lines.append(f"{name}: {item['violations']} answers broke the contract")
    return lines


def _failures(item: Mapping[str, Any]) -> list[str]:
    lines = []
    for call in item["calls"]:
        said = [f"{count} {kind}" for kind, count in call["failures"].items()]
        said += [f"policy {policy} {count} times" for policy, count in call["policies"].items()]
        if said:
            lines.append(f"{item['name']}: {call['call']} failed: {', '.join(said)}")
    return lines
