"""One descriptor for a plugin in several profiles, whose instances declare different things."""

from __future__ import annotations

from dataclasses import replace

import pytest
from berth_sdk.errors import PluginArgsError
from berth_sdk.events import ANY_RESOURCE, EventInterest
from berth_sdk.extension_points import (
    DependsOn,
    ExtensionPoint,
    NodeColumn,
    NodeMode,
    PodSensitivity,
    ScoreNormalization,
)
from berth_sdk.needs import Need
from berth_sdk.pod_fields import PodField
from berth_sdk.runtime.descriptor import Descriptor
from berth_sdk.runtime.profiles import for_all_profiles

NODE_ADD, POD_DELETE = EventInterest("Node", ("add",)), EventInterest("Pod", ("delete",))


def one(**fields: object) -> Descriptor:
    return Descriptor(name="Demo", points=(ExtensionPoint.FILTER,), **fields)  # type: ignore[arg-type]


def both(first: Descriptor, second: Descriptor) -> Descriptor:
    found = for_all_profiles({"a": first, "b": second})
    assert set(for_all_profiles({"b": second, "a": first}).needs) == set(found.needs)
    return found


def test_needs_and_shared_reads_are_those_of_all() -> None:
    first = one(needs=(Need.nodes(),), reads_shared=("A/x",))
    second = one(needs=(Need.nodes(), Need.pods()), reads_shared=("B/y",))
    found = both(first, second)
    assert found.needs == (Need.nodes(), Need.pods())
    assert found.reads_shared == ("A/x", "B/y")


def test_an_event_names_the_profiles_that_wait_for_it() -> None:
    first = one(events=(NODE_ADD,))
    found = both(first, one(events=(POD_DELETE, NODE_ADD))).events
    assert found == (NODE_ADD, replace(POD_DELETE, profiles=("b",)))
    assert both(first, one(events=())).events == (replace(NODE_ADD, profiles=("a",)),)
    assert both(one(events=()), one(events=())).events == ()


def test_any_event_is_that_of_the_profile_that_declares_none() -> None:
    assert both(one(), one()).events is None
    any_event = both(one(events=()), one(events=None)).events
    assert any_event == tuple(EventInterest(resource, profiles=("b",)) for resource in ANY_RESOURCE)


def test_an_event_for_another_profile_is_left_out() -> None:
    for_a = replace(NODE_ADD, profiles=("a",))
    assert both(one(events=(for_a,)), one(events=(for_a, POD_DELETE))).events == (
        for_a,
        replace(POD_DELETE, profiles=("b",)),
    )


def test_the_strictest_sensitivity_holds() -> None:
    sensitivities = [PodSensitivity.NONE, PodSensitivity.CLUSTER, PodSensitivity.NODE]
    by_profile = {one.name: Descriptor(name="Demo", points=(), pod_sensitivity=one) for one in sensitivities}
    assert for_all_profiles(by_profile).pod_sensitivity is PodSensitivity.CLUSTER


@pytest.mark.parametrize(
    ("first", "second", "weakest"),
    [
        (DependsOn.NODE, DependsOn.NODE, DependsOn.NODE),
        (DependsOn.NODE, DependsOn.ROW, DependsOn.ROW),
        (DependsOn.NODE, DependsOn.NODES, DependsOn.NODES),
        (DependsOn.ROW, DependsOn.NODES, DependsOn.TABLE),
        (DependsOn.TABLE, DependsOn.NODE, DependsOn.TABLE),
        (DependsOn.TABLE, DependsOn.OTHER, DependsOn.OTHER),
        (DependsOn.NODE, None, None),
    ],
    ids=str,
)
def test_answers_depend_on_the_most_that_one_declares(
    first: DependsOn, second: DependsOn, weakest: DependsOn | None
) -> None:
    fields, reads = (PodField.LABELS,), frozenset({NodeColumn.TAINTS})
    found = both(
        one(depends_on=first, sign_fields=fields, reads=reads, host_keeps_answers=True),
        one(depends_on=second, sign_fields=(PodField.IMAGES,), reads=reads, host_keeps_answers=True),
    )
    assert found.depends_on is weakest
    assert found.sign_fields == (None if weakest is None else (PodField.LABELS, PodField.IMAGES))
    assert found.reads == (reads if weakest in (DependsOn.NODE, DependsOn.ROW) else None)
    assert found.host_keeps_answers == (weakest in (DependsOn.NODE, DependsOn.ROW, DependsOn.NODES))


def test_what_one_does_not_declare_holds_for_none() -> None:
    declared = one(
        depends_on=DependsOn.ROW,
        sign_fields=(PodField.LABELS,),
        reads=frozenset({NodeColumn.TAINTS}),
        host_keeps_answers=True,
    )
    found = both(declared, one(depends_on=DependsOn.ROW))
    assert (found.sign_fields, found.reads, found.host_keeps_answers) == (None, None, False)


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (
            {"node_mode": NodeMode.NAMES},
            {"node_mode": NodeMode.SNAPSHOT},
            "node_mode NAMES in profile a, SNAPSHOT in profile b",
        ),
        (
            {"normalization": ScoreNormalization.NONE},
            {"normalization": ScoreNormalization.HOST_MAX},
            "normalization NONE in profile a, HOST_MAX in profile b",
        ),
    ],
    ids=["node mode", "normalization"],
)
def test_a_contradiction_is_an_error_with_the_cure(
    first: dict[str, object], second: dict[str, object], words: str
) -> None:
    with pytest.raises(PluginArgsError, match=f"{words}.*: give the profiles arguments that agree in it"):
        for_all_profiles({"a": one(**first), "b": one(**second)})
