"""`InProcessTransport`: an in-process plugin, called with the host's own objects.

Makes the calls by the column `local` of `rpc.calls`, without encoding. The relay adds the same checks, timing
and policy as for a served plugin. Plain `def` calls of the scheduling cycle run on the loop and cannot be
interrupted; an overrun is reported when the call returns.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar, TypeVarTuple

from berth_sdk.clocks import thread_s
from berth_sdk.cycle_state import CycleState
from berth_sdk.errors import PluginAnswerError, ScoreRefusedError
from berth_sdk.extension_points import Answer
from berth_sdk.kept.follows import Follows
from berth_sdk.pod import Pod
from berth_sdk.results import ReserveResult
from berth_sdk.runtime.answers import PLAIN, begun, must_wait, settled
from berth_sdk.runtime.closing import CLOSE_S, Closing, awaited, begin_close, trouble_of
from berth_sdk.runtime.descriptor import Descriptor
from berth_sdk.runtime.plugin_runtime import PluginRuntime
from berth_sdk.runtime.raised import author_trace, raised_text
from berth_sdk.slices import DEADLINE, SLICE_S, works_in_slices
from berth_sdk.status import Code, Status

from berth_host.attempt.call_record import CycleRecord, Reserved
from berth_host.attempt.cycle import CycleEnd
from berth_host.errors.plugins import (
    PluginError,
    PluginExceptionError,
    PluginProtocolError,
    PluginTimeoutError,
)
from berth_host.errors.state import InvariantError
from berth_host.log import get_logger
from berth_host.log.hidden import without_hidden
from berth_host.rpc.call import AnyCall, Call, Lane
from berth_host.rpc.code_log import CodeLog

Args = TypeVarTuple("Args")
Raw = TypeVar("Raw")
T = TypeVar("T")
DEFAULT_CONCURRENCY: Final = 8
"""The number of concurrent binding-cycle calls of a plugin that does not set it."""
_LOG = get_logger()
SETTLED: Final = PLAIN | {Reserved}
"""Types of answers that need not be awaited: nearly all answers have one of these."""


class InProcessTransport:
    """An in-process plugin. Its arguments are the host's own objects; the tables are read-only.

    Plain `def` calls of the scheduling cycle run on the loop, one at a time; those of the binding cycle
    run in `max_concurrency` threads. An `async def` is awaited until its deadline, in both cycles.
    """

    def __init__(self, runtime: PluginRuntime) -> None:
        self.runtime = runtime
        self.codes = CodeLog()
        self._name = runtime.descriptor.name
        self._threads: ThreadPoolExecutor | None = None
        self._is_closed = False
        self._plain: dict[str, bool] = {}
        """By call: True if the plugin itself has a plain method for the call."""
        self._async: dict[str, bool] = {}

    @property
    def descriptor(self) -> Descriptor:
        """The descriptor of the class."""
        return self.runtime.descriptor

    @property
    def follows(self) -> Follows:
        """Return the inputs of the plugin's kept answers."""
        return self.runtime.follows

    @property
    def conduct(self) -> None:
        """None: an in-process plugin is always called."""

    @property
    def is_open(self) -> bool:
        """Always True: the plugin exists as long as the host."""
        return True

    async def is_lost(self, within_s: float) -> bool:
        """Return False: an in-process plugin answers as long as the host runs."""
        return False

    async def close(self) -> None:
        """End the threads, and call the plugin's `close` after the last call there. Wait CLOSE_S for both.

        The log has what went wrong. Has no effect after the first time.
        """
        if self._is_closed:
            return
        self._is_closed = True
        threads, calls_ended = self._threads, threading.Event()
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)
        if not self.runtime.has_close:
            return
        loop = asyncio.get_running_loop()

        def wait_for_calls() -> None:
            if threads is not None:
                threads.shutdown(wait=True)
            calls_ended.set()

        closing = begin_close(
            self.runtime,
            lambda answer: asyncio.run_coroutine_threadsafe(awaited(answer), loop).result(),
            wait_for_calls,
        )
        await asyncio.wait({asyncio.wrap_future(closing)}, timeout=CLOSE_S)
        if not calls_ended.is_set():
            error = f"a call has not ended after {CLOSE_S:g} s, and close comes after the last call"
            _LOG.warning("plugin.not_closed", plugin=self._name, error=error)
        else:
            report_trouble(self._name, closing)

    def end_cycle(self, cycle: CycleRecord, outcome: CycleEnd) -> None:
        """Tell the plugin's state that its pod was bound. The state itself ends with the cycle's record."""
        if outcome is CycleEnd.BOUND:
            part = cycle.parts.get(self._name)
            if part is not None and part.state is not None:
                part.state.was_ended()

    def ask(
        self,
        call: Call[*Args, Raw, Any],
        cycle: CycleRecord | None,
        args: tuple[*Args],
        deadline_s: float,
    ) -> Answer[Raw]:
        """Return the plugin's answer, or an awaitable of it that ends at the deadline.

        The relay itself calls the plugin in the scheduling cycle, which is the shortest way.
        """
        if call.each is not None:
            return self._ask_each(call, call.each, args, deadline_s)
        if cycle is None:
            raise InvariantError(f"{call.rpc} belongs to a cycle, and has none")
        state = cycle.state(self._name)
        if call.lane is not Lane.CYCLE and self._in_thread(call, cycle):
            return self._mapped(
                call, self._threaded(call, deadline_s, call.local, self.runtime, state, cycle.subject, *args)
            )
        try:
            answer: Any = call.local(self.runtime, state, cycle.subject, *args)
        except BaseException as err:  # noqa: BLE001  # a plugin may raise anything
            answer = self.stands_for(call, err)
        if type(answer) not in SETTLED:
            answer = self.going_on(call, answer, deadline_s)
        return answer  # type: ignore[no-any-return]  # the row's own type

    def stands_for(self, call: AnyCall, err: BaseException) -> Any:
        """Return the answer that an exception of the plugin stands for. Raises PluginError for all others."""
        if isinstance(err, ScoreRefusedError):
            return Status(Code.ERROR, err.reasons)
        if isinstance(err, PluginError | KeyboardInterrupt):
            raise err
        raise self._failure(call, err) from err

    def going_on(self, call: AnyCall, answer: Any, deadline_s: float) -> Any:
        """Run an awaitable answer up to its first wait. Return the answer, or an awaitable of it that ends at
        the deadline.
        """
        try:
            answer = begun(answer)
        except BaseException as err:  # noqa: BLE001  # see `ask`
            return self.stands_for(call, err)
        return self._mapped(call, self._bounded(call, deadline_s, answer)) if must_wait(answer) else answer

    def awaits(self, call: AnyCall) -> bool:
        """Return True where the plugin's own method for a question of the queue is an `async def`."""
        known = self._async.get(call.rpc)
        if known is None:
            own = getattr(self.runtime.plugin, call.local.__name__, None)
            known = self._async[call.rpc] = inspect.iscoroutinefunction(own)
        return known

    # --- how it is done ------------------------------------------------------------------------------

    async def _ask_each(
        self,
        call: Call[*Args, Raw, Any],
        each: Callable[..., Iterable[tuple[Any, ...]]],
        args: tuple[*Args],
        deadline_s: float,
    ) -> Raw:
        """Call the plugin about one pod after the other, each with the whole deadline.

        Gives way where the plain answers take long.
        """
        answers: Any = []
        ends_s = thread_s() + SLICE_S
        try:
            for question in each(*args):
                if thread_s() > ends_s:
                    await asyncio.sleep(0)
                    ends_s = thread_s() + SLICE_S
                answer = begun(call.local(self.runtime, *question))
                answers.append(await self._bounded(call, deadline_s, answer) if must_wait(answer) else answer)
        except PluginError:
            raise
        except (KeyboardInterrupt, asyncio.CancelledError):
            raise
        except BaseException as err:  # see `ask`
            raise self._failure(call, err) from err
        return answers  # type: ignore[no-any-return]  # the row's own type

    def _in_thread(self, call: AnyCall, cycle: CycleRecord) -> bool:
        """Return True if the call runs in a thread: the plugin has a plain method of its own. Unreserve runs
        in a thread only in the binding cycle; plain calls of the scheduling cycle are serial.
        """
        if call.lane is Lane.OUTBOX and not cycle.binding:
            return False
        plain = self._plain.get(call.rpc)
        if plain is None:
            own = getattr(self.runtime.plugin, call.method_name, None)
            plain = self._plain[call.rpc] = callable(own) and not inspect.iscoroutinefunction(own)
        return plain

    async def _threaded(
        self, call: AnyCall, deadline_s: float, method: Callable[..., Answer[T]], *args: Any
    ) -> T:
        if self._threads is None:
            count = self.runtime.descriptor.max_concurrency or DEFAULT_CONCURRENCY
            self._threads = ThreadPoolExecutor(count, thread_name_prefix=f"berth-{self._name}")
        context = contextvars.copy_context()
        answer = await asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: context.run(method, *args)
        )
        # A plain method may return an awaitable, too.
        return await (self._bounded(call, deadline_s, answer) if must_wait(answer) else settled(answer))

    async def _mapped(self, call: AnyCall, answer: Awaitable[T]) -> T:
        try:
            return await answer
        except asyncio.CancelledError:
            raise
        except BaseException as err:  # noqa: BLE001  # see `ask`
            return self.stands_for(call, err)  # type: ignore[no-any-return]  # one of the row's answers

    async def _bounded(self, call: AnyCall, deadline_s: float, answer: Awaitable[T]) -> T:
        # Work that has begun in slices is no wait, and cannot be cut off any more than a plain method.
        deadline = asyncio.timeout(None if works_in_slices() else deadline_s)
        token = DEADLINE.set(deadline)
        try:
            async with deadline:
                return await answer
        except TimeoutError as err:
            if not deadline.expired():
                raise  # the plugin's own TimeoutError
            raise PluginTimeoutError(self._name, call.rpc, deadline_s) from err
        finally:
            DEADLINE.reset(token)

    def _failure(self, call: AnyCall, err: BaseException) -> PluginError:
        if isinstance(err, PluginAnswerError):
            return PluginProtocolError(self._name, call.rpc, f"broke the contract ({err})")
        return PluginExceptionError(self._name, call.rpc, without_hidden(raised_text(err)))


def report_trouble(plugin: str, closing: Closing) -> None:
    """Log what went wrong with a plugin's `close`, if anything, after CLOSE_S."""
    error = trouble_of(closing, CLOSE_S)
    if not error:
        return
    raised = closing.exception() if closing.done() else None
    trace = None if raised is None else (type(raised), raised, author_trace(raised))
    _LOG.warning("plugin.not_closed", plugin=plugin, error=without_hidden(error), exc_info=trace)


def reserve(runtime: PluginRuntime, state: CycleState, pod: Pod, node_name: str) -> Answer[Reserved]:
    """Return the answer of Reserve, with the answers about the binding cycle that came with it."""
    answer = runtime.reserve(state, pod, node_name)
    if answer is None or isinstance(answer, ReserveResult):
        return _reserved(answer)
    return _reserved_later(answer)


def _reserved(result: ReserveResult | None) -> Reserved:
    if result is None:
        return Reserved(None)
    pre_bind = result.pre_bind
    return Reserved(result.status, result.pre_flight, None if pre_bind is None else lambda: pre_bind)


async def _reserved_later(answer: Awaitable[ReserveResult | None]) -> Reserved:
    return _reserved(await answer)
