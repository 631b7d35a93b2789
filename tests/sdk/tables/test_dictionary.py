"""Values and their codes."""

from __future__ import annotations

import numpy as np
from berth_sdk.tables import Dictionary


def test_value_keeps_its_code_and_absent_is_zero() -> None:
    words: Dictionary[str] = Dictionary()
    assert [words.encode(word) for word in ("a", "b", "a")] == [1, 2, 1]
    assert words.values == [None, "a", "b"]
    assert (words.find("b"), words.find("c"), len(words)) == (2, -1, 3)


def test_test_of_each_value_gives_a_mask_of_codes() -> None:
    words: Dictionary[str] = Dictionary()
    codes = np.array([words.encode("aa"), 0, words.encode("b"), words.encode("aa")])
    assert words.where(lambda word: word.startswith("a"))[codes].tolist() == [True, False, False, True]
    assert words.members(["b", "never seen"])[codes].tolist() == [False, False, True, False]
