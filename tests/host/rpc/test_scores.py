"""Normalisation by the host: the exact arithmetic, sign and rounding included."""

from __future__ import annotations

import math

import numpy as np
import pytest
from berth_host.rpc.scores import host_max, host_max_reversed, host_min_max, normalize
from berth_sdk.extension_points import ScoreNormalization
from hypothesis import given
from hypothesis import strategies as st

FAR = st.lists(st.integers(-(10**12), 10**12), min_size=1, max_size=20)
# More nodes than values between the extremes: the values are normalised, and looked up for each node.
NEAR = (st.integers(-20, 20) | st.integers(-(10**12), 10**12)).flatmap(
    lambda least: st.lists(st.integers(least, least + 9), min_size=10, max_size=20)
)
SCORES = FAR | NEAR


def array(values: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.asarray(values, dtype=np.int64)


def go_quotient(numerator: int, divisor: int) -> int:
    return math.trunc(abs(numerator) // divisor) * (1 if numerator >= 0 else -1)


@given(SCORES)
def test_max_scales_by_the_highest_score_and_truncates_towards_zero(values: list[int]) -> None:
    highest = max(0, *values)
    want = values if highest == 0 else [go_quotient(100 * value, highest) for value in values]
    assert host_max(array(values)).tolist() == want


@given(SCORES)
def test_reversed_max_is_a_hundred_minus_max(values: list[int]) -> None:
    highest = max(0, *values)
    want = [100] * len(values)
    if highest:
        want = [100 - go_quotient(100 * value, highest) for value in values]
    assert host_max_reversed(array(values)).tolist() == want


@given(SCORES)
def test_min_max_divides_in_doubles_before_it_multiplies(values: list[int]) -> None:
    lowest, highest = min(values), max(values)
    want = [0] * len(values)
    if highest > lowest:
        want = [int(100.0 * (float(value - lowest) / float(highest - lowest))) for value in values]
    assert host_min_max(array(values)).tolist() == want


@pytest.mark.parametrize("how", [ScoreNormalization.PLUGIN, ScoreNormalization.NONE, ScoreNormalization.RPC])
def test_scores_that_others_make_final_stay_as_they_are(how: ScoreNormalization) -> None:
    scores = array([7, -3, 400])
    assert normalize(how, scores) is scores


@pytest.mark.parametrize(
    ("how", "want"),
    [
        pytest.param(ScoreNormalization.HOST_MAX, [0, 50, 100], id="max"),
        pytest.param(ScoreNormalization.HOST_MAX_REVERSED, [100, 50, 0], id="reversed"),
        pytest.param(ScoreNormalization.HOST_MIN_MAX, [0, 50, 100], id="min-max"),
    ],
)
def test_each_normaliser_is_reached_by_its_name(how: ScoreNormalization, want: list[int]) -> None:
    assert normalize(how, array([0, 2, 4])).tolist() == want


def test_no_nodes_give_no_scores() -> None:
    for how in (host_max, host_max_reversed, host_min_max):
        assert how(array([])).tolist() == []


def test_near_scores_at_the_limits_of_64_bits_are_looked_up() -> None:
    most = 2**63 - 1
    assert host_min_max(array([most, most - 2, most - 1, most])).tolist() == [100, 0, 50, 100]
    assert host_min_max(array([-most, 2 - most, 1 - most, -most])).tolist() == [0, 100, 50, 0]
