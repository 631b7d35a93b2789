"""Makes frozen records with many fields as fast as ordinary ones. Used by `pod` and `kube_object`.

A frozen dataclass writes every field through `object.__setattr__`, which for a pod takes as long as reading
all of its JSON. Here the fields are written to a *draft*: a writable object with the same layout. Before
other code sees the draft, its class is changed to the record's class, which freezes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def draft_of(record: type[Any]) -> type[Any]:
    """Return the class of drafts of `record`, a dataclass with slots and without a base class.

    The caller must write every field: a draft has no defaults.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True, slots=True)
    ... class Point:
    ...     x: int
    >>> draft = draft_of(Point)()
    >>> draft.x = 3
    >>> draft.__class__ = Point
    >>> draft
    Point(x=3)
    """
    return type(f"{record.__name__}Draft", (), {"__slots__": record.__slots__})


def drafting_copier(record: type[T], draft: type[Any]) -> Callable[[T], Any]:
    """Return a function that copies all fields of a record into a draft. Its code is generated, as in
    dataclasses.
    """
    lines = ["def copy(source):", "    copied = draft()"]
    lines += [f"    copied.{name} = source.{name}" for name in record.__slots__]  # type: ignore[attr-defined]
    lines.append("    return copied")
    scope: dict[str, Any] = {"draft": draft}
    exec("\n".join(lines), scope)
    copier: Callable[[T], Any] = scope["copy"]
    return copier
