"""The folder of sockets: sidecars start, are replaced and stop, with real processes."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
from berth_host.attach import folder as folder_module
from berth_host.attach.attachment import Attachment
from berth_host.attach.attachments import Condition
from berth_host.attach.configured_places import Place
from berth_host.attach.folder import SocketFolder
from berth_host.attach.state import State
from support.attached import AttachedHost, attached_host, wanted
from support.plugin_processes import PluginProcess
from support.waiting import PATIENCE_S, until

ECHO = "support.echo_plugin:Echo"
SLOW_RESCAN_S = 3600.0


class Member:
    """The part of an attachment that the folder reads."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.standing: object | None = None
        self.stopped = False

    async def stop(self) -> None:
        self.stopped = True


class Folder:
    """A folder, and the attachments that it created."""

    def __init__(self, path: Path) -> None:
        self.made: list[Member] = []
        self.folder = SocketFolder(path, self._attach)

    def _attach(self, endpoint: str) -> Attachment:
        self.made.append(Member(endpoint))
        return cast(Attachment, self.made[-1])

    @property
    def endpoints(self) -> list[str]:
        return [member.endpoint for member in self.made if not member.stopped]


def listen(path: Path) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen()
    return listening


async def test_sockets_are_found_here_and_one_level_down_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "deep" / "x").mkdir(parents=True)
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "file").write_text("no socket")
    names = (
        "a.sock",
        "a.sock.framed",
        "deep/b.sock",
        ".c.sock",
        "deep/.d.sock",
        ".hidden/e.sock",
        "deep/x/f.sock",
    )
    listening = [listen(tmp_path / name) for name in names]
    (tmp_path / "link.sock").symlink_to(tmp_path / "a.sock")
    found = Folder(tmp_path)
    await found.folder.scan()
    assert found.endpoints == [f"unix://{tmp_path}/a.sock", f"unix://{tmp_path}/deep/b.sock"]
    await found.folder.scan()
    assert len(found.made) == 2
    for one in listening:
        one.close()


async def test_another_socket_at_a_path_is_another_place_and_the_one_that_is_gone_waits_for_its_connection(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.sock"
    found = Folder(tmp_path)
    with listen(path):
        await found.folder.scan()
        (old,) = found.made
        old.standing = object()
        path.unlink()
        with listen(path):
            await found.folder.scan()
            assert len(found.folder.members) == 2
            old.standing = None
            await found.folder.scan()
            assert old.stopped
            assert len(found.folder.members) == 1


async def test_folder_in_it_that_cannot_be_read_is_a_problem_and_hides_no_other_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "closed", "z"):
        (tmp_path / name).mkdir()
    listening = [listen(tmp_path / name / "p.sock") for name in ("a", "closed", "z")]
    read = Path.iterdir

    def iterdir(path: Path) -> Iterator[Path]:
        if path.name == "closed":  # root may read every folder
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return read(path)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    found = Folder(tmp_path)
    await found.folder.scan()
    assert found.endpoints == [f"unix://{tmp_path}/{name}/p.sock" for name in ("a", "z")]
    assert found.folder.problem == f"{tmp_path}/closed: Permission denied"
    for one in listening:
        one.close()


