"""Records that a maker makes are those that their class makes."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, field
from typing import Any

import pytest
from berth_sdk.parsing.frozen import maker_of


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 0


@dataclass(frozen=True, slots=True)
class Mixed:
    first: str
    named: int = field(default=1, kw_only=True)
    second: str = "b"
    kept: object = field(default=None, init=False)
    last: int = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class Listed:
    items: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Checked:
    x: int

    def __post_init__(self) -> None:
        assert self.x > 0


@pytest.mark.parametrize(
    ("record", "args", "named"),
    [
        (Point, (3,), {}),
        (Point, (3, 4), {}),
        (Point, (), {"y": 4, "x": 3}),
        (Mixed, ("a",), {"last": 2}),
        (Mixed, ("a", "c"), {"last": 2, "named": 5}),
    ],
)
def test_maker_makes_what_the_class_makes(record: Any, args: tuple[Any, ...], named: dict[str, Any]) -> None:
    made = maker_of(record)(*args, **named)
    assert type(made) is record
    assert made == record(*args, **named)
    assert hash(made) == hash(record(*args, **named))
    with pytest.raises(FrozenInstanceError):
        setattr(made, record.__slots__[0], None)


@pytest.mark.parametrize(("record", "args"), [(Point, ()), (Point, (1, 2, 3)), (Mixed, ("a",))])
def test_maker_refuses_the_arguments_that_the_class_refuses(record: Any, args: tuple[Any, ...]) -> None:
    for make in (record, maker_of(record)):
        with pytest.raises(TypeError):
            make(*args)


@pytest.mark.parametrize("record", [Listed, Checked])
def test_class_that_computes_a_field_has_no_maker(record: Any) -> None:
    with pytest.raises(TypeError, match="computes a field"):
        maker_of(record)
