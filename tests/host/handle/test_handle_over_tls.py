"""The way back of plugins behind TLS, with real processes and certificates: a whole host, and a plugin that
it reaches over TCP alone.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from berth_bench.versus.free_ports import free_port
from berth_host.attach import retrying
from berth_host.attach.attachments import Condition
from berth_host.attach.state import State
from support.certificates import Authority, PairFiles, pair_files
from support.faults import FailingProcess, attached, configuration, held, in_time, running
from support.hosts import World, node, pod
from support.tapped import tapped

pytestmark = pytest.mark.slow
HOST, PLUGIN = "host.example", "gpu.example"


class Served(FailingProcess):
    """The failing plugin behind TLS. `own`: its files."""

    def __init__(self, folder: Path, own: PairFiles) -> None:
        super().__init__(folder)
        self.own = own
        self.port = free_port()
        self.endpoint = f"127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        tls = {
            "--tls-cert": self.own.certificate,
            "--tls-key": self.own.key,
            "--tls-client-ca": self.own.authority,
            "--tls-client-name": HOST,
        }
        options = [str(word) for option in tls.items() for word in option]
        return [sys.executable, "-m", "support.failing_plugin", "--listen", self.endpoint, *options]

    async def listening(self) -> None:
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
            except OSError:
                await asyncio.sleep(0.02)  # another process will not set our event
            else:
                writer.close()
                return


class Parties:
    """Both sides' files, signed by one authority."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority()
        own = pair_files(folder, "plugin", self.authority.issue("p", dns=PLUGIN), self.authority)
        self.host = pair_files(folder, "host", self.authority.issue("h", dns=HOST), self.authority)
        self.plugin = Served(folder / "plugin", own)
        self.port = free_port()

    def renew(self, authority: Authority) -> None:
        """Certificates of another authority on both sides."""
        self.plugin.own.put(authority.issue("p", dns=PLUGIN), authority)
        self.host.put(authority.issue("h", dns=HOST), authority)

    def configuration(self, handle: str) -> str:
        """`handle`: further lines of the BerthConfiguration."""
        tls = f"tls: {self.tls(PLUGIN)}"
        text = configuration(self.plugin, more=f"required: true\n  {tls}", Failing="permit")
        return f"{text}{handle}"

    def tls(self, name: str) -> str:
        files = self.host
        return (
            f"{{caFile: {files.authority}, certFile: {files.certificate}, keyFile: {files.key},"
            f" serverName: {name}}}"
        )

    def handle(self, advertised: str) -> str:
        return (
            f"handle:\n  bindAddress: 127.0.0.1:{self.port}\n  advertiseAddress: {advertised}\n"
            f"  tls: {self.tls(HOST)}\n"
        )

    @asynccontextmanager
    async def world(self, handle: str) -> AsyncIterator[World]:
        async with (
            running(self.plugin),
            World([node("n0")], configuration=self.configuration(handle)) as world,
        ):
            yield world


@pytest.fixture
def parties(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Parties:
    monkeypatch.setattr(retrying, "FIRST_S", 0.05)
    monkeypatch.setattr(retrying, "MAX_S", 0.1)
    return Parties(tmp_path)


def condition(world: World) -> Condition:
    (found,) = world.host.conditions()
    return found


async def waits(world: World, name: str) -> tuple[str, str]:
    """Create a pod that waits on Permit; its uid and cycle."""
    world.server.create(pod(name, labels={"permit": "waits"}))
    await held(world)
    (waiting,) = world.host.backend.waiting_pods("Failing", True)
    return waiting.pod.uid, waiting.cycle_id


async def test_a_permit_plugin_behind_tls_allows_a_pod_that_waits(parties: Parties) -> None:
    heard = bytearray()
    async with (
        tapped(parties.port, heard) as line,
        parties.world(parties.handle(line)) as world,
    ):
        await in_time(lambda: attached(world))
        assert condition(world).warnings == ()
        uid, cycle_id = await waits(world, "web")
        assert await parties.plugin.order("allow", uid, cycle_id) == "APPLIED"
        await in_time(lambda: world.node_of("web"))
        (token,) = [grant.token for grant in vars(world.host.handle_server.grants)["_grants"].values()]
    assert heard.startswith(b"\x16\x03")  # a record of TLS
    for needle in (token, b"PRI * HTTP/2.0", b"berth.plugin", b"Bearer"):
        assert needle not in heard


@pytest.mark.long
async def test_files_that_are_replaced_on_both_sides_serve_the_next_question(parties: Parties) -> None:
    async with parties.world(parties.handle(f"127.0.0.1:{parties.port}")) as world:
        await in_time(lambda: attached(world))
        uid, cycle_id = await waits(world, "web")
        assert await parties.plugin.order("flood", 4, 2) == {"answered": 4}
        # Signed by nobody that the host knows: the plugin's next question is on another connection.
        good, stranger = parties.authority, Authority("stranger")
        parties.plugin.own.put(stranger.issue("p", dns=PLUGIN), good)
        assert await parties.plugin.order("flood", 4, 2) == {"HandleError": 4}
        parties.renew(Authority("renewed"))
        assert await parties.plugin.order("allow", uid, cycle_id) == "APPLIED"
        await in_time(lambda: world.node_of("web"))
        assert condition(world).state is State.ACTIVE  # its own connection stood all the time


@pytest.mark.long
async def test_plugin_is_not_attached_while_the_host_cannot_serve_its_calls(parties: Parties) -> None:
    key = parties.host.key.read_bytes()
    own = parties.host.key.with_name("handle.key")
    own.write_text("no PEM")
    handle = parties.handle(f"127.0.0.1:{parties.port}").replace(str(parties.host.key), str(own))
    async with parties.world(handle) as world:
        await in_time(lambda: condition(world).state is State.BACKOFF)
        assert "handle.tls cannot be used" in condition(world).reason
        assert str(own) in condition(world).reason
        own.write_bytes(key)
        await in_time(lambda: attached(world))
        assert await parties.plugin.order("flood", 2, 1) == {"answered": 2}


async def test_plugin_that_calls_its_host_is_refused_where_the_host_has_no_way_back_over_tls(
    parties: Parties,
) -> None:
    async with parties.world("") as world:
        await in_time(lambda: condition(world).state is State.REJECTED)
        reason = condition(world).reason
    assert "calls its host and gets no way back" in reason
    assert "give it `handle` in its BerthConfiguration" in reason
