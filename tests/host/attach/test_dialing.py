"""The host looks at an endpoint before it dials it."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from berth_host.attach.dialing import (
    DialError,
    check_socket,
    dial,
    host_and_port,
    socket_path,
)
from berth_host.attach.wanted import Place
from berth_host.config.berth.configuration import TlsFiles
from support.attached import wanted
from support.strangers import another_user, give


def listening(path: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    return server


def place(endpoint: str, tls: TlsFiles | None = None) -> Place:
    return Place(endpoint=endpoint, tls=tls, plugins=(wanted("Demo"),))


def test_own_socket_in_an_own_folder_is_good(tmp_path: Path) -> None:
    with listening(tmp_path / "p.sock"):
        check_socket(tmp_path / "p.sock")


def test_missing_socket_is_named(tmp_path: Path) -> None:
    with pytest.raises(DialError, match=r"p.sock: No such file"):
        check_socket(tmp_path / "p.sock")


def test_file_that_is_no_socket_is_refused_and_so_is_a_link_to_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with listening(tmp_path / "p.sock"):
        (tmp_path / "link").symlink_to(tmp_path / "p.sock")
        for name in ("file", "link"):
            with pytest.raises(DialError, match="is not a socket"):
                check_socket(tmp_path / name)


def test_folder_in_which_everybody_may_replace_the_socket_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    with listening(folder / "p.sock"):
        folder.chmod(0o777)
        with pytest.raises(DialError, match=f"any user may replace .*: chmod 700 {folder}"):
            check_socket(folder / "p.sock")
        folder.chmod(0o1777)
        check_socket(folder / "p.sock")


async def test_plaintext_is_dialled_on_loopback_only(tmp_path: Path) -> None:
    with pytest.raises(DialError, match="not a loopback address"):
        dial("192.0.2.7:7001", place("192.0.2.7:7001"))
    channel = dial("127.0.0.1:7001", place("127.0.0.1:7001"))
    await channel.close()


@pytest.mark.parametrize("address", ["127.0.0.1:7001", "10.0.0.1:7001"])
def test_tls_that_fails_never_becomes_plaintext(address: str) -> None:
    files = TlsFiles(ca_file="a", cert_file="b", key_file="c", server_name="")
    with pytest.raises(DialError, match="caFile a cannot be read"):
        dial(address, place(address, files))


@pytest.mark.parametrize("what", ["file", "folder"])
def test_socket_of_another_user_is_refused_unless_that_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    with listening(folder / "p.sock"):
        stranger = another_user(monkeypatch)
        owned = folder if what == "folder" else folder / "p.sock"
        kept = folder / "p.sock" if what == "folder" else folder
        give(owned, stranger)
        give(kept, os.getuid())
        with pytest.raises(DialError, match=rf"allow that user with allowedUIDs: \[{stranger}\]"):
            check_socket(folder / "p.sock")
        check_socket(folder / "p.sock", [stranger])


def test_addresses_are_split_into_host_and_port() -> None:
    assert host_and_port("gpu.example:8443") == ("gpu.example", 8443)
    assert host_and_port("[::1]:80") == ("::1", 80)


@pytest.mark.parametrize("endpoint", ["unix:/run/p.sock", "unix:///run/p.sock"])
def test_both_spellings_name_the_same_path(endpoint: str) -> None:
    assert socket_path(endpoint) == Path("/run/p.sock")
