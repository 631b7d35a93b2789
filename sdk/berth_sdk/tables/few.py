"""Where going through rows one by one ends, and numpy begins. Used by the tables, the host and plugins."""

from __future__ import annotations

from typing import Final

FEW: Final = 8
"""Up to so many rows are gone through one by one: numpy takes longer to begin than they take.

One call of numpy costs about as much as ten steps of Python, and what is written for columns makes
several. The limit is for speed alone: both ways come to the same.
"""
