"""A plugin of raw messages in a process of its own, whose answers a test writes while it runs.

    python -m support.raw_plugin FOLDER DESCRIPTOR ADDRESS

What the SDK never says can be said here. In the folder: `RPC.always` and `RPC.once-NUMBER` with what to do,
looked at with each call; `journal`, every call with its request. Driven by `support.faults.RawPlugin`.
"""

from __future__ import annotations

import asyncio
import base64
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from berth_sdk.plugin.v1 import identity_pb2
from google.protobuf.message_factory import GetMessageClass
from support.scripted_plugin import SERVICES, WAYS, ScriptedPlugin

HOLD: Final = b"hold"
"""As an order: do not answer until the order is another one. Any other order is the answer, after `=`."""
ANSWERS: Final[dict[str, Any]] = {
    method.name: GetMessageClass(method.output_type) for service in SERVICES for method in service.methods
}
REQUESTS: Final[dict[str, Any]] = {
    method.name: GetMessageClass(method.input_type) for service in SERVICES for method in service.methods
}


class RawServer(ScriptedPlugin):
    """The scripted plugin, whose script lies in files."""

    features = WAYS["framed"]

    def __init__(self, folder: Path, descriptor: identity_pb2.PluginDescriptor) -> None:
        super().__init__(descriptor)
        self._folder = folder
        self.instance_id = f"raw-{os.getpid()}-{time.time_ns()}"

    def _script(self, rpc: str) -> Callable[[Any], Any]:
        async def answer(request: Any) -> Any:
            journal(self._folder, rpc, request)
            try:
                while (order := self._order(rpc)) == HOLD:
                    await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                journal(self._folder, f"cancelled-{rpc}", request)
                raise
            if order is None:
                return self.unscripted(rpc)(request)
            return ANSWERS[rpc].FromString(order.removeprefix(b"="))

        return answer

    def _order(self, rpc: str) -> bytes | None:
        for path in (*sorted(self._folder.glob(f"{rpc}.once-*")), self._folder / f"{rpc}.always"):
            try:
                order = path.read_bytes()
            except FileNotFoundError:
                continue
            if path.suffix != ".always" and order != HOLD:
                path.unlink()
            return order
        return None


def journal(folder: Path, rpc: str, request: Any) -> None:
    """One line: the call, and its request or its requests."""
    messages = request if isinstance(request, list) else [request]
    words = [rpc, *(base64.b64encode(message.SerializeToString()).decode() for message in messages)]
    with (folder / "journal").open("a") as file:
        file.write(" ".join(words) + "\n")


async def main(folder: Path, descriptor: str, address: str) -> None:
    """Serve until the process is ended."""
    message = identity_pb2.PluginDescriptor.FromString(base64.b64decode(descriptor))
    async with RawServer(folder, message).serving(Path(address)):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
