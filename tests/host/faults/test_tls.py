"""Row 27 of the failure table, with real processes: certificates that are expired, or of somebody else."""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.certificates import Authority, PairFiles, pair_files
from support.faults import attached, in_time
from support.hosts import World, node, pod
from support.plugin_processes import plugin_environment
from support.waiting import PATIENCE_S

pytestmark = pytest.mark.slow

HOST, PLUGIN = "host.example", "gpu.example"
SECRET = "a credential that must not travel in plaintext"


class Party:
    """Both sides' files, signed by one authority."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority()
        self.other = Authority("other")
        good = self.authority
        self.plugin: PairFiles = pair_files(folder, "plugin", good.issue("p", dns=PLUGIN), good)
        self.host: PairFiles = pair_files(folder, "host", good.issue("h", dns=HOST), good)
        (folder / "credential").write_text(SECRET)

    def spoil(self, what: str) -> None:
        """Replace one side's files by wrong ones."""
        good, other = self.authority, self.other
        match what:
            case "expired":
                self.plugin.put(good.issue("p", dns=PLUGIN, expired=True), good)
            case "somebody else's":
                self.plugin.put(other.issue("p", dns=PLUGIN), good)
            case "host's expired":
                self.host.put(good.issue("h", dns=HOST, expired=True), good)
            case "host's unknown":
                self.host.put(good.issue("x", dns="stranger.example"), good)

    def mend(self) -> None:
        """As they were at first."""
        self.plugin.put(self.authority.issue("p", dns=PLUGIN), self.authority)
        self.host.put(self.authority.issue("h", dns=HOST), self.authority)

    def configuration(self, address: str) -> str:
        """Echo behind TLS, required."""
        return (
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
            "profiles:\n- plugins: {filter: {enabled: [{name: Echo}]}}\n"
            "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\nplugins:\n"
            f"- name: Echo\n  endpoint: {address}\n  required: true\n"
            f"  credentialFile: {self.folder / 'credential'}\n"
            f"  tls:\n    caFile: {self.host.authority}\n    certFile: {self.host.certificate}\n"
            f"    keyFile: {self.host.key}\n    serverName: {PLUGIN}\n"
            "  points: {filter: {deadline: 10s}}\n"
        )


@asynccontextmanager
async def serving(party: Party) -> AsyncIterator[str]:
    """`berth-sdk serve` behind TLS, in a process of its own; where."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "berth_sdk", "serve", "support.echo_plugin:Echo"),
        *("--listen", "127.0.0.1:0", "--credential-file", str(party.folder / "credential")),
        *("--tls-cert", str(party.plugin.certificate), "--tls-key", str(party.plugin.key)),
        *("--tls-client-ca", str(party.plugin.authority), "--tls-client-name", HOST),
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=plugin_environment(),
    )
    assert process.stderr is not None
    try:
        line = b""
        async with asyncio.timeout(PATIENCE_S):
            while b"serving Echo at" not in line:
                line = await process.stderr.readline()
                assert line, "the plugin has ended"
        yield line.decode().split()[-1]
    finally:
        process.kill()
        await process.communicate()


WORDS = {
    "expired": "certificate has expired",
    "somebody else's": "unable to get local issuer certificate",
    "host's expired": "expired at",
    "host's unknown": "names x, stranger.example",
}


async def test_row_27_nothing_is_attached_until_the_wrong_files_are_replaced(tmp_path: Path) -> None:
    party = Party(tmp_path)
    async with serving(party) as address:
        for what, words in WORDS.items():
            party.spoil(what)
            objects = [node("n0"), pod("web")]
            async with World(objects, configuration=party.configuration(address)) as world:
                await in_time(functools.partial(is_told, world, words))
                assert not attached(world, "Echo"), what
                party.mend()
                await in_time(functools.partial(attached, world, "Echo"))
                await in_time(functools.partial(world.node_of, "web"))


def is_told(world: World, words: str) -> bool:
    """In the condition, which stays that way, and by the pod."""
    (place,) = world.host.attachments.attached_places.places
    return words in place.reason and place.backoff.failures >= 2 and words in world.message_of("web")
