"""Read Markdown files as pages with their fenced blocks, links and headings. Used by every test of this
folder.

A fenced block may have directives, HTML comments on the lines right above it:

    <!-- file: avoid_spot.py -->     write the block to this file of the page's working folder
    <!-- run: background -->         a server: start it, continue, end it after the page
    <!-- run: elsewhere -->          not run here; `test_blocks` has the list of these
    <!-- run: refused -->            a file that the host must refuse
    <!-- plugin: module:Class -->    a class that the page's program registers with the host (configurations)
    <!-- exit: 2 -->                 the exit code of the last command
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from support.places import ROOT

REPOSITORY: Final = ROOT
DOCS: Final = REPOSITORY / "docs"
LANGUAGES: Final = ("python", "sh", "console", "yaml", "json", "toml", "go", "typescript", "text")
"""Known languages of blocks. `go` is for code to compare with, `text` for pictures and quotations; neither is
run. `test_other_languages` runs those of `without-the-sdk.md`.
"""

_FENCE: Final = re.compile(r"^(?P<ticks>`{3,})(?P<language>[a-z]*)\s*$")
_DIRECTIVE: Final = re.compile(r"^<!-- (?P<key>file|run|exit|plugin): (?P<value>\S+) -->$")
_HEADING: Final = re.compile(r"^#{1,6} (?P<title>.+?)\s*$")
_LINK: Final = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\((?P<target>[^()\s]+)\)")
_CODE: Final = re.compile(r"(`+)(?:(?!\1).)+\1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block. `line`: the line of its fence, from 1."""

    language: str
    text: str
    line: int
    directives: Mapping[str, str] = field(default_factory=dict)

    @property
    def runs_elsewhere(self) -> bool:
        """True if another test runs the block."""
        return self.directives.get("run") == "elsewhere"


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One link to a target inside the repository. `path` and `anchor` as written, either may be empty."""

    path: str
    anchor: str
    line: int


class Page:
    """One Markdown file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = path.read_text(encoding="utf-8")

    @property
    def name(self) -> str:
        """The path inside the repository; for a file outside it, the file's name."""
        inside = self.path.is_relative_to(REPOSITORY)
        return self.path.relative_to(REPOSITORY).as_posix() if inside else self.path.name

    @property
    def blocks(self) -> list[Block]:
        """All fenced blocks, in order. Raises ValueError for a fence that does not close."""
        return list(_blocks(self.name, self.text.splitlines()))

    @property
    def anchors(self) -> set[str]:
        """The anchors that a link may name after `#`: the headings as GitHub spells them."""
        found: dict[str, int] = {}
        anchors: set[str] = set()
        for _, line in _prose(self.text.splitlines()):
            if matched := _HEADING.match(line):
                slug = _slug(matched["title"])
                count = found.get(slug, 0)
                found[slug] = count + 1
                anchors.add(f"{slug}-{count}" if count else slug)
        return anchors

    @property
    def links(self) -> list[Link]:
        """Links that stay inside the repository."""
        links = []
        for number, line in _prose(self.text.splitlines()):
            for matched in _LINK.finditer(_CODE.sub("", line)):
                target = matched["target"]
                if "://" not in target:
                    path, _, anchor = target.partition("#")
                    links.append(Link(path=path, anchor=anchor, line=number))
        return links


def all_pages() -> list[Page]:
    """Return the three pages at the top, the READMEs of packages, examples and chart, and the pages below
    docs/.
    """
    folders = ("bench", "plugins", "plugins/scheduler_plugins", "sdk", "examples/*", "deploy/helm/*")
    more = sorted(path for folder in folders for path in REPOSITORY.glob(f"{folder}/README.md"))
    top = [REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    return [Page(path) for path in (*top, *more, *sorted(DOCS.rglob("*.md")))]


def _blocks(name: str, lines: list[str]) -> Iterator[Block]:
    directives: dict[str, str] = {}
    position = 0
    while position < len(lines):
        line = lines[position]
        if matched := _DIRECTIVE.match(line):
            directives[matched["key"]] = matched["value"]
        elif matched := _FENCE.match(line):
            start = position
            try:
                position = lines.index(matched["ticks"], start + 1)
            except ValueError:
                raise ValueError(f"{name}:{start + 1}: this fence does not close") from None
            text = "".join(f"{inner}\n" for inner in lines[start + 1 : position])
            yield Block(language=matched["language"], text=text, line=start + 1, directives=directives)
            directives = {}
        elif line.strip():
            directives = {}
        position += 1


def _prose(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yield (number, line) of the lines outside fences."""
    ticks = ""
    for number, line in enumerate(lines, start=1):
        if ticks:
            ticks = "" if line == ticks else ticks
        elif matched := _FENCE.match(line):
            ticks = matched["ticks"]
        else:
            yield number, line


def _slug(title: str) -> str:
    kept = re.sub(r"[^\w\- ]", "", title.replace("`", "").lower())
    return kept.replace(" ", "-")
