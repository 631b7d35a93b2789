"""`close` of served instances: at a Configure that replaces them, and when the server stops."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import pytest
from berth_sdk import CycleState, ExtensionPoint, Handle, HandleError, Plugin, PluginArgsError, Pod, Status
from berth_sdk.node import Node
from berth_sdk.plugin.v1 import identity_pb2
from berth_sdk.plugin.v1 import scheduling_pb2 as spb
from support.sdk_server import ALL, PROFILE, RawHost, plugin_args, refused
from support.waiting import PATIENCE_S

from .conftest import Serve

WAIT_S = PATIENCE_S
POD = Pod(name="web", uid="u1")
POINTS = (ExtensionPoint.FILTER, ExtensionPoint.RESERVE, ExtensionPoint.PRE_BIND)


class Noted(Plugin):
    """Notes its calls, with the argument `number`. 0 is refused. A pod called `slow` waits for `let_go`."""

    notes: ClassVar[list[str]] = []
    noted: ClassVar[threading.Condition] = threading.Condition()
    let_go: ClassVar[threading.Event] = threading.Event()

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        self._number = int(args.get("number", 1))
        if self._number == 0:
            raise PluginArgsError("0 is no number")
        self._notes = Noted.notes  # of this test, also where `close` outlives it
        self._note("made")
        if args.get("slow"):
            self.let_go.wait(WAIT_S)

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: object) -> None:
        self._note("filter")
        if pod.name == "slow":
            self.let_go.wait(WAIT_S)
            self._note("filtered")

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        self._note("reserve")
        return Status.success()

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self._note("unreserve")

    def pre_bind(self, state: CycleState, pod: Pod, node_name: str, patched: object) -> Status:
        return Status.success()

    def close(self) -> None:
        at_close = self.args.get("at_close", "")
        if at_close == "raise":
            raise RuntimeError("the shelf is stuck")
        if at_close == "hang":
            self.let_go.wait(WAIT_S)
        if at_close == "ask":
            try:
                self.handle.requeue(reason="closed")
            except HandleError as err:
                self._note(type(err).__name__)
        self._note("close")

    def _note(self, what: str) -> None:
        with self.noted:
            self._notes.append(f"{what} {self._number}")
            self.noted.notify_all()


class NotedLater(Noted):
    """Its `close` is a coroutine."""

    async def close(self) -> None:  # type: ignore[override]  # a class has either form
        Noted.close(self)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    Noted.notes = []
    Noted.let_go.clear()
    yield
    Noted.let_go.set()


def until_noted(what: str) -> None:
    with Noted.noted:
        assert Noted.noted.wait_for(lambda: what in Noted.notes, WAIT_S), Noted.notes


def configure(
    host: RawHost, attachment_id: str, *numbers: int, name: str = "Noted", trial: bool = False, **args: Any
) -> identity_pb2.ConfigureResponse:
    """Configure the plugin in a profile for each number."""
    host.handshake(attachment_id)
    profiles = [PROFILE, "second", "third"]
    return host.configure(
        [
            plugin_args(name, POINTS, profile=profile, args={"number": number, **args})
            for profile, number in zip(profiles, numbers, strict=False)
        ],
        attachment_id,
        trial=trial,
    )


def reserve(host: RawHost) -> None:
    request = spb.ReserveRequest(ctx=host.ctx("Noted", POD), node_name="n0")
    host.scheduling.Reserve(request, timeout=WAIT_S)


def unreserve(host: RawHost) -> spb.UnreserveResponse:
    item = spb.UnreserveItem(cycle_id="c1", node_name="n0")
    return host.scheduling.Unreserve(
        spb.UnreserveRequest(plugin="Noted", items=[item], attachment_id=host.attachment_id), timeout=WAIT_S
    )


@pytest.mark.parametrize("cls", [Noted, NotedLater])
def test_instance_that_configure_replaces_is_closed(serve: Serve, cls: type[Noted]) -> None:
    host = serve(cls).host
    configure(host, "a1", 1, name=cls.__name__)
    configure(host, "a2", 2, name=cls.__name__)
    until_noted("close 1")
    assert Noted.notes == ["made 1", "made 2", "close 1"]


def test_instance_with_the_same_arguments_stays(serve: Serve) -> None:
    serving = serve(Noted)
    configure(serving.host, "a1", 1)
    configure(serving.host, "a2", 1)
    serving.server.stop(0.2)
    assert Noted.notes == ["made 1", "close 1"]


def test_instance_of_a_profile_that_is_gone_is_closed(serve: Serve) -> None:
    host = serve(Noted).host
    configure(host, "a1", 1, 2)
    configure(host, "a2", 1)
    until_noted("close 2")
    assert Noted.notes == ["made 1", "made 2", "close 2"]


def test_reservation_keeps_the_instance_until_unreserve(serve: Serve) -> None:
    host = serve(Noted).host
    configure(host, "a1", 1)
    reserve(host)
    configure(host, "a2", 2)
    host.give_nodes(Node(name="n0"))
    assert Noted.notes == ["made 1", "reserve 1", "made 2"]
    unreserve(host)
    until_noted("close 1")
    assert Noted.notes == ["made 1", "reserve 1", "made 2", "unreserve 1", "close 1"]
    unreserve(host)  # a repetition reaches nobody
    assert Noted.notes[-1] == "close 1"


def test_open_call_keeps_the_instance_until_it_has_ended(serve: Serve) -> None:
    host = serve(Noted).host
    configure(host, "a1", 1)
    host.give_nodes(Node(name="n0"))
    request = spb.FilterRequest(ctx=host.ctx("Noted", Pod(name="slow", uid="u2")), candidates=ALL)
    call = host.scheduling.Filter.future(request, timeout=WAIT_S)
    until_noted("filter 1")
    configure(host, "a2", 2)
    Noted.let_go.set()
    call.exception()  # answered or refused: the attachment is over
    until_noted("close 1")
    assert Noted.notes == ["made 1", "filter 1", "made 2", "filtered 1", "close 1"]


def test_instance_of_a_trial_is_used_or_closed(serve: Serve) -> None:
    host = serve(Noted).host
    configure(host, "a1", 1)
    configure(host, "a1", 2, trial=True)
    configure(host, "a1", 3, trial=True)
    until_noted("close 2")
    configure(host, "a2", 3)
    until_noted("close 1")
    assert Noted.notes == ["made 1", "made 2", "close 2", "made 3", "close 1"]


def test_refusal_of_a_later_instance_closes_the_earlier_one(serve: Serve) -> None:
    host = serve(Noted).host
    configure(host, "a1", 1)
    assert "0 is no number" in configure(host, "a2", 2, 0).error
    until_noted("close 2")
    assert Noted.notes == ["made 1", "made 2", "close 2"]


def test_stop_closes_every_instance_and_says_what_went_wrong(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    serving = serve(Noted)
    host = serving.host
    host.handshake("a1")
    all_args: list[dict[str, Any]] = [{"number": 1}, {"number": 2, "at_close": "raise"}]
    host.configure(
        [
            plugin_args("Noted", POINTS, profile=f"p{number}", args=args)
            for number, args in enumerate(all_args)
        ]
    )
    with caplog.at_level(logging.WARNING, "berth_sdk"):
        assert serving.server.stop(0.2)
        assert serving.server.stop(0.2)
    assert Noted.notes == ["made 1", "made 2", "close 1"]
    (record,) = caplog.records
    assert record.getMessage() == "Noted.close failed"
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "the shelf is stuck"


def test_handle_reaches_no_host_once_the_server_stops(serve: Serve) -> None:
    serving = serve(Noted)
    configure(serving.host, "a1", 1, at_close="ask")
    serving.server.stop(0.2)
    assert Noted.notes == ["made 1", "NoWayBackError 1", "close 1"]


def test_close_that_hangs_holds_the_stop_for_a_limited_time(
    serve: Serve, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("berth_sdk.serve.server.LEAST_CLOSE_S", 0.1)
    serving = serve(Noted)
    configure(serving.host, "a1", 1, at_close="hang")
    with caplog.at_level(logging.WARNING, "berth_sdk"):
        assert serving.server.stop(0.0)
    assert [record.getMessage() for record in caplog.records] == ["Noted: close has not ended after 0.1 s"]
    assert Noted.notes == ["made 1"]


def test_instance_whose_call_does_not_end_is_not_closed(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    serving = serve(Noted)
    host = serving.host
    configure(host, "a1", 1, 2)
    host.give_nodes(Node(name="n0"))
    request = spb.FilterRequest(ctx=host.ctx("Noted", Pod(name="slow", uid="u2")), candidates=ALL)
    call = host.scheduling.Filter.future(request, timeout=WAIT_S)
    until_noted("filter 1")
    with caplog.at_level(logging.WARNING, "berth_sdk"):
        assert not serving.server.stop(0.1)
    assert [record.getMessage() for record in caplog.records] == [
        "Noted is not closed: 1 of its calls have not ended"
    ]
    until_noted("close 2")
    assert Noted.notes == ["made 1", "made 2", "filter 1", "close 2"]
    Noted.let_go.set()
    call.cancel()


@pytest.mark.parametrize("trial", [False, True])
def test_stop_does_not_wait_for_a_plugin_that_is_being_made(serve: Serve, trial: bool) -> None:
    serving = serve(Noted)
    host = serving.host
    configure(host, "a1", 1)
    late = threading.Thread(
        target=refused, args=(lambda: configure(host, "a2", 1, 2, slow=True, trial=trial),), daemon=True
    )
    late.start()
    until_noted("made 1")
    with Noted.noted:
        assert Noted.noted.wait_for(lambda: len(Noted.notes) == 2, WAIT_S)
    assert not serving.server.stop(0.1)
    until_noted("close 1")
    assert Noted.notes == ["made 1", "made 1", "close 1"]
    Noted.let_go.set()
    until_noted("close 2")
    assert sorted(Noted.notes) == sorted([*2 * ["made 1", "close 1"], "made 2", "close 2"])
    late.join()


def test_handshake_does_not_wait_for_a_plugin_that_is_being_made(serve: Serve) -> None:
    host = serve(Noted).host
    slow = threading.Thread(target=configure, args=(host, "a1", 1), kwargs={"slow": True}, daemon=True)
    slow.start()
    until_noted("made 1")
    assert host.handshake("a2").instance_id
    Noted.let_go.set()
    slow.join()


def test_close_does_not_delay_the_call_that_makes_it_possible(serve: Serve) -> None:
    host = serve(Noted).host
    configure(host, "a1", 1, at_close="hang")
    assert not configure(host, "a2", 2).error
    assert Noted.notes == ["made 1", "made 2"]
    Noted.let_go.set()
    until_noted("close 1")