async def test_folder_whose_names_alone_can_be_read_is_a_problem_and_hides_no_other_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mode r--: the names can be read, but the status of no entry."""
    for name in ("a", "closed", "z"):
        (tmp_path / name).mkdir()
    listening = [listen(tmp_path / name / f"{n}.sock") for name in ("a", "closed", "z") for n in (1, 2)]
    look = Path.lstat

    def lstat(path: Path) -> os.stat_result:
        if path.parent.name == "closed":  # root may look at every file
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return look(path)

    monkeypatch.setattr(Path, "lstat", lstat)
    found = Folder(tmp_path)
    await found.folder.scan()
    assert found.endpoints == [f"unix://{tmp_path}/{name}/{n}.sock" for name in ("a", "z") for n in (1, 2)]
    assert found.folder.problem == f"{tmp_path}/closed: Permission denied"
    for one in listening:
        one.close()


async def test_names_that_are_not_text_are_skipped_and_do_not_end_the_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(folder_module, "RESCAN_S", 0.5)
    found = Folder(tmp_path)
    await found.folder.start()
    try:
        async with asyncio.timeout(PATIENCE_S):
            while "folder.unwatched" not in capsys.readouterr().out:  # the watch begins in a thread
                for raw in (b"\xff\xfe.sock", b"two\nlines.sock"):
                    (path := tmp_path / os.fsdecode(raw)).unlink(missing_ok=True)
                    listen(path).close()
                await asyncio.sleep(0.05)
        with listen(tmp_path / "good.sock"):
            await until(lambda: found.endpoints == [f"unix://{tmp_path}/good.sock"])
    finally:
        await found.folder.stop()


async def test_more_sockets_than_are_looked_at_are_a_problem_and_displace_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_module, "MAX_SOCKETS", 2)
    found = Folder(tmp_path)
    with listen(tmp_path / "m.sock"), listen(tmp_path / "n.sock"):
        await found.folder.scan()
        assert found.folder.problem == ""
        with listen(tmp_path / "a.sock"):
            await found.folder.scan()
    assert found.endpoints == [f"unix://{tmp_path}/{name}.sock" for name in ("m", "n")]
    assert found.folder.problem == (
        f"{tmp_path}: 3 sockets are there, and only 2 are used: remove those of ended plugins"
    )


async def test_folder_that_is_not_there_is_a_problem_until_it_is(tmp_path: Path) -> None:
    path = tmp_path / "later"
    found = Folder(path)
    await found.folder.scan()
    assert found.folder.problem == f"{path}: No such file or directory"
    path.mkdir()
    with listen(path / "a.sock"):
        await found.folder.scan()
    assert (found.folder.problem, len(found.endpoints)) == ("", 1)


@pytest.mark.parametrize("cause", ["notified", "rescanned"])
async def test_row_31_new_socket_is_noticed_and_rescans_make_up_for_what_was_missed(
    tmp_path: Path, cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch misses an event, or the folder is created after the watch."""
    monkeypatch.setattr(folder_module, "RESCAN_S", SLOW_RESCAN_S if cause == "notified" else 0.05)
    path = tmp_path / "sockets"
    if cause == "notified":
        path.mkdir()
    found = Folder(path)
    await found.folder.start()
    try:
        # The watch begins in a thread; what came before it is seen by the first look or not at all.
        for number in range(200):
            path.mkdir(exist_ok=True)
            with listen(path / f"{number}.sock"):
                await asyncio.sleep(0.05)
            if found.endpoints:
                break
        assert found.endpoints
    finally:
        await found.folder.stop()


async def test_a_change_between_two_scans_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_module, "RESCAN_S", SLOW_RESCAN_S)
    found = Folder(tmp_path)
    listening = []
    await found.folder.start()
    try:
        for number in range(3):  # at once after the look, when nobody waits for a notice yet
            listening.append(listen(tmp_path / f"{number}.sock"))
            await until(lambda: len(found.endpoints) == len(listening))
    finally:
        await found.folder.stop()
        for one in listening:
            one.close()


async def test_folder_that_takes_the_place_of_another_is_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_module, "RESCAN_S", 0.2)
    path = tmp_path / "sockets"
    path.mkdir()
    found = Folder(path)
    await found.folder.start()
    try:
        path.rename(tmp_path / "before")
        await until(lambda: found.folder.problem != "")
        path.mkdir()
        await until(lambda: found.folder.problem == "")
        monkeypatch.setattr(folder_module, "RESCAN_S", SLOW_RESCAN_S)
        with listen(path / "a.sock"):
            await until(lambda: len(found.endpoints) == 1)
        with listen(path / "b.sock"):
            await until(lambda: len(found.endpoints) == 2)
    finally:
        await found.folder.stop()


# --- with real processes ---------------------------------------------------------------------------------


