"""Quantities: every form that Kubernetes writes, exact sums, rounding, and refusals."""

from __future__ import annotations

from decimal import ROUND_CEILING, Context, Decimal, localcontext
from typing import Any

import pytest
from berth_sdk.errors import QuantityError
from berth_sdk.quantity import milli_value, nano_value, resource_units, whole_value
from hypothesis import given
from hypothesis import strategies as st

SUFFIXES = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "e3": Decimal(10**3),
    "E-2": Decimal("1e-2"),
}


@pytest.mark.parametrize(
    ("text", "milli", "whole"),
    [
        ("0", 0, 0),
        ("100m", 100, 1),
        ("1", 1000, 1),
        ("0.5", 500, 1),
        (".5", 500, 1),
        ("5.", 5000, 5),
        ("1500m", 1500, 2),
        ("1Ki", 1024000, 1024),
        ("1.5Gi", 1610612736000, 1610612736),
        ("1e3", 1000000, 1000),
        ("1E", 2**63 - 1, 10**18),
        ("+1", 1000, 1),
        ("-1500m", -1500, -2),
        ("1n", 1, 1),
        ("100u", 1, 1),
        ("1001u", 2, 1),
        (3, 3000, 3),
        (0.1, 100, 1),
        ("16Ei", 2**63 - 1, 2**63 - 1),
        ("-16Ei", -(2**63), 1 - 2**63),
    ],
)
def test_quantity_is_read_in_thousandths_and_in_whole_units(text: Any, milli: int, whole: int) -> None:
    assert (milli_value(text), whole_value(text)) == (milli, whole)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "1 Gi",
        "Gi",
        "1gi",
        "0x10",
        "1e",
        "1Kii",
        "--1",
        "1,5",
        "1_000",
        "٣",
        True,
        None,
        [],
        "1\n",
    ],
)
def test_quantities_that_kubernetes_refuses_raise(value: Any) -> None:
    with pytest.raises(QuantityError, match="is not a quantity"):
        nano_value(value)


@given(
    digits=st.integers(0, 10**6),
    places=st.integers(0, 6),
    suffix=st.sampled_from(sorted(SUFFIXES)),
    negative=st.booleans(),
)
def test_value_is_rounded_away_from_zero_and_capped(
    digits: int, places: int, suffix: str, negative: bool
) -> None:
    magnitude = Decimal(digits).scaleb(-places)
    text = f"{'-' if negative else ''}{magnitude:f}{suffix}"
    nano = (magnitude * SUFFIXES[suffix]).scaleb(9).quantize(Decimal(1), ROUND_CEILING)

    def read(scale: int) -> int:
        number = min(int(nano.scaleb(scale).quantize(Decimal(1), ROUND_CEILING)), 2**63)
        return -number if negative else min(number, 2**63 - 1)

    assert nano_value(text) == (-int(nano) if negative else int(nano))
    assert milli_value(text) == read(-6)
    assert whole_value(text) == read(-9)


def test_cpu_counts_in_thousandths_and_everything_else_in_units() -> None:
    assert resource_units("cpu", nano_value("1500m")) == 1500
    assert resource_units("memory", nano_value("1500m")) == 2
    assert resource_units("example.com/cpu", nano_value("3")) == 3


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        pytest.param("1" + "0" * 4_999, 2**63 - 1, id="5000 digits"),
        pytest.param("-" + "9" * 5_000, -(2**63), id="5000 digits below zero"),
        pytest.param("0" * 5_000 + "7", 7, id="5000 zeros before"),
        pytest.param("7." + "0" * 5_000, 7, id="5000 zeros behind"),
        pytest.param("7." + "0" * 5_000 + "1", 8, id="rounded up by the last of 5000"),
        pytest.param("0." + "0" * 5_000 + "1", 1, id="tiny"),
        pytest.param("9" * 5_000 + "e-4999", 10, id="digits taken back by an exponent"),
        pytest.param("1e4999", 2**63 - 1, id="exponent"),
        pytest.param("1e999999999999999999", 2**63 - 1, id="exponent of 18 digits"),
        pytest.param("1e-999999999999999999", 1, id="exponent below zero"),
        pytest.param("0e999999999", 0, id="zero"),
        pytest.param("9" * 5_000 + "Ei", 2**63 - 1, id="binary"),
        pytest.param("0." + "3" * 5_000 + "Ki", 342, id="binary with decimals"),
    ],
)
def test_enormous_and_tiny_quantities_are_capped_and_rounded_up(text: str, whole: int) -> None:
    assert whole_value(text) == whole


def test_binary_quantities_are_capped_before_they_are_added() -> None:
    # Source: quantity.go (ParseQuantity, maxAllowed).
    assert nano_value("16Ei") + nano_value("1Ki") == (2**63 - 1 + 1024) * 10**9
    assert nano_value("-16Ei") == -(2**63 - 1) * 10**9
    assert nano_value("20E") == 20 * 10**27


@pytest.mark.parametrize("digits", ["0", "1", "0.0"])
def test_long_text_that_is_no_quantity_is_refused_in_one_pass(digits: str) -> None:
    # With a pattern that goes back, this does not end within a lifetime.
    with pytest.raises(QuantityError):
        nano_value(digits[:-1] + digits[-1] * 1_000_000 + "x")


def test_error_quotes_no_enormous_text_whole() -> None:
    with pytest.raises(QuantityError) as caught:
        nano_value("1x" * 5_000)
    assert len(str(caught.value)) < 250
    assert "(10000 characters)" in str(caught.value)


@given(
    st.tuples(
        st.sampled_from(("", "-", "+")),
        st.text("0123456789", max_size=130),
        st.text("0123456789", max_size=130),
        st.sampled_from(sorted(set(SUFFIXES) | {"P", "E", "e-30", "e30"})),
    )
)
def test_long_quantities_equal_exact_arithmetic(parts: tuple[str, str, str, str]) -> None:
    sign, whole, decimals, suffix = parts
    text = f"{sign}{whole}.{decimals}{suffix}" if whole or decimals else "0"
    scales = {
        **SUFFIXES,
        "P": Decimal(10**15),
        "E": Decimal(10**18),
        "e-30": Decimal("1e-30"),
        "e30": Decimal("1e30"),
    }
    with localcontext(Context(prec=1_000)):
        exact = Decimal(f"{whole or '0'}.{decimals or '0'}") * scales[suffix] * 10**9
        nano = int(exact.to_integral_value(ROUND_CEILING))
    most = (2**63 - 1) * 10**9 if suffix.endswith("i") else 10**49
    if not whole and not decimals:
        nano = 0
    wanted = min(nano, most)
    got = nano_value(text)
    assert abs(got) == wanted or (abs(got) == most and nano >= 10**48)
