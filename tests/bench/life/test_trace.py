"""The trace of a life."""

from __future__ import annotations

import hashlib

from berth_bench.life.trace import Trace


def test_lines_have_the_time_and_the_digest_is_that_of_all() -> None:
    at_s = [0.0]
    kept, counted = (Trace(lambda: at_s[0], keeps=keeps) for keeps in (True, False))
    for text, at in (("one", 0.0), ("two", 1.25)):
        at_s[0] = at
        kept.add(text)
        counted.add(text)
    assert kept.lines == ["0.000000 one", "1.250000 two"]
    assert counted.lines == []
    assert kept.count == counted.count == 2
    assert kept.digest == counted.digest == hashlib.sha256(b"0.000000 one\n1.250000 two\n").hexdigest()
