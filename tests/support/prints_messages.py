"""A plugin without the SDK that shows the debug print of what it got wherever a plugin can say something.

    python -m support.prints_messages NAME WAY FILE [ADDRESS]

FILE gets every secret that the plugin got, a line each. WAY: `answers` (the plugin shows them in its output,
warnings, the probe's message, reasons and errors of calls), or the one call that it fails with the text:
`Handshake`, `Configure`, `arguments` (Configure's `error`), `exit` (its last words).
"""

from __future__ import annotations

import json
import os
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from berth_sdk.plugin.v1 import (
    common_pb2,
    identity_pb2,
    identity_pb2_grpc,
    scheduling_pb2,
    scheduling_pb2_grpc,
)
from google.protobuf import text_format
from google.protobuf.json_format import MessageToJson

INSTANCE = str(uuid.uuid4())
SEEN: list[Any] = []


def printed() -> str:
    """Return all that was said to this process, as text, JSON and by `repr`."""
    said = [f"{text_format.MessageToString(one)} {MessageToJson(one)} {one!r}" for one in SEEN]
    return "\n".join([*said, str(dict(os.environ))])


class Identity(identity_pb2_grpc.IdentityServiceServicer):
    """The introduction."""

    def __init__(self, name: str, way: str, file: str) -> None:
        self._name, self._way, self._file = name, way, Path(file)

    def Handshake(self, request: Any, context: Any) -> identity_pb2.HandshakeResponse:  # noqa: N802
        """Introduce the plugin."""
        self._note("Handshake", request, context)
        points = [identity_pb2.EXTENSION_POINT_FILTER, identity_pb2.EXTENSION_POINT_POST_FILTER]
        hello = identity_pb2.HandshakeResponse(
            instance_id=INSTANCE,
            supported=[identity_pb2.ContractVersion(major=1)],
            plugins=[
                identity_pb2.PluginDescriptor(name=self._name, points=points, handle_client=True, version="1")
            ],
        )
        hello.started_at.GetCurrentTime()
        return hello

    def Configure(self, request: Any, context: Any) -> identity_pb2.ConfigureResponse:  # noqa: N802
        """Take the configuration, with a warning."""
        if not request.accepted:
            return identity_pb2.ConfigureResponse()
        self._note("Configure", request, context)
        if self._way == "exit":
            os._exit(3)
        return identity_pb2.ConfigureResponse(
            warnings=[printed()], error=printed() if self._way == "arguments" else ""
        )

    def Probe(self, request: Any, context: Any) -> identity_pb2.ProbeResponse:  # noqa: N802
        """Be ready, with a message."""
        return identity_pb2.ProbeResponse(ready=True, instance_id=INSTANCE, message=printed())

    def Drain(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Fail with the text."""
        context.abort(grpc.StatusCode.INTERNAL, printed())

    def _note(self, rpc: str, request: Any, context: Any) -> None:
        SEEN.append(request)
        secrets = [request.credential] if rpc == "Handshake" else [request.handle.token]
        secrets += [
            os.environ[name]
            for name in ("BERTH_PLUGIN_CREDENTIAL", "BERTH_PLUGIN_COOKIE")
            if name in os.environ
        ]
        with self._file.open("a") as file:
            file.writelines(f"{secret}\n" for secret in secrets if secret)
        print(printed(), file=sys.stderr, flush=True)
        if self._way == rpc:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, printed())


class Scheduling(scheduling_pb2_grpc.SchedulingServiceServicer):
    """The calls of cycles."""

    def Filter(self, request: Any, context: Any) -> scheduling_pb2.FilterResponse:  # noqa: N802
        """Reject every node, with the text as reason."""
        answer = scheduling_pb2.FilterResponse()
        answer.ctx.cycle_id = request.ctx.cycle_id
        status = common_pb2.PluginStatus(code=common_pb2.PluginStatus.CODE_UNSCHEDULABLE, reasons=[printed()])
        answer.verdicts.rejected.add(status=status, nodes=request.candidates)
        return answer

    def PostFilter(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Fail with the text."""
        context.abort(grpc.StatusCode.INTERNAL, printed())


def main(name: str, way: str, file: str, address: str = "") -> None:
    """Serve until standard input closes."""
    address = address or os.environ["BERTH_PLUGIN_ENDPOINT"]
    server = grpc.server(ThreadPoolExecutor(4))
    identity_pb2_grpc.add_IdentityServiceServicer_to_server(Identity(name, way, file), server)
    scheduling_pb2_grpc.add_SchedulingServiceServicer_to_server(Scheduling(), server)
    server.add_insecure_port(address)
    server.start()
    hello = {"protocol": "berth/1", "address": address, "instance_id": INSTANCE}
    print(json.dumps({**hello, "cookie": os.environ.get("BERTH_PLUGIN_COOKIE", "")}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