@asynccontextmanager
async def sidecars(path: Path, *names: str) -> AsyncIterator[AttachedHost]:
    """A host that waits for Echo in a folder, and processes that are not started yet."""
    place = Place(endpoint=f"unix://{path}", is_open=True, plugins=(wanted("Echo"),))
    async with attached_host(place, patience_s=0.0) as host:
        yield host


def by_socket(host: AttachedHost) -> dict[str, Condition]:
    return {Path(condition.place).name: condition for condition in host.attachments.conditions()}


async def ask(host: AttachedHost) -> str:
    """Run one cycle's Filter; return the instance that answered. Fails if the plugin's rule did not run."""
    cycle = host.cycle()
    verdicts = await host.client.filter(cycle, host.nodes)
    assert verdicts.passed.tolist() == (host.nodes.slots % 7 != 3).tolist(), (verdicts, cycle.account.notes)
    return str(cycle.part("Echo").instance.link.identity.instance_id)


@pytest.mark.slow
async def test_row_6_and_7_hot_swap_loses_no_cycle_and_falls_back_to_the_older_instance(
    tmp_path: Path,
) -> None:
    """The newest ready instance gets the calls; after its crash the older one gets them."""
    old, new = (PluginProcess(tmp_path / f"{name}.sock", ECHO) for name in ("old", "new"))
    async with sidecars(tmp_path) as host:
        (condition,) = host.attachments.conditions()
        assert condition.reason == "no socket in the folder serves it yet"
        try:
            await old.start()
            await until(lambda: host.client.available)
            first = await ask(host)
            asked = [first]

            async def keep_asking() -> None:
                while True:
                    asked.append(await ask(host))
                    await asyncio.sleep(0)

            asking = asyncio.create_task(keep_asking())
            await new.start()
            await until(lambda: asked[-1] != first or asking.done())
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            assert asking.cancelled(), asking.exception()
            second = asked[-1]
            # One switch, between two cycles.
            assert asked == sorted(asked, key=lambda instance: instance == second)
            states = {name: condition.state for name, condition in by_socket(host).items()}
            assert states == {"old.sock": State.STANDBY, "new.sock": State.ACTIVE}
            assert by_socket(host)["old.sock"].reason == f"instance {second} is asked"

            await new.kill()
            await until(lambda: by_socket(host)["old.sock"].state is State.ACTIVE)
            assert await ask(host) == first
            assert not host.attachments.restoring  # a simulation has nothing to wait for
            assert ("lost", "Echo") not in [seen[:2] for seen in host.witness.seen]
        finally:
            await old.kill()
            await new.kill()


@pytest.mark.slow
async def test_cycle_stays_with_the_instance_that_began_it(tmp_path: Path) -> None:
    old, new = (PluginProcess(tmp_path / f"{name}.sock", ECHO) for name in ("old", "new"))
    async with sidecars(tmp_path) as host:
        try:
            await old.start()
            await until(lambda: host.client.available)
            cycle = host.cycle()
            await host.client.filter(cycle, host.nodes)
            began = cycle.part("Echo").instance
            await new.start()
            await until(lambda: "new.sock" in by_socket(host))
            await until(lambda: by_socket(host)["new.sock"].state is State.ACTIVE)
            outcome = await host.client.score(cycle, host.nodes)
            assert outcome.status.is_success
            assert cycle.part("Echo").instance is began
            assert began.link.identity.endpoint.endswith("old.sock")
        finally:
            await old.kill()
            await new.kill()


@pytest.mark.slow
async def test_instance_that_is_found_at_two_paths_is_attached_once(tmp_path: Path) -> None:
    live = PluginProcess(tmp_path / "live.sock", ECHO)
    async with sidecars(tmp_path) as host:
        try:
            await live.start()
            await until(lambda: host.client.available)
            (tmp_path / "other.sock").hardlink_to(tmp_path / "live.sock")
            await until(lambda: by_socket(host).get("other.sock") is not None)
            await until(lambda: by_socket(host)["other.sock"].state is State.BACKOFF)
            assert "is attached already, at unix://" in by_socket(host)["other.sock"].reason
            assert by_socket(host)["live.sock"].state is State.ACTIVE
            await ask(host)
        finally:
            await live.kill()
