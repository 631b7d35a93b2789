"""Kept bytes take no more memory than their length."""

import tracemalloc

import pytest
from berth_host.model.compact_json import compact_json

COUNT = 500
OBJECT_OVERHEAD_BYTES = 64
"""A bytes object's header, and its place in the list."""


def test_kept_bytes_take_their_length() -> None:
    """A buffer that is not shrunk would be some 8 KiB each."""
    value = {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "main"}]}}
    length = len(compact_json(value))
    tracemalloc.start()
    try:
        kept = [compact_json(value) for _ in range(COUNT)]
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(kept) == COUNT
    assert taken < COUNT * (length + OBJECT_OVERHEAD_BYTES) * 1.2


def test_text_is_json() -> None:
    """Every JSON reader can read the result."""
    assert compact_json({"a": [1, None, "ü"]}) == '{"a":[1,null,"ü"]}'.encode()


def test_refuses_what_json_cannot_say() -> None:
    """Values that JSON lacks raise TypeError, as with orjson."""
    with pytest.raises(TypeError):
        compact_json({"a": object()})
