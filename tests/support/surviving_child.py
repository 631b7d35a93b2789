"""A launched child that no end of its host ends: it heeds neither its input, nor its parent, nor SIGTERM.

    python -m support.surviving_child NAME        as a `command`, with BERTH_FAULTS naming a folder

It serves a raw plugin at Filter. In the folder: `pids`, one line for each such process that has begun, and a
folder for each, with its `journal`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from support.raw_plugin import RawServer
from support.scripted_plugin import descriptor


async def main(name: str, folder: Path) -> None:
    """Say the line, and serve until killed."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    address = os.environ["BERTH_PLUGIN_ENDPOINT"]
    own = folder / str(os.getpid())
    own.mkdir()
    server = RawServer(own, descriptor(name, "FILTER"))
    async with server.serving(Path(address.removeprefix("unix://"))):
        with (folder / "pids").open("a") as file:
            file.write(f"{os.getpid()}\n")
        line = {
            "protocol": "berth/1",
            "address": address,
            "instance_id": server.instance_id,
            "cookie": os.environ["BERTH_PLUGIN_COOKIE"],
        }
        print(json.dumps(line), flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(os.environ["BERTH_FAULTS"])))
