"""The packages of the host's distribution, from the import contracts that `make check` enforces."""

from __future__ import annotations

import tomllib
from typing import Any, Final

from docs.pages import REPOSITORY

OF_THE_HOST: Final = "Of the host, process alone knows berth_kube and berth_sim"
BESIDE: Final = (
    "berth_kube knows the port of the host, its errors, log and model",
    "The embedded API server and its manifests know the same four of the host",
)
UPPER: Final = {
    "berth_sim.commands": ["berth_host", "berth_kube"],
    "berth_sim.run": ["berth_host"],
}
"""The parts that may import a whole package."""


def picture() -> str:
    """Return a line per part of the distribution: what it may import of the other packages."""
    allowed: dict[str, set[str]] = {}
    for name in (OF_THE_HOST, *BESIDE):
        for line in _contract(name)["ignore_imports"]:
            importer, _, imported = line.partition(" -> ")
            allowed.setdefault(_part(importer), set()).add(_part(imported))
    rows = {**{part: set(others) for part, others in UPPER.items()}, **allowed}
    width = max(map(len, rows)) + 2
    return "\n".join(
        [
            "```text",
            *(f"{part:<{width}}-> {', '.join(sorted(others))}" for part, others in rows.items()),
            "```",
        ]
    )


def _contract(name: str) -> dict[str, Any]:
    with (REPOSITORY / "pyproject.toml").open("rb") as source:
        contracts = tomllib.load(source)["tool"]["importlinter"]["contracts"]
    (found,) = (one for one in contracts if one["name"] == name)
    return dict(found)


def _part(pattern: str) -> str:
    """Return the part that a pattern of modules stands for: `berth_host.errors` for `berth_host.errors.*`."""
    return pattern.rstrip(".*")
