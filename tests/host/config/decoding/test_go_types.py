"""Each Go type accepts what Go's strict JSON decoder accepts."""

from __future__ import annotations

import pytest
from berth_host.config.decoding.go_types import (
    BOOL,
    BYTES,
    DURATION,
    FLOAT32,
    INT32,
    INT64,
    STRING,
    Context,
    GoType,
    decode_value,
    map_of,
    pointer_to,
    slice_of,
)
from berth_host.config.source.yaml_reader import read_yaml


def decode(go_type: GoType, text: str) -> tuple[object, list[str]]:
    context = Context(is_yaml=True)
    value = decode_value(go_type, read_yaml(text).root, "field", context)
    return value, [finding.text for finding in context.findings]


@pytest.mark.parametrize(
    ("go_type", "text", "want"),
    [
        pytest.param(STRING, "'5'", "5", id="quoted number"),
        pytest.param(STRING, "null", "", id="null is the zero value"),
        pytest.param(BOOL, "yes", True, id="yes"),
        pytest.param(INT32, "4.0", 4, id="whole float"),
        pytest.param(INT32, "-2147483648", -(2**31), id="smallest"),
        pytest.param(INT64, "9223372036854775807", 2**63 - 1, id="largest"),
        pytest.param(FLOAT32, "50", 50.0, id="integer as a float"),
        pytest.param(DURATION, "1m", 60.0, id="duration"),
        pytest.param(BYTES, "Zm9v", b"foo", id="base64"),
        pytest.param(BYTES, "[102, 111]", b"fo", id="list of bytes"),
        pytest.param(pointer_to(INT32), "~", None, id="absent"),
        pytest.param(pointer_to(DURATION), "null", None, id="absent duration"),
        pytest.param(slice_of(STRING), "[a, null]", ("a", ""), id="null in a list"),
        pytest.param(slice_of(STRING), "[]", (), id="empty list is not nil"),
        pytest.param(map_of(STRING), "{a: b}", {"a": "b"}, id="map"),
    ],
)
def test_accepted(go_type: GoType, text: str, want: object) -> None:
    assert decode(go_type, text) == (want, [])


@pytest.mark.parametrize(
    ("go_type", "text", "message"),
    [
        pytest.param(STRING, "on", "YAML reads the plain word on so: put it in quotes", id="word for true"),
        pytest.param(STRING, "5", "expected a string, got the number 5", id="number"),
        pytest.param(BOOL, "'true'", 'got the string "true" (remove the quotes)', id="quoted boolean"),
        pytest.param(INT32, "'3'", "remove the quotes", id="quoted integer"),
        pytest.param(INT32, "true", "got the boolean true", id="boolean is no integer"),
        pytest.param(INT32, "1.5", "an integer of 32 bits", id="fraction"),
        pytest.param(INT32, "2147483648", "an integer of 32 bits", id="too large"),
        pytest.param(FLOAT32, "1e39", "a number of 32 bits", id="too large for a float"),
        pytest.param(DURATION, "15", "a duration with a unit", id="number for a duration"),
        pytest.param(DURATION, "null", "got null", id="null for a duration"),
        pytest.param(DURATION, "'15'", "the unit is missing", id="no unit"),
        pytest.param(BYTES, "'Zm9'", "base64", id="no padding"),
        pytest.param(BYTES, "[300]", "base64", id="not a byte"),
        pytest.param(slice_of(STRING), "{}", "expected a list, got an object", id="object for a list"),
        pytest.param(slice_of(INT32), "[1, x]", "field[1]: expected an integer", id="item"),
        pytest.param(map_of(STRING), "[]", "expected an object, got a list", id="list for a map"),
        pytest.param(map_of(STRING), "{a: 1, a: x}", "already set", id="repeated key"),
    ],
)
def test_refused_with_the_cure(go_type: GoType, text: str, message: str) -> None:
    _, texts = decode(go_type, text)
    assert any(message in text for text in texts)


@pytest.mark.parametrize(
    ("text", "want"), [("50", 50), ("0.1", 0.1), ("200.25", 200.25), ("3.4028235e38", 3.4028234663852886e38)]
)
def test_a_float_is_written_as_short_as_go_writes_it(text: str, want: float) -> None:
    assert FLOAT32.encode(decode(FLOAT32, text)[0]) == pytest.approx(want, rel=1e-7)
    assert FLOAT32.encode(decode(FLOAT32, "0.1")[0]) == 0.1


def test_a_duration_is_written_as_text_and_bytes_as_base64() -> None:
    assert DURATION.encode(150.0) == "2m30s"
    assert BYTES.encode(b"foo") == "Zm9v"
