"""`no_accidents`: nothing in a stretch of a test ended in an error that no code had words for."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import structlog


@contextlib.contextmanager
def no_accidents() -> Iterator[None]:
    """Nothing ended in an error that no code had words for: neither in a task of the host nor in its loop."""
    accidents: list[Any] = []

    def note(_logger: Any, method: str, event: Any) -> Any:
        if method in ("error", "exception", "critical"):
            accidents.append(event)
        raise structlog.DropEvent

    structlog.configure(processors=[note], wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    loop.set_exception_handler(
        lambda _, context: None if _is_of_an_earlier_loop(context) else accidents.append(context)
    )
    yield
    loop.set_exception_handler(before)
    assert not accidents, accidents[:3]


def _is_of_an_earlier_loop(context: dict[str, Any]) -> bool:
    """Return True for an answer that came after the test that asked had ended, and its loop with it.

    grpc.aio has one poller for all loops of a process, and calls back on the loop that runs now.
    """
    failure = context.get("exception")
    return (
        isinstance(failure, RuntimeError)
        and str(failure) == "Event loop is closed"
        and "PollerCompletionQueue" in context["message"]
    )
