"""The documents of a configuration file: the first one, and berth's own among the rest.

kube-scheduler reads the first document of a file and nothing else, so a second one may hold settings for
berth alone. Called by the loader. Source: `cmd/kube-scheduler/app/options/configfile.go`, apimachinery's
recognizing decoder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from berth_host.config.source.json_reader import read_json_source
from berth_host.config.source.node import RepeatedKey, SourceError, SourceNode
from berth_host.config.source.yaml_reader import read_yaml

_BERTH_LINE: Final = re.compile(r"""^apiVersion:[ \t]*["']?config\.berth\.io/""", re.MULTILINE)
_DOCUMENT_MARK: Final = re.compile(r"^---(?=[ \t\r\n]|$)", re.MULTILINE)
_END_MARK: Final = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\r?\n)*\.\.\.(?=[ \t\r\n]|$)")
_META_FIELDS: Final = ("apiVersion", "kind")


@dataclass(frozen=True, slots=True)
class Documents:
    """`scheduler` is the first document, None when the file holds only berth's own.

    `is_yaml`: repeated keys are errors everywhere, in JSON only in fields with a known type. `warnings`
    name the documents that are not read. `berth_error`: why berth's own cannot be read, None where it can.
    """

    scheduler: SourceNode | None
    is_yaml: bool
    berth: SourceNode | None
    warnings: tuple[str, ...]
    berth_error: SourceError | None = None


@dataclass(frozen=True, slots=True)
class _Chunk:
    text: str
    first_line: int

    @property
    def is_bare(self) -> bool:
        """True if no mark ("---") opens the chunk, because it follows an end mark ("...")."""
        return not _DOCUMENT_MARK.match(self.text)


def read_documents(text: str, joins_rest: Callable[[SourceNode], bool] | None = None) -> Documents:
    """Split and read a file. Raises SourceError for an unreadable first document.

    `joins_rest` returns True for a first document whose text behind the end mark ("...") is a part of it:
    older examples are written so. None: that text is not read, as kube-scheduler does not read it.
    """
    if text.lstrip().startswith("{"):
        return Documents(read_json_source(text), is_yaml=False, berth=None, warnings=())
    text = text.removeprefix("\ufeff")
    first = read_yaml(text)
    root, rest = first.root, _chunks(text, first.end_line, first.end_column)
    joined: tuple[str, ...] = ()
    if joins_rest is not None and rest and rest[0].is_bare and joins_rest(root):
        root, rest, joined = _joined(root, rest)
    own = [chunk for chunk in rest if _BERTH_LINE.search(chunk.text)]
    warnings = joined + tuple(
        f"the YAML document at line {chunk.first_line} is ignored: only the first document of a file "
        "and a BerthConfiguration (config.berth.io/v1alpha1) are read"
        for chunk in rest
        if chunk not in own
    )
    if _is_berth(root):
        if rest:
            raise SourceError(
                "a BerthConfiguration comes after the KubeSchedulerConfiguration, or in a file of its own: "
                "kube-scheduler reads the first document only",
                rest[0].first_line,
            )
        return Documents(None, is_yaml=True, berth=root, warnings=warnings)
    berth, error = _read_own(own)
    return Documents(root, is_yaml=True, berth=berth, warnings=warnings, berth_error=error)


def read_rest(text: str) -> Documents:
    """berth's own document of a file whose first one is unreadable."""
    own = [chunk for chunk in _chunks(text, 0, 0)[1:] if _BERTH_LINE.search(chunk.text)]
    berth, error = _read_own(own)
    return Documents(None, is_yaml=True, berth=berth, warnings=(), berth_error=error)


def _read_own(own: Sequence[_Chunk]) -> tuple[SourceNode | None, SourceError | None]:
    if len(own) > 1:
        return None, SourceError("a second BerthConfiguration in the same file", own[1].first_line)
    try:
        return (read_yaml(own[0].text, first_line=own[0].first_line).root if own else None), None
    except SourceError as err:
        return None, err


def _joined(root: SourceNode, rest: Sequence[_Chunk]) -> tuple[SourceNode, list[_Chunk], tuple[str, ...]]:
    """Return the first document with the bare parts that follow it, the rest, and a warning for each part.

    A part with a version or kind of its own is a document of its own. A key in two parts counts as
    repeated, which strict decoding refuses.
    """
    warnings: list[str] = []
    left = list(rest)
    while left and left[0].is_bare and not _BERTH_LINE.search(left[0].text):
        chunk = left[0]
        part = read_yaml(chunk.text, first_line=chunk.first_line)
        if any(name in part.root.members for name in _META_FIELDS):
            break
        if not isinstance(part.root.value, Mapping):
            message = 'what follows "..." cannot be joined to the first part: it is no object with fields'
            raise SourceError(message, part.root.line)
        root = _with_part(root, part.root)
        warnings.append(
            f'line {part.root.line}: "..." ends a YAML document, but what follows has no apiVersion and '
            "kind: it is joined to the first part; remove the line"
        )
        left[:1] = _chunks(chunk.text, part.end_line, part.end_column, first_line=chunk.first_line)
    return root, left, tuple(warnings)


def _with_part(root: SourceNode, part: SourceNode) -> SourceNode:
    repeated = [RepeatedKey(key, part.members[key].key_line) for key in part.members if key in root.members]
    return SourceNode.of_mapping(
        {**root.members, **part.members}, root.line, (*root.repeated, *part.repeated, *repeated)
    )


def _is_berth(root: SourceNode) -> bool:
    member = root.members.get("apiVersion")
    return member is not None and str(member.node.value).startswith("config.berth.io/")


def _chunks(text: str, end_line: int, end_column: int, *, first_line: int = 1) -> list[_Chunk]:
    """Return the documents after the one that ends there, unparsed; empty ones are left out."""
    lines = text.splitlines(keepends=True)
    offset = sum(len(line) for line in lines[:end_line]) + end_column
    while mark := _END_MARK.match(text, offset):
        offset = mark.end()  # between two end marks there is no document
    starts = [match.start() for match in _DOCUMENT_MARK.finditer(text, offset)]
    if not starts or text[offset : starts[0]].strip():
        starts.insert(0, offset)
    chunks = []
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        chunk = text[start:end]
        if _has_content(chunk):
            chunks.append(_Chunk(chunk, text.count("\n", 0, start) + first_line))
    return chunks


def _has_content(chunk: str) -> bool:
    lines = [line.strip() for line in chunk.removeprefix("---").splitlines()]
    return any(line and line[0] not in "#%" and line != "..." for line in lines)
