"""Plain YAML words are resolved as by yaml.v2, not as by PyYAML."""

from __future__ import annotations

import math

import pytest
from berth_sdk.yaml.reader import read_one
from berth_sdk.yaml.scalars import YamlTextError as SourceError
from berth_sdk.yaml.scalars import resolve_tagged, resolve_word


@pytest.mark.parametrize(
    ("word", "want"),
    [
        pytest.param("on", True, id="on is a boolean"),
        pytest.param("Off", False, id="Off is a boolean"),
        pytest.param("y", True, id="y is a boolean, unlike in PyYAML"),
        pytest.param("N", False, id="N is a boolean"),
        pytest.param("oN", "oN", id="odd case is a string"),
        pytest.param("", None, id="nothing is null"),
        pytest.param("~", None, id="tilde is null"),
        pytest.param("010", 8, id="leading zero is octal"),
        pytest.param("0o17", 15, id="0o is octal"),
        pytest.param("0x1F", 31, id="hexadecimal"),
        pytest.param("-0b101", -5, id="binary with a sign"),
        pytest.param("09", 9.0, id="no octal digit: a float"),
        pytest.param("1_000", 1000, id="underscores are skipped"),
        pytest.param("+12", 12, id="plus sign"),
        pytest.param("1e3", 1000.0, id="exponent without a point is a number"),
        pytest.param(".5", 0.5, id="no digit before the point"),
        pytest.param("._5", "._5", id="an underscore after the point is no number"),
        pytest.param("1:30", "1:30", id="base 60 is a string"),
        pytest.param("2001-01-01", "2001-01-01", id="a date stays text"),
        pytest.param("18446744073709551615", 2**64 - 1, id="unsigned 64 bits"),
        pytest.param("18446744073709551616", 1.8446744073709552e19, id="more is a float"),
        pytest.param("-9223372036854775809", -9.223372036854775809e18, id="less than 64 bits is a float"),
        pytest.param("1e999", "1e999", id="what does not fit is a string"),
        pytest.param("9" * 5000, "9" * 5000, id="endless digits are a string"),
        pytest.param("-", "-", id="a lone sign is a string"),
        pytest.param("10s", "10s", id="a duration is a string"),
    ],
)
def test_word_resolves_as_in_yaml_v2(word: str, want: object) -> None:
    got = resolve_word(word)
    assert (type(got), got) == (type(want), want)


def test_words_for_no_number_resolve_to_floats() -> None:
    assert math.isnan(float(str(resolve_word(".NaN"))))
    assert resolve_word("-.inf") == -math.inf


@pytest.mark.parametrize(
    ("tag", "text", "want"),
    [
        pytest.param("tag:yaml.org,2002:str", "5", "5", id="string"),
        pytest.param("tag:yaml.org,2002:int", "5", 5, id="integer"),
        pytest.param("tag:yaml.org,2002:float", "5", 5.0, id="float of an integer"),
        pytest.param("tag:yaml.org,2002:binary", "Zm9v", "foo", id="binary"),
        pytest.param("!mine", "5", "5", id="unknown tag is a string"),
    ],
)
def test_tag_decides_the_type_of_a_word(tag: str, text: str, want: object) -> None:
    got = resolve_tagged(tag, text, 1)
    assert (type(got), got) == (type(want), want)


@pytest.mark.parametrize(
    ("tag", "text"),
    [
        pytest.param("tag:yaml.org,2002:int", "five", id="no integer"),
        pytest.param("tag:yaml.org,2002:bool", "3", id="no boolean"),
        pytest.param("tag:yaml.org,2002:binary", "é", id="no base64"),
    ],
)
def test_tag_that_does_not_fit_is_an_error_with_its_line(tag: str, text: str) -> None:
    with pytest.raises(SourceError) as caught:
        resolve_tagged(tag, text, 7)
    assert caught.value.line == 7


def test_keys_beyond_a_float32_are_infinite_as_in_go() -> None:
    assert read_one("{1e100: a, -1e100: b, 1e30: c}") == {".inf": "a", "-.inf": "b", "1e+30": "c"}
