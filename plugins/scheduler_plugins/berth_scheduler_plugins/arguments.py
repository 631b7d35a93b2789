"""Arguments of plugins, as `pluginConfig[].args` of KubeSchedulerConfiguration gives them.

The plugins' `__init__` reads them with these functions and those of `berth_plugins.args.findings`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any, Final

from berth_plugins.args.findings import Findings, integer, maps

_OF_EVERY_TYPE: Final = frozenset({"apiVersion", "kind"})


def refuse_unknown(args: Mapping[str, Any], known: Collection[str]) -> None:
    """Raise PluginArgsError for each argument that is not one of `known`."""
    findings = Findings()
    for name in sorted(args.keys() - known - _OF_EVERY_TYPE):
        findings.forbidden(name, f"is no argument: leave it out, or use one of {', '.join(sorted(known))}")
    findings.check()


def weighted_resources(args: Mapping[str, Any], key: str, path: str) -> list[tuple[str, int]]:
    """Return (name, weight) of each entry of a list of resources, in order. A missing weight is 0.

    Empty where the list is missing. Raises PluginArgsError for a value of another form.
    """
    found = []
    for i, item in enumerate(maps(args, key, path)):
        name = item.get("name")
        findings = Findings()
        if not isinstance(name, str) or not name:
            findings.required(f"{path}[{i}].name", "name the resource, such as cpu")
        findings.check()
        found.append((str(name), integer(item, "weight", f"{path}[{i}].weight")))
    return found


def text(args: Mapping[str, Any], key: str, path: str) -> str:
    """Return the string under `key`, "" where it is missing. Raises PluginArgsError."""
    value = args.get(key)
    findings = Findings()
    if value is not None and not isinstance(value, str):
        findings.invalid(path, value, "must be a string")
    findings.check()
    return value or ""


def number(args: Mapping[str, Any], key: str, path: str, default: float) -> float:
    """Return the number under `key`; `default` where it is missing. Raises PluginArgsError."""
    value = args.get(key)
    if value is None:
        return default
    findings = Findings()
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        findings.invalid(path, value, "must be a number")
    findings.check()
    return float(value)
