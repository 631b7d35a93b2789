"""The number of rows up to which a Python loop is faster than numpy. Used by the tables, the host and
plugins.
"""

from __future__ import annotations

from typing import Final

FEW: Final = 8
"""The largest number of rows that code handles one by one.

One call of numpy costs about as much as ten steps of Python, and code for columns makes several calls. The
limit changes only the speed: both ways give the same results.
"""
