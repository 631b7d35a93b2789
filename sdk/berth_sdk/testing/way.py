"""`Way`: one pod's steps from Reserve to PostBind, through all plugins of a test host.

    Reserve -> Permit -> PreBindPreFlight -> WaitOnPermit -> PreBind -> Bind -> PostBind
    any failure -> Unreserve of every Reserve plugin, in reverse order

The steps are a generator. It pauses where a real host would wait, and the test host resumes it.

Source: kube-scheduler `schedule_one.go` (schedulingCycle, bindingCycle, handleBindingCycleError), v1.36.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Final

from berth_sdk.errors import PluginAnswerError
from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.status import SUCCESS, Code, Status
from berth_sdk.testing.attempt import MAX_ROUNDS, Attempt, Cycle
from berth_sdk.testing.waiting import WAITS

if TYPE_CHECKING:
    from berth_sdk.testing.host import PluginHost

POD_DELETED: Final = "the pod was deleted"


class Way:
    """The steps of one pod. `outcome`: WAIT until the end. `wake_at_s`: the time of the next PreBind call,
    Unix seconds; None: no call is due.
    """

    def __init__(self, host: PluginHost, cycle: Cycle, members: Sequence[Attempt], node_name: str) -> None:
        self.cycle = cycle
        self.outcome = WAITS
        self.wake_at_s: float | None = None
        self._host = host
        self._members = members
        self._node_name = node_name
        self._aborted: Status | None = None
        self._steps = self._run()

    def resume(self) -> None:
        """Continue until the next pause. No effect after the end, or while the pod must wait."""
        next(self._steps, None)

    def abort(self, message: str) -> None:
        """End the steps with an error at the next `resume`."""
        self._aborted = Status.error(message)

    def _ask_last(self, member: Attempt) -> Status:
        """Call PreBind a last time after the pod's deletion between two rounds; return the outcome of the
        steps.
        """
        aborted = self._aborted or SUCCESS
        if aborted.message != POD_DELETED:
            return aborted
        member.state.pod_deleted = True
        status = member.pre_bind(self._node_name).status
        return aborted if status.is_success else failure_of(status, member.name, "PreBind plugin")

    def _run(self) -> Generator[None, None, None]:
        try:
            outcome = yield from self._forward()
        except Exception as err:
            self.outcome = Status.error(f"{type(err).__name__}: {err}")
            self._undo()
            raise
        self.outcome = outcome
        if not outcome.is_success:
            self._undo()

    def _forward(self) -> Generator[None, None, Status]:
        status = self._reserve_and_permit()
        if status.is_success or status.code is Code.WAIT:
            self._host.assume(self.cycle, self._node_name)
            # The binding cycle is a task of its own: pods that were decided meanwhile continue first.
            self._host.go_on(self)
            yield
            status = yield from self._bind()
        return status

    def _reserve_and_permit(self) -> Status:
        for member in self._at(ExtensionPoint.RESERVE):
            status = member.reserve(self._node_name)
            if not (status.is_success or status.code is Code.SKIP):
                return failure_of(status, member.name, "Reserve plugin")
        status, _ = self._host.ask_permit(self.cycle, self._at(ExtensionPoint.PERMIT), self._node_name)
        return status

    def _bind(self) -> Generator[None, None, Status]:
        if self._aborted is not None:
            return self._aborted
        acting: list[Attempt] = []
        for member in self._at(ExtensionPoint.PRE_BIND):
            if member.skips_pre_bind:
                continue
            status = member.pre_bind_pre_flight(self._node_name).status
            if status.is_success:
                acting.append(member)
            elif status.code is Code.ERROR:
                return failure_of(status, member.name, "PreBindPreFlight")
            elif status.code is not Code.SKIP:
                return Status.error(
                    f'PreBindPreFlight {member.name} returned "{status.code.kube_name}", which is '
                    "unsupported. It is supposed to return Success, Skip, or Error status"
                )
        room = self._host.room
        while (status := room.outcome(self.cycle.pod.uid, self.cycle.cycle_id)).code is Code.WAIT:
            yield
            if self._aborted is not None:
                return self._aborted
        room.discard(self.cycle.pod.uid, self.cycle.cycle_id)
        if not status.is_success:
            return status
        for member in acting:
            status = yield from self._pre_bind(member)
            if not status.is_success:
                return status
        status = self._ask_to_bind()
        if status.is_success:
            self._host.assume(self.cycle, self._node_name)  # with the patches applied
            self._host.when_shown(self._tell_bound)
        return status

    def _tell_bound(self) -> None:
        for member in self._at(ExtensionPoint.POST_BIND):
            if not member.holds_nothing:
                member.post_bind(self._node_name)
        for member in self._members:
            member.state.was_ended()

    def _pre_bind(self, member: Attempt) -> Generator[None, None, Status]:
        in_pre_bind, uid = self._host.in_pre_bind, self.cycle.pod.uid
        in_pre_bind[uid] = self.cycle.cycle_id
        at_once = 0
        try:
            while True:
                result = member.pre_bind(self._node_name)
                if self._aborted is not None:
                    return self._aborted
                if not result.status.is_success:
                    return failure_of(result.status, member.name, "PreBind plugin")
                if result.ask_again_after_s is None:
                    return SUCCESS
                self.wake_at_s = self._host.clock.now_s + result.ask_again_after_s
                at_once = 0 if result.ask_again_after_s > 0 else at_once + 1
                if at_once == MAX_ROUNDS:
                    # A real host's deadline would end this. Here no time passes between two rounds.
                    raise PluginAnswerError(
                        f"{member.name}.pre_bind asked {MAX_ROUNDS} times to be called again at once: set"
                        " `ask_again_after_s` above 0"
                    )
                while self._host.clock.now_s < self.wake_at_s:
                    yield
                    if self._aborted is not None:
                        return self._ask_last(member)
                self.wake_at_s = None
        finally:
            self.wake_at_s = None
            in_pre_bind.pop(uid, None)

    def _ask_to_bind(self) -> Status:
        for member in self._at(ExtensionPoint.BIND):
            status = member.bind(self._node_name).status
            if status.code is not Code.SKIP:
                return status if status.is_success else failure_of(status, member.name, "Bind plugin")
        return SUCCESS  # the test host takes the place of DefaultBinder, after all other Bind plugins

    def _undo(self) -> None:
        """Call Unreserve of every Reserve plugin that did not skip, also after one that raises; then free the
        node.
        """
        errors: list[Exception] = []
        for member in reversed(self._at(ExtensionPoint.RESERVE)):
            if member.holds_nothing:
                continue
            try:
                member.unreserve(self._node_name)
            except Exception as err:  # noqa: BLE001  # raised below, once every plugin was told
                errors.append(err)
        self._host.room.discard(self.cycle.pod.uid, self.cycle.cycle_id)
        self._host.forget(self.cycle)
        if errors:
            raise errors[0]

    def _at(self, point: ExtensionPoint) -> list[Attempt]:
        return [member for member in self._members if member.takes_part_in(point)]


def failure_of(status: Status, plugin: str, what: str) -> Status:
    """Return a rejection with its plugin, and any other status as an error that names the plugin."""
    if status.is_rejected:
        return status.with_plugin(plugin)
    return Status.error(f'running {what} "{plugin}": {status.message}')
