"""Pods that write one claim at the same time: they take turns, and the writer enters those that wait."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from berth_plugins.dynamic_resources.binding import FINALIZER, Binding, BindingError, ClaimBinding
from berth_plugins.dynamic_resources.claims import MAX_CONSUMERS
from berth_plugins.dynamic_resources.reserved import Reserved, decode, encode
from berth_plugins.dynamic_resources.turns import TURN_S, Turns
from berth_sdk.json.reader import RawJson
from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import Pod
from berth_sdk.results import ObjectPatch, PatchOutcome, PatchResult
from berth_sdk.slices import at_once
from support.device_objects import DRIVER, claim

Json = dict[str, Any]
ALLOCATION: Json = {
    "devices": {"results": [{"request": "r", "driver": DRIVER, "pool": "n1", "device": "d0"}]},
}
OTHER: Json = {
    "devices": {"results": [{"request": "r", "driver": DRIVER, "pool": "n1", "device": "d1"}]},
}


class Server:
    """One claim, whose writes are conditional on its version."""

    def __init__(self, **status: Any) -> None:
        self.now = 100.0
        self.turns = Turns(lambda: self.now)
        self.raw = claim("a", metadata={"resourceVersion": "1", "finalizers": [FINALIZER]})
        if status:
            self.raw["status"] = status
        self.writes = 0

    @property
    def claim(self) -> KubeObject:
        return KubeObject.of(self.raw)

    def binding(
        self, name: str, allocation: Json | None = ALLOCATION, watched: KubeObject | None = None
    ) -> Binding:
        reserved = Reserved("default", "a", "uid-a", allocation, group="podgroup/default/g")
        pod = Pod(name=name, uid=f"uid-{name}")
        claim = ClaimBinding(watched or self.claim, reserved, is_watched=watched is not None)
        return Binding(pod, [claim], self.turns, f"cycle-{name}")

    def apply(self, patch: ObjectPatch) -> PatchResult:
        current = self.claim
        if patch.expected_resource_version != current.ref.resource_version:
            return PatchResult(
                outcome=PatchOutcome.CONFLICT, ref=current.ref, object=current, message="conflict"
            )
        self.writes += 1
        metadata = {**self.raw["metadata"], "resourceVersion": str(int(current.ref.resource_version) + 1)}
        status = {**self.raw.get("status", {}), **patch.merge_patch.get("status", {})}
        self.raw = {**self.raw, "metadata": metadata, "status": status}
        return PatchResult(outcome=PatchOutcome.APPLIED, ref=self.claim.ref, object=self.claim)

    def users(self) -> list[str]:
        return [one["name"] for one in self.raw["status"]["reservedFor"]]


def test_writer_enters_the_pods_that_wait_for_their_turn() -> None:
    server = Server()
    one, *others = [server.binding(name) for name in ("one", "two", "three")]
    (patch,) = at_once(one.patches())
    assert [at_once(other.patches()) for other in others] == [(), ()]
    assert [other.waits for other in others] == [1, 1]
    one.take([server.apply(patch)])
    assert at_once(one.patches()) == ()
    (second,) = at_once(others[0].patches())
    assert [who["name"] for who in second.merge_patch["status"]["reservedFor"]] == ["one", "two", "three"]
    others[0].take([server.apply(second)])
    assert [at_once(other.patches()) for other in others] == [(), ()]
    assert [other.waits for other in others] == [0, 0]
    assert (server.users(), server.writes) == (["one", "two", "three"], 2)
    assert len(server.turns) == 0


def test_claim_from_which_the_pod_was_taken_is_written_again_though_the_watch_still_names_the_pod() -> None:
    server = Server(allocation=ALLOCATION, reservedFor=[{"name": "one", "uid": "uid-one"}])
    watched = server.claim
    metadata = {**server.raw["metadata"], "resourceVersion": "2"}
    server.raw = {**server.raw, "metadata": metadata, "status": {"allocation": ALLOCATION}}
    again = server.binding("one", watched=watched)
    for _ in range(2):  # the first write is refused, as it is based on the version that the watch shows
        (patch,) = at_once(again.patches())
        again.take([server.apply(patch)])
    assert at_once(again.patches()) == ()
    assert server.users() == ["one"]


@pytest.mark.parametrize(
    ("outcome", "read", "seen_from"),
    [
        (PatchOutcome.UNKNOWN, None, "2"),
        (PatchOutcome.CONFLICT, "1", "2"),
        (PatchOutcome.CONFLICT, "3", None),
        (PatchOutcome.REFUSED, None, None),
        (PatchOutcome.APPLIED, "2", "2"),
    ],
)
def test_claim_shows_from_a_version_on_whether_a_patch_was_applied(
    outcome: PatchOutcome, read: str | None, seen_from: str | None
) -> None:
    server = Server()
    binding = server.binding("one")
    (patch,) = at_once(binding.patches())
    assert binding.claims[0].seen_from == "2"  # the call may be under way
    found = None if read is None else KubeObject.of(claim("a", metadata={"resourceVersion": read}))
    with suppress(BindingError):
        binding.take([PatchResult(outcome=outcome, ref=patch.ref, object=found)])
    assert binding.claims[0].seen_from == seen_from


def test_patch_without_an_answer_stays_in_doubt_while_the_claim_has_the_version_that_it_expects() -> None:
    server = Server()
    binding = server.binding("one")
    (patch,) = at_once(binding.patches())
    binding.take([PatchResult(outcome=PatchOutcome.CONFLICT, ref=patch.ref, object=server.claim)])
    (again,) = at_once(binding.patches())
    with pytest.raises(BindingError):
        binding.take([PatchResult(outcome=PatchOutcome.REFUSED, ref=again.ref)])
    assert binding.claims[0].seen_from == "2"


def test_pod_that_gives_up_lets_the_next_one_write() -> None:
    server = Server()
    one, two = server.binding("one"), server.binding("two")
    assert len(at_once(one.patches())) == 1
    assert at_once(two.patches()) == ()
    at_once(one.leave())
    assert len(at_once(two.patches())) == 1


def test_turn_without_an_answer_is_over_after_some_time() -> None:
    server = Server()
    one, two = server.binding("one"), server.binding("two")
    (late,) = at_once(one.patches())
    assert at_once(two.patches()) == ()
    server.now += TURN_S
    (patch,) = at_once(two.patches())
    two.take([server.apply(patch)])
    one.take([server.apply(late)])
    (again,) = at_once(one.patches())
    assert "allocation" not in again.merge_patch["status"]
    one.take([server.apply(again)])
    assert server.users() == ["two", "one"]


def test_entered_pods_are_as_many_as_a_claim_can_have() -> None:
    server = Server(reservedFor=[{"name": f"p{i}", "uid": f"p{i}"} for i in range(MAX_CONSUMERS - 1)])
    one, two = server.binding("one"), server.binding("two")
    assert len(at_once(one.patches())) == 1
    assert at_once(two.patches()) == ()
    at_once(one.leave())
    three = server.binding("three")
    (patch,) = at_once(three.patches())
    assert len(patch.merge_patch["status"]["reservedFor"]) == MAX_CONSUMERS


@pytest.mark.parametrize(
    ("chosen", "present", "text"),
    [
        (ALLOCATION, OTHER, "claim default/a got allocated elsewhere in the meantime"),
        (None, None, "claim default/a got deallocated elsewhere in the meantime"),
    ],
)
def test_claim_that_somebody_else_changed_is_an_error(
    chosen: Json | None, present: Json | None, text: str
) -> None:
    server = Server(**({} if present is None else {"allocation": present}))
    with pytest.raises(BindingError, match=text):
        at_once(server.binding("one", chosen).patches())


def test_token_of_an_earlier_build_is_still_read() -> None:
    reserved = Reserved("default", "a", "uid-a", ALLOCATION, None, [], "podgroup/default/g")
    assert decode(encode([reserved])) == [reserved]
    old = b'[["default","a","uid-a",null,null,[]]]'
    assert decode(old) == [Reserved("default", "a", "uid-a", None, None, [])]


@pytest.mark.parametrize("parameters", [b'{"a": 1.0}', b'{"a":' * 600 + b"1" + b"}" * 600])
def test_token_keeps_opaque_parameters_as_their_owner_wrote_them(parameters: bytes) -> None:
    config = [{"opaque": {"driver": "d", "parameters": RawJson(parameters)}}, {"source": "FromClass"}]
    allocation = {"devices": {**ALLOCATION["devices"], "config": config}}
    reserved = Reserved("default", "parameters", "uid-a", allocation, None, [], "podgroup/default/g")
    plain = Reserved("default", "b", "uid-b", None, None, [])
    whole = encode([plain, reserved])
    assert whole is not None and parameters in whole
    assert decode(whole) == [plain, reserved]
    assert decode(whole[:-1]) is None
