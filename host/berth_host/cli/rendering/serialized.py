"""A report's values -> JSON or YAML, one object or a stream of them, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import yaml

STRUCTURED: Final = ("json", "yaml")


def streamed(value: Mapping[str, Any], output: str) -> str:
    """One of several objects: a line of JSON, or a YAML document. Ends in a newline."""
    return f"---\n{serialized(value, output)}" if output == "yaml" else json.dumps(value) + "\n"


def serialized(value: Mapping[str, Any], output: str) -> str:
    """`output`: json or yaml. Ends in a newline; keys stay in the order of the object."""
    if output == "yaml":
        text: str = yaml.dump(dict(value), Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True)
        return text
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
