"""`berth query`: the simulation behind the query service, as a process that Ctrl-C ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import grpc
import pytest
import yaml
from berth_sdk.query.v1 import query_pb2 as pb
from berth_sdk.query.v1.query_pb2_grpc import QueryServiceStub
from support.hosts import node, pod
from support.waiting import PATIENCE_S

pytestmark = pytest.mark.slow


async def test_manifests_are_asked_about_until_a_signal(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump_all([node("n1", cpu="2"), pod("fits", cpu="2")]))
    command = [sys.executable, "-m", "berth_host", "query", "-f", str(path), "--port", "0"]
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            line = (await process.stdout.readline()).decode()
        assert line.startswith("serving berth.query.v1 at 127.0.0.1:"), line
        async with grpc.aio.insecure_channel(line.split()[3]) as channel:
            stub = QueryServiceStub(channel)
            template = pb.NodeTemplate(name="t", node=json.dumps(node("x")).encode(), count=1)
            asked = pb.SimulateRequest(pods=[json.dumps(pod("web", cpu="1")).encode()], templates=[template])
            async with asyncio.timeout(PATIENCE_S):
                first, last = [message async for message in stub.Simulate(asked)]
            assert (first.pods[0].template, last.summary.placed_count) == ("t", 1)
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(PATIENCE_S):
            _, errors = await process.communicate()
        assert (process.returncode, errors) == (0, b"")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.long
async def test_nodes_without_pods_are_enough_where_ci_reads_strictly(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump(node("n1", cpu="2")))
    command = [sys.executable, "-m", "berth_host", "query", "-f", str(path), "--port", "0"]
    environment = os.environ | {"CI": "true"}
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE, env=environment)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            line = (await process.stdout.readline()).decode()
        assert line.startswith("serving berth.query.v1 at 127.0.0.1:"), line
    finally:
        process.kill()
        await process.wait()
