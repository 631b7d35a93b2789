"""Objects of any depth, and with opaque values, are parsed into what every other part handles."""

from __future__ import annotations

import copy
import json

import orjson
import pytest
from berth_sdk.errors import ObjectError
from berth_sdk.json.objects import finish, has_opaque, is_too_deep, object_steps
from berth_sdk.json.reader import RawJson
from berth_sdk.kube_object import KubeObject

DEEP = b'{"a":' * 3_000 + b"[]" + b"}" * 3_000
PARAMETERS = rb'{ "z":1.0, "a":1e5, "a":"\ud800", "deep":' + DEEP + b"}"
CONFIG = b'{"config":[{"requests":["r"],"opaque":{"driver":"d","parameters":' + PARAMETERS + b"}},{}]}"
OBJECTS = {
    "ResourceClaim": b'{"kind":"ResourceClaim","spec":{"devices":%b},"status":{"allocation":{"devices":%b},'
    b'"devices":[{"driver":"d","data":%b}]}}' % (CONFIG, CONFIG, PARAMETERS),
    "ResourceClaimTemplate": b'{"kind":"ResourceClaimTemplate","spec":{"spec":{"devices":%b}}}' % CONFIG,
    "DeviceClass": b'{"kind":"DeviceClass","spec":%b}' % CONFIG,
}


@pytest.mark.parametrize("decode", [json.loads, orjson.loads], ids=["json", "orjson"])
@pytest.mark.parametrize("kind", OBJECTS)
def test_opaque_values_stay_bytes_and_are_written_unchanged(kind: str, decode: object) -> None:
    item = KubeObject("v1", kind, raw=OBJECTS[kind])
    parsed = item.parse(decode)  # type: ignore[arg-type]  # both take bytes
    assert str(parsed).count(repr(RawJson(PARAMETERS))) == OBJECTS[kind].count(PARAMETERS)
    assert KubeObject.of(parsed).raw.count(PARAMETERS) == OBJECTS[kind].count(PARAMETERS)
    assert copy.deepcopy(parsed) == parsed


@pytest.mark.parametrize("levels", [120, 300, 900, 1_100, 20_000])
def test_custom_resource_of_any_depth_is_parsed_copied_compared_and_written(levels: int) -> None:
    raw = b'{"kind":"Widget","spec":' + b'{"a":' * levels + b"1" + b"}" * levels + b"}"
    item = KubeObject("example.com/v1", "Widget", raw=raw)
    assert copy.deepcopy(item.parsed) == item.parsed
    assert (
        orjson.loads(orjson.dumps(item.parsed, default=lambda one: one.content.decode()))["kind"] == "Widget"
    )
    assert KubeObject.of(item.parsed).raw == raw
    item.release()
    assert item.raw == raw


def test_opaque_values_of_other_kinds_are_ordinary() -> None:
    assert not has_opaque("Widget", OBJECTS["DeviceClass"])
    item = KubeObject("v1", "Widget", raw=b'{"spec":{"config":[{"opaque":{"parameters":{"a":1}}}]}}')
    assert item.get("spec.config")[0]["opaque"]["parameters"] == {"a": 1}


def test_what_is_no_json_is_refused_with_the_kind() -> None:
    with pytest.raises(ObjectError, match=r"^Widget: not JSON: "):
        _ = KubeObject("v1", "Widget", raw=b'{"spec":').parsed


def test_object_with_many_brackets_and_few_levels_is_not_too_deep() -> None:
    value: dict[str, list[object]] = {"spec": [{}] * 200}
    assert not is_too_deep("Widget", value, b"[{" * 200)
    assert finish(object_steps("Widget", b'{"spec":[]}', orjson.loads)) == {"spec": []}
