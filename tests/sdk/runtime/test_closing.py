"""`close` of one instance: in a daemon thread, once its last calls have ended."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import wait

import pytest
from berth_sdk.runtime import closing as closing_module
from berth_sdk.runtime.closing import Closing, awaited, begin_close, close_unused, trouble_of
from berth_sdk.runtime.plugin_runtime import PluginRuntime
from support.waiting import PATIENCE_S

WAIT_S = PATIENCE_S


class Closes:
    """Notes the thread of its `close`."""

    def __init__(self, args: object = None, handle: object = None) -> None:
        self.let_go = threading.Event()
        self.threads: list[threading.Thread] = []

    def filter(self, state: object, pod: object, node: object) -> None:
        return None

    def close(self) -> None:
        self.threads.append(threading.current_thread())


class ClosesLater(Closes):
    """Its `close` is a coroutine."""

    async def close(self) -> None:  # type: ignore[override]  # a class has either form
        await asyncio.sleep(0)
        Closes.close(self)


class Hangs(Closes):
    """Its `close` waits."""

    def close(self) -> None:
        self.let_go.wait(WAIT_S)


class Breaks(Closes):
    """Its `close` raises."""

    def close(self) -> None:
        raise SystemExit("enough")


class Open:
    """Has no `close`."""

    def filter(self, state: object, pod: object, node: object) -> None:
        return None


def begun(plugin: Closes) -> Closing:
    return begin_close(PluginRuntime(plugin), lambda answer: asyncio.run(awaited(answer)))


@pytest.mark.parametrize("cls", [Closes, ClosesLater])
def test_close_runs_in_a_daemon_thread(cls: type[Closes]) -> None:
    plugin = cls()
    closing = begun(plugin)
    wait([closing], WAIT_S)
    (thread,) = plugin.threads
    assert thread.daemon
    assert thread is not threading.current_thread()
    assert trouble_of(closing, 1.0) == ""


def test_close_waits_for_what_comes_before() -> None:
    plugin, may_go = Closes(), threading.Event()
    closing = begin_close(PluginRuntime(plugin), lambda _: None, lambda: may_go.wait(WAIT_S))
    assert plugin.threads == []
    may_go.set()
    wait([closing], WAIT_S)
    assert len(plugin.threads) == 1


def test_exit_in_close_is_an_exception_like_any_other() -> None:
    closing = begun(Breaks())
    wait([closing], WAIT_S)
    assert trouble_of(closing, 1.0).startswith(
        "close raised SystemExit: enough at sdk/runtime/test_closing.py:"
    )


def test_instances_that_were_never_called_are_closed_together() -> None:
    closings = close_unused([PluginRuntime(plugin) for plugin in (Closes(), ClosesLater(), Breaks(), Open())])
    troubles = {runtime.descriptor.name: trouble_of(closing, 5.0) for runtime, closing in closings.items()}
    assert list(troubles) == ["Closes", "ClosesLater", "Breaks"]  # `Open` has nothing to close
    assert (troubles["Closes"], troubles["ClosesLater"]) == ("", "")
    assert "SystemExit" in troubles["Breaks"]


def test_instance_that_hangs_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closing_module, "CLOSE_S", 0.05)
    plugin = Hangs()
    (closing,) = close_unused([PluginRuntime(plugin)]).values()
    assert trouble_of(closing, 0.05) == "close has not ended after 0.05 s"
    plugin.let_go.set()
    wait([closing], WAIT_S)
    assert trouble_of(closing, 0.05) == ""
