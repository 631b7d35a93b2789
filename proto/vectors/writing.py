"""Messages in the vectors: as protobuf JSON, and as bytes. The modules beside this one use it."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, Final

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

FOLDER: Final = Path(__file__).parent


def written(message: Message) -> dict[str, Any]:
    """Return a message as the vectors hold it: its type, protobuf JSON with the fields' names, base64."""
    return {
        "type": message.DESCRIPTOR.full_name,
        "json": _ordered(MessageToDict(message, preserving_proto_field_name=True)),
        "base64": base64.b64encode(message.SerializeToString(deterministic=True)).decode(),
    }


def text(document: dict[str, Any]) -> str:
    """Return the content of a file of vectors."""
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _ordered(value: Any) -> Any:
    """Return JSON with its keys in order: those of maps come in any order."""
    if isinstance(value, dict):
        return {key: _ordered(item) for key, item in sorted(value.items())}
    return [_ordered(item) for item in value] if isinstance(value, list) else value
