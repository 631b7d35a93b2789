"""The ref of an object that any client may have written."""

from __future__ import annotations

from typing import Any

import pytest
from berth_host.model.readable_ref import readable_ref
from berth_sdk.kube_object import KubeObject, ObjectRef


def test_ref_is_that_of_the_object() -> None:
    found = KubeObject("v1", "Pod", raw=b'{"metadata": {"name": "a", "uid": "u", "resourceVersion": "7"}}')
    assert readable_ref(found) == ObjectRef(name="a", uid="u", resource_version="7")


@pytest.mark.parametrize("raw", ["{", "[1]", '{"metadata": [1]}', '{"metadata": {"name": ["odd"]}}'])
def test_ref_that_cannot_be_read_has_no_name(raw: str) -> None:
    assert readable_ref(KubeObject("v1", "Pod", raw=raw.encode())) == ObjectRef(name="")


@pytest.mark.parametrize("field", ["namespace", "uid", "resourceVersion"])
def test_ref_with_a_part_that_is_no_text_has_no_name(field: str) -> None:
    metadata: dict[str, Any] = {"name": "a", field: 7}
    assert readable_ref(KubeObject.of({"metadata": metadata})) == ObjectRef(name="")
