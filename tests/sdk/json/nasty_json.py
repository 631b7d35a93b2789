"""JSON texts that are valid and as hard to read as JSON can be: for tests of what reads JSON by itself."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

KEYS = ("metadata", "managedFields", "items", "object", "name", "spec", "a", "]", "{", '"', "\\", "")
TEXTS = ("", "x", "[", "]", "{", "}", '"', "\\", '\\"', '"managedFields":[', "],{", ":", ",", "é", "\u2028")


class Pairs(list[tuple[str, Any]]):
    """A map whose keys may repeat."""


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
) | st.sampled_from(TEXTS)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.lists(st.tuples(st.sampled_from(KEYS), inner), max_size=4).map(Pairs)
    ),
    max_leaves=25,
)


@st.composite
def texts(draw: st.DrawFn, value: Any, *, is_tight: bool = False) -> bytes:
    """Write a value with spaces and escapes anywhere; `is_tight`: as API servers do."""

    def space() -> str:
        return "" if is_tight else draw(st.sampled_from(("", "", "", " ", "\n\t")))

    def string(text: str) -> str:
        if is_tight or not text or draw(st.integers(0, 4)):
            return json.dumps(text)
        at = draw(st.integers(0, len(text) - 1))
        return f"{json.dumps(text[:at])[:-1]}\\u{ord(text[at]):04x}{json.dumps(text[at + 1 :])[1:]}"

    def written(one: Any) -> str:
        if isinstance(one, Pairs):
            rows = [f"{space()}{string(key)}{space()}:{space()}{written(item)}{space()}" for key, item in one]
            return "{" + (",".join(rows) or space()) + "}"
        if isinstance(one, list):
            return "[" + (",".join(f"{space()}{written(item)}{space()}" for item in one) or space()) + "]"
        return string(one) if isinstance(one, str) else json.dumps(one)

    return f"{space()}{written(value)}{space()}".encode()


objects = st.lists(
    st.tuples(
        st.sampled_from(("metadata", "metadata", "spec", "managedFields")),
        st.lists(st.tuples(st.sampled_from(KEYS), values), max_size=4).map(Pairs) | values,
    ),
    max_size=4,
).map(Pairs)
"""Maps that look like Kubernetes objects, or nearly so."""
