"""The documents of a configuration file: the first one, and berth's own among the rest.

kube-scheduler reads the first document of a file and nothing else, so a second one may hold what only
berth wants to know. Called by the loader.
Source: `cmd/kube-scheduler/app/options/configfile.go`, apimachinery's recognizing decoder.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from berth_host.config.source.json_reader import read_json
from berth_host.config.source.node import SourceError, SourceNode
from berth_host.config.source.yaml_reader import YamlDocument, read_yaml

_BERTH_LINE: Final = re.compile(r"""^apiVersion:[ \t]*["']?config\.berth\.io/""", re.MULTILINE)
_DOCUMENT_MARK: Final = re.compile(r"^---(?=[ \t\r\n]|$)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Documents:
    """`scheduler` is the first document, None when the file holds only berth's own.

    `is_yaml`: repeated keys count everywhere, in JSON only in fields with a known type. `warnings` name
    the documents that nobody reads.
    """

    scheduler: SourceNode | None
    is_yaml: bool
    berth: SourceNode | None
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Chunk:
    text: str
    first_line: int


def read_documents(text: str) -> Documents:
    """Split and read a file. Raises SourceError for an unreadable first document or one of berth's own."""
    if text.lstrip().startswith("{"):
        return Documents(read_json(text), is_yaml=False, berth=None, warnings=())
    text = text.removeprefix("\ufeff")
    first = read_yaml(text)
    rest = _chunks(text, first)
    own = [chunk for chunk in rest if _BERTH_LINE.search(chunk.text)]
    warnings = tuple(
        f"the YAML document at line {chunk.first_line} is ignored: only the first document of a file "
        "and a BerthConfiguration (config.berth.io/v1alpha1) are read"
        for chunk in rest
        if chunk not in own
    )
    if _is_berth(first.root):
        if rest:
            raise SourceError(
                "a BerthConfiguration comes after the KubeSchedulerConfiguration, or in a file of its own: "
                "kube-scheduler reads the first document only",
                rest[0].first_line,
            )
        return Documents(None, is_yaml=True, berth=first.root, warnings=warnings)
    if len(own) > 1:
        raise SourceError("a second BerthConfiguration in the same file", own[1].first_line)
    berth = read_yaml(own[0].text, first_line=own[0].first_line).root if own else None
    return Documents(first.root, is_yaml=True, berth=berth, warnings=warnings)


def _is_berth(root: SourceNode) -> bool:
    member = root.members.get("apiVersion")
    return member is not None and str(member.node.value).startswith("config.berth.io/")


def _chunks(text: str, first: YamlDocument) -> list[_Chunk]:
    """The documents after the first, unparsed; those without any content are left out."""
    lines = text.splitlines(keepends=True)
    offset = sum(len(line) for line in lines[: first.end_line]) + first.end_column
    starts = [match.start() for match in _DOCUMENT_MARK.finditer(text, offset)]
    if not starts or text[offset : starts[0]].strip():
        starts.insert(0, offset)
    chunks = []
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        chunk = text[start:end]
        if _has_content(chunk):
            chunks.append(_Chunk(chunk, text.count("\n", 0, start) + 1))
    return chunks


def _has_content(chunk: str) -> bool:
    lines = [line.strip() for line in chunk.removeprefix("---").splitlines()]
    return any(line and not line.startswith("#") and line != "..." for line in lines)
