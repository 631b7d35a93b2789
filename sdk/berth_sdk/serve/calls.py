"""The parts of every call to the server: refusals, the count of calls, and the call of a plugin's method.

An exception of a plugin becomes gRPC INTERNAL with the plugin's name. The log has the traceback. All
servicers use this module.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import grpc

from berth_sdk.errors import ScoreRefusedError
from berth_sdk.runtime.answers import must_wait
from berth_sdk.runtime.raised import raised_text
from berth_sdk.serve.lanes import CallCancelledError, CallContext, EventLoopThread

if TYPE_CHECKING:
    from berth_sdk.serve.served import ServedPlugin

_MAX_TEXT: Final = 1024
"""Characters of an error's text at most. gRPC sends the text in a header, and headers are limited."""
LOG: Final = logging.getLogger("berth_sdk.serve.server")


class CallRefusedError(Exception):
    """An error that ends a call with a gRPC status. Attributes: code, text."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        self.code = code
        self.text = text[:_MAX_TEXT]
        super().__init__(text)


class InFlight:
    """The count of running calls."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0

    def __enter__(self) -> None:
        with self._lock:
            self.count += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.count -= 1


def ask(
    served: ServedPlugin,
    method: str,
    loop: EventLoopThread,
    context: CallContext,
    call: Callable[[], Any],
) -> Any:
    """Call the plugin, which has its turn, and return its answer; wait for an answer of an async method.

    Raises CallRefusedError for the plugin's exceptions and for an instance that is closed, but
    ScoreRefusedError as it is, and CallCancelledError.
    """
    if not context.is_active():
        raise CallCancelledError
    try:
        with served.calls:
            answer = call()
            return loop.wait_for(answer, context) if must_wait(answer) else answer
    except (CallCancelledError, CallRefusedError, ScoreRefusedError):
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as err:
        # SystemExit too: it would end only this thread, and leave the host without an answer.
        LOG.exception("%s.%s failed", served.name, method)
        text = f"{served.name}.{method} raised {raised_text(err)}"
        raise CallRefusedError(grpc.StatusCode.INTERNAL, text) from err
