"""`Scope`: what a class declares, with or without arguments, and what travels."""

from __future__ import annotations

from typing import Any, cast

import pytest
from berth_sdk import Plugin, Scope
from berth_sdk.errors import PluginDefinitionError
from berth_sdk.handle import Handle
from berth_sdk.plugin.v1 import identity_pb2
from berth_sdk.runtime.descriptor import describe
from berth_sdk.runtime.plugin_runtime import PluginRuntime, make_plugin
from berth_sdk.runtime.profiles import for_all_profiles
from berth_sdk.scope import scope_text
from berth_sdk.wire.results import encode_descriptor

GPU = Scope(resources=("example.com/gpu",))


class Judges(Plugin):
    def filter(self, state: object, pod: object, node: object) -> None: ...


def declaring(value: Any) -> type:
    return type("Declares", (Judges,), {"scope": value})


class ByArguments(Judges):
    def __init__(self, args: Any, handle: Handle) -> None:
        self.scope = Scope(namespaces=args["namespaces"])


def test_one_scope_several_none_and_no_pod() -> None:
    other = Scope(namespaces=("a",))
    assert describe(Judges).scope is None
    assert describe(declaring(GPU)).scope == (GPU,)
    assert describe(declaring([GPU, other])).scope == (GPU, other)
    assert describe(declaring(())).scope == ()


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("gpu", "it must be a Scope or a list of Scope"),
        ([GPU, "gpu"], "it must be a Scope or a list of Scope"),
        (Scope(), "without a condition"),
        (Scope(resources=cast(Any, "example.com/gpu")), "resources is 'example.com/gpu'.*list of names"),
        (Scope(namespaces=("",)), "namespaces is .*list of names"),
        (Scope(label_selector="(("), "label_selector cannot be read"),
        (Scope(label_selector=cast(Any, {"a": "b"})), "it must be text"),
    ],
)
def test_wrong_scope_is_refused_with_the_cure(value: Any, problem: str) -> None:
    with pytest.raises(PluginDefinitionError, match=rf"Declares\.scope.*{problem}"):
        describe(declaring(value))


def test_arguments_may_change_the_scope_and_profiles_add_up() -> None:
    found = {
        profile: PluginRuntime(
            make_plugin(ByArguments, {"namespaces": [profile]}, cast(Handle, None), "ByArguments")
        ).descriptor
        for profile in ("a", "b")
    }
    terms = (Scope(namespaces=("a",)), Scope(namespaces=("b",)))
    assert for_all_profiles(found).scope == terms
    assert for_all_profiles({**found, "c": describe(Judges)}).scope is None


def test_scope_travels_and_is_shown() -> None:
    scope = Scope(
        label_selector="a=b",
        annotation_keys=("k",),
        namespaces=("n",),
        resources=("r",),
        device_classes=("d",),
        storage_classes=("s",),
    )
    assert not encode_descriptor(describe(Judges)).HasField("scope")
    assert encode_descriptor(describe(declaring(()))).HasField("scope")
    (term,) = encode_descriptor(describe(declaring(scope))).scope.terms
    assert term == identity_pb2.PodScopeTerm(
        label_selector="a=b",
        annotation_keys=["k"],
        namespaces=["n"],
        resources=["r"],
        device_classes=["d"],
        storage_classes=["s"],
    )
    assert [scope_text(one) for one in (None, (), (GPU, Scope(namespaces=("a",))))] == [
        "every pod",
        "no pod",
        "resources example.com/gpu or namespaces a",
    ]
