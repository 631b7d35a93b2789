"""The metadata that names the attachment and the plugin of a gRPC call beside its message.

The host sends both with its calls, and the SDK sends the plugin with the calls of HandleService, so that an
interceptor can check them without reading the message. Each receiver refuses a call whose metadata disagrees
with its message. Frames have no metadata. Source: the contract's common.proto, "Who is meant".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

ATTACHMENT_KEY: Final = "berth-attachment-id"
PLUGIN_KEY: Final = "berth-plugin"
_SENDABLE: Final = re.compile(r"[\x21-\x7e]+")
"""The values that gRPC's metadata can hold as they are."""


def metadata_of(attachment_id: str = "", plugin: str = "") -> tuple[tuple[str, str], ...]:
    """Return the metadata of a call. Leaves out an empty name, and one that gRPC's metadata cannot hold."""
    named = ((ATTACHMENT_KEY, attachment_id), (PLUGIN_KEY, plugin))
    return tuple((key, name) for key, name in named if _SENDABLE.fullmatch(name))


def disagreement_of(request_type: Any) -> Callable[[Any, Iterable[Any]], str]:
    """Return a function that compares a request of this class with the metadata of its call.

    The function returns which name differs, as a sentence; empty if none does. Absent metadata agrees.
    """
    fields = request_type.DESCRIPTOR.fields_by_name
    within = "ctx" in fields
    names = fields["ctx"].message_type.fields_by_name if within else fields
    both = ((ATTACHMENT_KEY, "attachment_id"), (PLUGIN_KEY, "plugin"))
    compared = {key: field for key, field in both if field in names}

    def disagreement(request: Any, metadata: Iterable[Any]) -> str:
        for key, value in metadata:
            field = compared.get(key)
            if field is None:
                continue
            told = getattr(request.ctx if within else request, field)
            if value != told:
                return (
                    f"the metadata {key} names {str(value)[:128]!r}, and {field} of the request names"
                    f" {told[:128]!r}: send the same in both, or leave the metadata out"
                )
        return ""

    return disagreement
