"""A report's values -> JSON or YAML, one object or a stream of them, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import yaml

STRUCTURED: Final = ("json", "yaml")


def streamed(value: Mapping[str, Any], output: str) -> str:
    """Return one of several objects as a line of JSON or a YAML document, with a newline at the end."""
    return f"---\n{serialized(value, output)}" if output == "yaml" else json.dumps(value) + "\n"


def serialized(value: Mapping[str, Any], output: str) -> str:
    """Return the object as JSON or YAML (`output`), with a newline at the end. Keys keep their order."""
    if output == "yaml":
        text: str = yaml.dump(dict(value), Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True)
        return text
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
