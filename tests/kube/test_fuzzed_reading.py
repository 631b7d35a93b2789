"""Hostile objects as bytes: what berth reads of them is what a full parse finds, without `managedFields`."""

from __future__ import annotations

import re
from typing import Any

import pytest
from berth_kube.reading import ObjectReader
from berth_sdk.json.objects import finish
from berth_sdk.json.reader import RawJson
from support.fuzzed.objects import Fuzz
from support.fuzzed.reading import Number, parsed
from support.fuzzed.trees import encoded

STEPS = 100
_QUANTITY = re.compile(r"[-+]?[0-9.]{40,}.*|[-+]?[0-9]+[eE].*")
_SURROGATE = re.compile("[\ud800-\udfff]")


def leaf(value: Any) -> Any:
    """Return what is compared of a value: not the length of digits, nor what replaces half a character."""
    if isinstance(value, Number | int | float) and not isinstance(value, bool):
        return "a number"
    if isinstance(value, str):
        return "a quantity" if _QUANTITY.fullmatch(value) else _SURROGATE.sub("\ufffd", value)
    return value


def difference(read: Any, whole: Any) -> str:
    """Return where two values differ, "" if nowhere. Without recursion, for values of any depth."""
    pairs = [("", read, whole)]
    while pairs:
        path, left, right = pairs.pop()
        if len(path) > 300:
            path = f"...{path[-100:]}"
        if isinstance(left, RawJson):
            left = parsed(left.content.decode(errors="replace"))
        if isinstance(left, dict) and isinstance(right, dict):
            if left.keys() != right.keys():
                return f"{path}: {sorted(left)[:9]}, not {sorted(right)[:9]}"
            # Parameters of devices stay bytes.
            pairs += [(f"{path}.{key}", left[key], right[key]) for key in left if key != "parameters"]
        elif isinstance(left, list) and isinstance(right, list):
            if len(left) != len(right):
                return f"{path}: {len(left)} items, not {len(right)}"
            pairs += [(f"{path}[]", *pair) for pair in zip(left, right, strict=True)]
        elif leaf(left) != leaf(right):
            return f"{path}: {left!r:.100}, not {right!r:.100}"
    return ""


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 6))])
def test_what_is_read_is_the_whole_object_without_its_managed_fields(seed: int) -> None:
    compared = cut = 0
    for step in Fuzz(seed, 100_000).steps(STEPS):
        if step["do"] != "create":
            continue
        document = encoded(step["body"])
        whole = parsed(document.decode(errors="replace"))
        metadata = whole["metadata"]
        cut += isinstance(metadata, dict) and metadata.pop("managedFields", None) is not None
        reader = ObjectReader(step["kind"])
        read = reader.object(document)
        if read is None:
            read = finish(reader.scanned_object(document))
        if isinstance(read.get("metadata"), dict) and read["metadata"].get("managedFields", 1) is None:
            del read["metadata"]["managedFields"]  # the exact way writes null in its place
        assert difference(read, whole) == "", (seed, step["name"], document[:2000])
        compared += 1
    assert compared > STEPS / 3
    assert cut > 3
