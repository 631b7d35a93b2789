"""A row of the mapping table: one name of an older form, and its counterpart in v1."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Form(StrEnum):
    """A form of configuration that is converted."""

    FLAT = "flat lists"
    V1ALPHA1 = "v1alpha1"
    V1ALPHA2 = "v1alpha2"
    V1BETA1 = "v1beta1"
    V1BETA2 = "v1beta2"
    V1BETA3 = "v1beta3"
    POLICY = "Policy"


class Subject(StrEnum):
    """The kind of name that a row is about."""

    FIELD = "field"
    POINT = "extension point"
    PLUGIN = "plugin"
    PREDICATE = "predicate"
    PRIORITY = "priority"


class Change(StrEnum):
    """How a name is converted. EXACT: v1 decides the same; APPROXIMATED: nearly; DROPPED: v1 has no equal."""

    EXACT = "exact"
    APPROXIMATED = "approximated"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One name of an older form. `becomes` are the names in v1, empty where there is none.

    `forms`: where the name is valid; elsewhere it is unknown, or gone already. `strategy`: the
    `scoringStrategy` of NodeResourcesFit that the name stands for.
    """

    subject: Subject
    name: str
    forms: frozenset[Form]
    becomes: tuple[str, ...] = ()
    change: Change = Change.EXACT
    since: str
    note: str = ""
    strategy: str | None = None
