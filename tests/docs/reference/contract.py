"""Generate contract.md and query.md of docs/reference from the descriptors of `proto/berth/plugin/v1` and
`proto/berth/query/v1`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache
from typing import Final

import grpc
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    MethodDescriptorProto,
    ServiceDescriptorProto,
)
from grpc.aio import AioRpcError, Metadata

from docs.pages import REPOSITORY
from docs.reference.markdown import code, one_line, table

PROTO: Final = REPOSITORY / "proto"
if str(PROTO) not in sys.path:
    sys.path.insert(0, str(PROTO))

from berth_host.rpc.served.grpc_errors import plugin_error  # noqa: E402
from protocheck import compiler, walk  # noqa: E402

_PARAGRAPH: Final = re.compile(r"^\s*(Caller|Errors|Repeat):", re.MULTILINE)
_CODE_LINE: Final = re.compile(r"^\s{2,}(?P<code>[A-Z_]{5,})\s{2,}(?P<text>.+)$")
_SCALARS: Final = {
    number: name.removeprefix("TYPE_").lower() for name, number in FieldDescriptorProto.Type.items()
}
_LINKS: Final = "../../proto/"


@cache
def _declarations(prefix: str = compiler.SOURCE_PREFIX) -> tuple[walk.Declaration, ...]:
    return tuple(walk.declarations(compiler.describe(PROTO, prefix)))


def services(prefix: str = compiler.SOURCE_PREFIX) -> str:
    """Return every service and call, with the comments of the files."""
    parts: list[str] = []
    for declaration in _declarations(prefix):
        if isinstance(declaration.proto, ServiceDescriptorProto):
            parts += [f"### {declaration.short_name}", _file(declaration), *_described(declaration.comment)]
        elif isinstance(declaration.proto, MethodDescriptorProto):
            parts += [f"#### {_service(declaration)}.{declaration.short_name}", _shape(declaration.proto)]
            parts += _paragraphs(declaration.comment)
    return "\n\n".join(parts)


def calls() -> str:
    """Return a table with one line per call."""
    rows = [
        (_service(declaration), code(declaration.short_name), _shape(declaration.proto))
        for declaration in _declarations()
        if isinstance(declaration.proto, MethodDescriptorProto)
    ]
    return table(("Service", "Call", "Messages"), rows)


def grpc_codes() -> str:
    """Return a table of how the host treats each gRPC status of a plugin's call."""
    rows = []
    for status in grpc.StatusCode:
        if status is not grpc.StatusCode.OK:
            error = plugin_error(AioRpcError(status, Metadata(), Metadata(), "..."), "P", "Filter", 0.25)
            unknown = "yes" if error.outcome_unknown else "no"
            rows.append((code(status.name), code(error.outcome), unknown, code(error.text)))
    return table(("gRPC status", "Counted as", "May have had effects", "Text, of plugin P at Filter"), rows)


def query_services() -> str:
    """Return the query service with its calls."""
    return services(compiler.QUERY_PREFIX)


def query_messages() -> str:
    """Return the messages of the query service."""
    return messages(compiler.QUERY_PREFIX)


def messages(prefix: str = compiler.SOURCE_PREFIX) -> str:
    """Return every message with its fields, by file."""
    parts: list[str] = []
    file = ""
    for declaration in _declarations(prefix):
        if not isinstance(declaration.proto, DescriptorProto):
            continue
        if declaration.file != file:
            file = declaration.file
            parts.append(f"### {file.rpartition('/')[2]}\n\n{_file(declaration)}\n")
        fields = ", ".join(_field(field) for field in declaration.proto.field)
        name = declaration.name.removeprefix(f"{prefix.replace('/', '.')}.v1.")
        parts.append(f"- `{name}`: {fields or 'no fields'}")
    return "\n".join(parts).replace("\n### ", "\n\n### ")


def _field(field: FieldDescriptorProto) -> str:
    repeated = "*" if field.label == FieldDescriptorProto.LABEL_REPEATED else ""
    kind = field.type_name.rpartition(".")[2] or _SCALARS[field.type]
    if kind == f"{field.name.title().replace('_', '')}Entry":  # the type that protoc makes for map<,>
        kind, repeated = "map", ""
    return f"{field.name} ({kind}{repeated})"


def _shape(method: object) -> str:
    assert isinstance(method, MethodDescriptorProto)
    asked = method.input_type.rpartition(".")[2]
    answered = method.output_type.rpartition(".")[2]
    streams = (
        "stream of " if method.client_streaming else "",
        "stream of " if method.server_streaming else "",
    )
    return f"{streams[0]}`{asked}` → {streams[1]}`{answered}`"


def _service(declaration: walk.Declaration) -> str:
    assert isinstance(declaration.parent, ServiceDescriptorProto)
    return declaration.parent.name


def _file(declaration: walk.Declaration) -> str:
    return f"Declared in [{declaration.file}]({_LINKS}{declaration.file})."


def _described(comment: str) -> Iterator[str]:
    """Yield paragraphs; lines such as `UNAVAILABLE   the host stops` become a list."""
    for paragraph in comment.split("\n\n"):
        lead: list[str] = []
        items: list[str] = []
        for line in paragraph.splitlines():
            if matched := _CODE_LINE.match(line):
                items.append(f"- `{matched['code']}`: {matched['text']}")
            elif items:
                items[-1] += f" {line.strip()}"
            else:
                lead.append(line.strip())
        yield " ".join(word for word in lead if word)
        if items:
            yield "\n".join(items)


def _paragraphs(comment: str) -> Iterator[str]:
    """Yield the description as text, and `Caller`, `Errors` and `Repeat` as a list."""
    starts = [matched.start() for matched in _PARAGRAPH.finditer(comment)]
    yield one_line(comment[: starts[0]])
    items = []
    for start, end in zip(starts, [*starts[1:], len(comment)], strict=True):
        name, _, text = one_line(comment[start:end]).partition(":")
        text = text.strip()
        items.append(f"- **{name}.** {text[:1].upper()}{text[1:]}")
    yield "\n".join(items)
