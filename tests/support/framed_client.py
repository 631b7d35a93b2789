"""`FramedClient`: plays a host's side of one framed connection, call by call."""

from __future__ import annotations

import socket
import struct
from pathlib import Path
from typing import Any, TypeVar

import grpc
from berth_sdk.plugin.v1 import scheduling_pb2
from berth_sdk.wire.frames import (
    CALLS,
    NUMBERS,
    Frame,
    Incoming,
    Kind,
    call_frame,
    framed_path,
    read_failure,
)
from support.waiting import PATIENCE_S

WAIT_S = PATIENCE_S
_CODES = {code.value[0]: code for code in grpc.StatusCode}
R = TypeVar("R")


class FramedClient:
    """`address`: the server's, `unix:///PATH`."""

    def __init__(self, address: str) -> None:
        self.path = framed_path(Path(address.removeprefix("unix://")))
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(WAIT_S)
        self.sock.connect(str(self.path))
        self._incoming = Incoming(2**31)
        self._frames: list[Frame] = []

    def send(self, request: Any) -> None:
        """`request`: a message, such as a FilterRequest."""
        self.sock.sendall(framed(request))

    def hear(self) -> Frame | None:
        """Return the next frame; None: the server has closed."""
        while not self._frames:
            try:
                data = self.sock.recv(65536)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._frames = self._incoming.take(data)
        return self._frames.pop(0)

    def answer(self, reply: type[R]) -> R:
        """Return the next frame, which must answer the call with this message."""
        found = self.hear()
        assert found is not None
        assert found.kind is Kind.CALL, found
        assert f"{CALLS[found.call - 1]}Response" == reply.__name__
        message: R = reply.FromString(found.payload)  # type: ignore[attr-defined]  # every message has it
        return message

    def ask(self, request: Any) -> Any:
        self.send(request)
        return self.answer(getattr(scheduling_pb2, f"{_call(request)}Response"))

    def error(self) -> tuple[grpc.StatusCode, str]:
        found = self.hear()
        assert found is not None
        assert found.kind is Kind.FAILURE, found
        code, text = read_failure(found.payload)
        return _CODES[code], text

    def cancel(self) -> None:
        """As the host gives up a call."""
        self.sock.close()

    def ends(self) -> bool:
        """Whether the server ends it, having said so."""
        return self.hear() == (Kind.CLOSING, 0, b"") and self.hear() is None

    def close(self) -> None:
        self.sock.close()


def framed(request: Any) -> bytes:
    """Return the frame of a request."""
    return call_frame(NUMBERS[_call(request)], request.SerializeToString())


def _call(request: Any) -> str:
    name: str = request.DESCRIPTOR.name
    return name.removesuffix("Request")


def header(length: int, kind: int, call: int = 0) -> bytes:
    """Return the first bytes of a frame."""
    return struct.pack(">IBB", length, kind, call)
