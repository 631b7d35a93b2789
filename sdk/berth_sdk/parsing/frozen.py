"""Makes frozen records as fast as ordinary ones, for code that makes some for every pod.

A frozen dataclass writes every field through `object.__setattr__`, which for a pod takes as long as reading
all of its JSON, and for two fields four times as long as writing them. Here the fields are written to a
*draft*: a writable object with the same layout. Before other code sees the draft, its class is changed to the
record's class, which freezes it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
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


def maker_of(record: Callable[P, T]) -> Callable[P, T]:
    """Return a function that makes a record from the arguments of its class, faster than the class does.

    `record`: a class as for `draft_of`. Raises TypeError for one that computes a field: by `__post_init__`,
    or by a default factory. Its code is generated, as in dataclasses.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True, slots=True, kw_only=True)
    ... class Point:
    ...     x: int
    ...     y: int = 0
    >>> maker_of(Point)(x=3)
    Point(x=3, y=0)
    """
    made = cast("type[Any]", record)
    known = fields(made)
    if hasattr(made, "__post_init__") or any(one.default_factory is not MISSING for one in known):
        raise TypeError(f"{made.__name__} computes a field, which a maker does not do")
    scope: dict[str, Any] = {"draft": draft_of(made), "record": made}
    by_place: list[str] = []
    by_name: list[str] = ["*"]
    lines = ["    made = draft()"]
    for one in known:
        default = "" if one.default is MISSING else f"default_{one.name}"
        if default:
            scope[default] = one.default
        if one.init:
            arguments = by_name if one.kw_only else by_place
            arguments.append(f"{one.name}={default}" if default else one.name)
        lines.append(f"    made.{one.name} = {one.name if one.init else default}")
    lines += ["    made.__class__ = record", "    return made"]
    arguments = by_place + (by_name if len(by_name) > 1 else [])
    exec("\n".join([f"def make({', '.join(arguments)}):", *lines]), scope)
    maker: Callable[P, T] = scope["make"]
    return maker
