"""Host and SDK read and write exactly the bytes of the framed transport's test vectors."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from berth_host.rpc.served.busy_poll import BusyPoll
from berth_host.rpc.served.frames import FramedConnection as HostConnection
from berth_host.rpc.served.frames import FramedSocket
from berth_sdk.serve.frames import FramedConnection as ServerConnection
from berth_sdk.wire.frames import (
    CLOSING_FRAME,
    NUMBERS,
    Frame,
    FrameError,
    Incoming,
    Kind,
    call_frame,
    failure_frame,
    read_failure,
)
from google.protobuf.message import DecodeError
from support.places import ROOT
from support.stream_server import stream_server
from support.waiting import PATIENCE_S

VECTORS: dict[str, Any] = json.loads((ROOT / "proto" / "vectors" / "frames.json").read_text())
LIMIT: int = VECTORS["limitBytes"]
RESERVE = NUMBERS["Reserve"]
_CODES = {code.value[0]: code for code in grpc.StatusCode}


def named(part: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("vector", VECTORS[part], ids=lambda vector: vector["name"])


def test_vectors_are_what_their_script_writes() -> None:
    from vectors import frames

    assert frames.document() == VECTORS


@named("frames")
def test_frame_is_read_as_its_fields_and_written_as_its_bytes(vector: dict[str, Any]) -> None:
    raw, payload = bytes.fromhex(vector["hex"]), bytes.fromhex(vector["payload"])
    found = Frame(Kind[vector["kind"]], vector["call"], payload)
    assert Incoming(LIMIT).take(raw) == [found]
    assert written(found) == raw


def written(frame: Frame) -> bytes:
    if frame.kind is Kind.CALL:
        return call_frame(frame.call, frame.payload)
    return failure_frame(frame.call, *read_failure(frame.payload)) if frame.payload else CLOSING_FRAME


@named("conversations")
async def test_host_follows_the_recorded_conversation(vector: dict[str, Any], tmp_path: Path) -> None:
    steps = vector["steps"]

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for step in steps:
            expected = bytes.fromhex(step["host"])
            assert await reader.readexactly(len(expected)) == expected
            writer.write(bytes.fromhex(step["server"]))
        await reader.read()

    path = tmp_path / "p.framed"
    connection = HostConnection(FramedSocket(path), LIMIT, BusyPoll(1))
    async with stream_server(talk, path):
        for step in steps:
            (request,) = Incoming(LIMIT).take(bytes.fromhex(step["host"]))
            assert await outcome(connection, request) == expected_outcome(step)
        connection.close()


async def outcome(connection: HostConnection, request: Frame) -> bytes | str:
    try:
        answer = await connection.ask(request.call, request.payload, PATIENCE_S)
    except grpc.aio.AioRpcError as err:
        return err.code().name
    return "not executed" if answer is None else answer


def expected_outcome(step: dict[str, Any]) -> bytes | str:
    text: str = step["outcome"]
    return Incoming(LIMIT).take(bytes.fromhex(step["server"]))[0].payload if text == "answer" else text


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, ServerConnection]]:
    """Connect a host's socket to a server connection."""
    ours, theirs = socket.socketpair()
    ours.settimeout(PATIENCE_S)
    connection = ServerConnection(theirs, LIMIT)
    yield ours, connection
    connection.end()
    ours.close()


@named("conversations")
def test_server_follows_the_recorded_conversation(
    vector: dict[str, Any], pair: tuple[socket.socket, ServerConnection]
) -> None:
    ours, connection = pair
    for step in vector["steps"]:
        ours.sendall(bytes.fromhex(step["host"]))
        request = connection.next_call()
        assert request is not None
        expected = bytes.fromhex(step["server"])
        for frame in Incoming(LIMIT).take(expected):
            if frame.kind is Kind.CLOSING:
                connection.say_closing()
            else:
                connection.answer({request.call: partial(told, frame)}, request)
        assert received(ours, len(expected)) == expected


def told(frame: Frame, _request: bytes, context: Any) -> bytes:
    """Answer as the call of the vector says."""
    if frame.kind is Kind.FAILURE:
        code, text = read_failure(frame.payload)
        context.abort(_CODES[code], text)
    return frame.payload


def received(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := sock.recv(size - len(data))):
        data += more
    return data


@named("refusedByHost")
async def test_host_refuses_an_invalid_answer(vector: dict[str, Any], tmp_path: Path) -> None:
    closed = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(6)
        writer.write(bytes.fromhex(vector["hex"]))
        assert not await reader.read()
        closed.set()

    path = tmp_path / "p.framed"
    connection = HostConnection(FramedSocket(path), LIMIT, BusyPoll(1))
    async with stream_server(talk, path):
        with pytest.raises((DecodeError, grpc.aio.AioRpcError)) as caught:
            await connection.ask(RESERVE, b"", PATIENCE_S)
        await asyncio.wait_for(closed.wait(), PATIENCE_S)
    if isinstance(caught.value, grpc.aio.AioRpcError):
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "over the limit" in vector["why"]


@named("refusedByServer")
def test_server_refuses_an_invalid_request(
    vector: dict[str, Any], pair: tuple[socket.socket, ServerConnection]
) -> None:
    ours, connection = pair
    ours.sendall(bytes.fromhex(vector["hex"]))
    with pytest.raises(FrameError):
        connection.next_call()
