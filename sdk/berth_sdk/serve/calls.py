"""What every call to the server needs: refusals, counting, and the one function that calls a plugin's method.

A plugin's exception becomes gRPC INTERNAL with the plugin's name; the traceback goes to the log. Used by
all servicers.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Final

import grpc

from berth_sdk.errors import ScoreRefusedError
from berth_sdk.runtime.answers import must_wait
from berth_sdk.runtime.raised import raised_text
from berth_sdk.serve.lanes import CallCancelledError, CallContext, EventLoopThread
from berth_sdk.serve.served import ServedPlugin

_MAX_TEXT: Final = 1024
"""The longest text of an error: gRPC sends it in a header, and headers are small."""
LOG: Final = logging.getLogger("berth_sdk.serve.server")


class CallRefusedError(Exception):
    """The call ends with a gRPC status. Attributes: code, text."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        self.code = code
        self.text = text[:_MAX_TEXT]
        super().__init__(text)


class InFlight:
    """How many calls are being executed."""

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
    """Ask the plugin, in its turn. Its exceptions become CallRefusedError; passes on ScoreRefusedError."""
    if not context.is_active():
        raise CallCancelledError
    try:
        answer = call()
        return loop.wait_for(answer, context) if must_wait(answer) else answer
    except (CallCancelledError, ScoreRefusedError):
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as err:
        # An exit as well: it would end this thread alone and leave the host without an answer.
        LOG.exception("%s.%s failed", served.name, method)
        text = f"{served.name}.{method} raised {raised_text(err)}"
        raise CallRefusedError(grpc.StatusCode.INTERNAL, text) from err
