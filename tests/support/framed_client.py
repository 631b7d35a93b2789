"""`FramedClient`: plays a host's side of one framed connection, call by call."""

from __future__ import annotations

import socket
import struct
from pathlib import Path
from typing import Any

import grpc
from berth_sdk.plugin.v1 import stream_pb2
from berth_sdk.wire.frames import Incoming, Kind, frame, framed_path, read_failure

WAIT_S = 60.0
_CODES = {code.value[0]: code for code in grpc.StatusCode}


class FramedClient:
    """`address`: the server's, `unix:///PATH`."""

    def __init__(self, address: str) -> None:
        self.path = framed_path(Path(address.removeprefix("unix://")))
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(WAIT_S)
        self.sock.connect(str(self.path))
        self._incoming = Incoming(2**31)
        self._frames: list[tuple[Kind, bytes]] = []

    def send(self, **call: Any) -> None:
        self.sock.sendall(frame(Kind.CALL, stream_pb2.StreamCallsRequest(**call).SerializeToString()))

    def hear(self) -> tuple[Kind, bytes] | None:
        """The next frame; None: the server has closed."""
        while not self._frames:
            try:
                data = self.sock.recv(65536)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._frames = self._incoming.take(data)
        return self._frames.pop(0)

    def answer(self) -> stream_pb2.StreamCallsResponse:
        found = self.hear()
        assert found is not None
        assert found[0] is Kind.CALL, found
        return stream_pb2.StreamCallsResponse.FromString(found[1])

    def ask(self, **call: Any) -> stream_pb2.StreamCallsResponse:
        self.send(**call)
        return self.answer()

    def error(self) -> tuple[grpc.StatusCode, str]:
        found = self.hear()
        assert found is not None
        assert found[0] is Kind.FAILURE, found
        code, text = read_failure(found[1])
        return _CODES[code], text

    def cancel(self) -> None:
        """As the host gives up a call."""
        self.sock.close()

    def ends(self) -> bool:
        """Whether the server ends it, having said so."""
        return self.hear() == (Kind.CLOSING, b"") and self.hear() is None

    def close(self) -> None:
        self.sock.close()


def header(length: int, kind: int) -> bytes:
    """The first bytes of a frame."""
    return struct.pack(">IB", length, kind)
