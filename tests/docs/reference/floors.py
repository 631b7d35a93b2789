"""The floors of the host, from the import contract that `make check` enforces."""

from __future__ import annotations

import re
import tomllib
from typing import Final

from docs.pages import DOCS, REPOSITORY

CONTRACT: Final = "Host layers"
_ROW: Final = re.compile(r"^\| `(?P<folder>\w+)/` \| (?P<what>[^|]+) \|$", re.MULTILINE)


def floors() -> list[list[str]]:
    """Return the folders and files of `host/berth_host` by floor, the top first."""
    with (REPOSITORY / "pyproject.toml").open("rb") as source:
        contracts = tomllib.load(source)["tool"]["importlinter"]["contracts"]
    (layers,) = (one["layers"] for one in contracts if one["name"] == CONTRACT)
    return [re.split(r" *[|:] *", line) for line in layers]


def picture() -> str:
    """Return the floors as a picture: a line per room, and a rule between two floors."""
    page = (DOCS / "explanation" / "map.md").read_text(encoding="utf-8")
    host = page.partition("## The host")[2].partition("\n## ")[0]
    what = {row["folder"]: row["what"] for row in _ROW.finditer(host)}
    lines = []
    for floor in floors():
        rooms = [f"{room:<14}{_first(what[room])}" for room in floor if not room.startswith("__")]
        if rooms:
            lines += ["-" * 110, *rooms]
    return "\n".join(["```text", *lines[1:], "```"])


def _first(text: str) -> str:
    """Return what a room is, up to the first stop, without the marks of Markdown."""
    return re.split(r"[;:](?: |$)", text.replace("`", ""))[0].strip()
