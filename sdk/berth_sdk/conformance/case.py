"""`Case`: one question of the kit, and how its answer is judged. `CASES` has all of them, in their order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from berth_sdk.plugin.v1 import identity_pb2 as identity

if TYPE_CHECKING:
    from berth_sdk.conformance.host import Host

LEVELS: Final = ("core", "stateful", "binding", "group")
"""The levels, each with the ones before it."""


class BrokenError(Exception):
    """The error of an answer that breaks the contract. Its text is the detail of the failed case."""


class SkippedError(Exception):
    """The end of a case that cannot be judged. Its text says why.

    `needs`: the option with which the kit can judge it ("--pod"); empty: there is none.
    """

    def __init__(self, text: str, needs: str = "") -> None:
        self.needs = needs
        super().__init__(text)


@dataclass(frozen=True, slots=True)
class Subject:
    """The plugin under test, and what its instance said in the handshake.

    `trouble`: why the kit could not learn what the plugin declares with its arguments; empty: it could.
    `refused`: the plugin answered its arguments with an error.
    """

    plugin: identity.PluginDescriptor
    hello: identity.HandshakeResponse
    points: frozenset[int] = field(init=False)
    trouble: str = ""
    refused: bool = False

    def __post_init__(self) -> None:
        """Read the points."""
        object.__setattr__(self, "points", frozenset(self.plugin.points))

    def has(self, *names: str) -> bool:
        """Return True if the plugin declares one of these points ("PRE_BIND")."""
        return any(number_of(name) in self.points for name in names)

    @property
    def is_snapshot(self) -> bool:
        """True: the plugin answers with bitmaps."""
        return self.plugin.node_mode == identity.NODE_MODE_SNAPSHOT

    @property
    def kinds(self) -> frozenset[int]:
        """The kinds of the declared needs."""
        return frozenset(need.kind for need in self.plugin.needs)

    @property
    def keeps_state(self) -> bool:
        """True: the host keeps a copy of the cluster state up to date in the instance."""
        return self.is_snapshot or bool(self.kinds - {identity.DeclaredNeed.KIND_WHOLE_POD})

    @property
    def max_message_bytes(self) -> int:
        """The largest message that the instance receives."""
        return self.hello.max_message_bytes or 4 * 1024 * 1024


Condition = Callable[[Subject], bool]


@dataclass(frozen=True, slots=True)
class Case:
    """One case. `id`: `filter.answer`. `point`: the extension point, or the call, that it is about.

    `title`: what conforms. `attaches`: the runner attaches the plugin and sends the state first.
    """

    id: str
    point: str
    level: str
    title: str
    when: Condition
    run: Callable[[Host], None]
    attaches: bool


CASES: Final[list[Case]] = []


def case(
    name: str, level: str, title: str, when: Condition | None = None, *, attaches: bool = True
) -> Callable[[Callable[[Host], None]], Callable[[Host], None]]:
    """Return a decorator that registers a case. The part of `name` before the dot is the point."""

    def register(run: Callable[[Host], None]) -> Callable[[Host], None]:
        CASES.append(Case(name, name.partition(".")[0], level, title, when or _always, run, attaches))
        return run

    return register


def declares(*names: str) -> Condition:
    """Return a condition: the plugin declares one of these points ("PRE_BIND")."""
    return lambda subject: subject.has(*names)


def number_of(name: str) -> int:
    """Return the number of a point ("PRE_BIND")."""
    return identity.ExtensionPoint.Value(f"EXTENSION_POINT_{name}")


def spelled(point: identity.ExtensionPoint.ValueType) -> str:
    """Return a point as BerthConfiguration spells it: "preBind"; of an unknown one its number."""
    if point not in identity.ExtensionPoint.values():
        return str(point)
    first, *rest = identity.ExtensionPoint.Name(point).removeprefix("EXTENSION_POINT_").lower().split("_")
    return first + "".join(word.title() for word in rest)


def _always(_subject: Subject) -> bool:
    return True
