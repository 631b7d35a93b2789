"""An extender with TLS, asked by clients with all kinds of certificates."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from berth_sdk import CycleState, Plugin, Pod
from berth_sdk.serve.extender.tls import ExtenderTls
from berth_sdk.serve.server import ListenError
from berth_sdk.wire.certificate import TlsError
from berth_sdk.wire.verification import verify_as_go
from support.certificates import DAY_S, Authority, Pair, PairFiles, pair_files
from support.later import later
from support.waiting import PATIENCE_S

from sdk.serve.extender.serving import about_nodes, extender, names_in, node

CLIENT = "kube-scheduler.example"


class Plain(Plugin):
    def filter(self, state: CycleState, pod: Pod, node: Any) -> None:
        return None


class Binder(Plugin):
    def bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
        return None


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def files(tmp_path: Path, authority: Authority) -> PairFiles:
    return pair_files(tmp_path, "extender", authority.issue("extender"), authority)


def tls_of(files: PairFiles, *, clients: bool = False, names: Iterable[str] = ()) -> ExtenderTls:
    return ExtenderTls(
        cert_file=str(files.certificate),
        key_file=str(files.key),
        client_ca_file=str(files.authority) if clients else "",
        client_names=tuple(names),
    )


def client(authority: Authority, folder: Path, pair: Pair | None = None) -> ssl.SSLContext:
    """Return the context of a client that trusts `authority`."""
    context = verify_as_go(ssl.create_default_context(cadata=authority.pem.decode()))
    if pair is not None:
        for name, content in zip(("client.crt", "client.key"), pair, strict=True):
            (folder / name).write_bytes(content)
        context.load_cert_chain(folder / "client.crt", folder / "client.key")
    return context


async def answers(tls: ExtenderTls, context: ssl.SSLContext) -> tuple[int, Any]:
    async with extender(Plain, tls_files=tls, tls=context) as asking:
        assert asking.url.startswith("https://127.0.0.1:")
        return await asking.reply("filter", about_nodes(node("n1")))


async def test_client_without_a_certificate_is_answered_where_none_is_wanted(
    files: PairFiles, authority: Authority, tmp_path: Path
) -> None:
    status, answer = await answers(tls_of(files), client(authority, tmp_path))
    assert (status, names_in(answer)) == (200, ["n1"])


async def test_server_of_another_authority_is_not_trusted(files: PairFiles, tmp_path: Path) -> None:
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        await answers(tls_of(files), client(Authority("other"), tmp_path))


async def test_client_needs_a_certificate_of_the_authority(
    files: PairFiles, authority: Authority, tmp_path: Path
) -> None:
    tls = tls_of(files, clients=True)
    good = client(authority, tmp_path, authority.issue("x", dns=CLIENT))
    assert (await answers(tls, good))[0] == 200
    strangers = {
        "none": None,
        "another authority": Authority("other").issue("x", dns=CLIENT),
        "expired": authority.issue("x", dns=CLIENT, expired=True),
    }
    for pair in strangers.values():
        with pytest.raises(aiohttp.ClientError):
            await answers(tls, client(authority, tmp_path, pair))


async def test_client_needs_one_of_the_names(files: PairFiles, authority: Authority, tmp_path: Path) -> None:
    tls = tls_of(files, clients=True, names=[CLIENT])
    assert (await answers(tls, client(authority, tmp_path, authority.issue("x", dns=CLIENT))))[0] == 200
    assert (await answers(tls, client(authority, tmp_path, authority.issue(CLIENT))))[0] == 200
    status, text = await answers(tls, client(authority, tmp_path, authority.issue("y", dns="y.example")))
    assert (status, text) == (
        403,
        "this extender does not answer a client whose certificate names y, y.example\n",
    )


async def test_replaced_files_are_used_and_bad_ones_are_not(
    files: PairFiles, authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    newer = Authority("newer")
    async with extender(
        Plain, tls_files=tls_of(files, clients=True), tls=client(authority, tmp_path)
    ) as asking:

        async def status(trusts: Authority, signs: Authority) -> int:
            context = client(trusts, tmp_path, signs.issue("x", dns=CLIENT))
            connector = aiohttp.TCPConnector(ssl=context)
            async with (
                aiohttp.ClientSession(connector=connector) as session,
                session.get(f"{asking.url}/healthz") as answer,
            ):
                return answer.status

        assert await status(authority, authority) == 200
        files.key.write_text("no key")
        for _ in range(2):
            assert await status(authority, authority) == 200
        assert caplog.text.count("the previous certificate stays in use") == 1
        files.put(newer.issue("extender"), newer)
        assert await status(newer, newer) == 200
        assert "is in use" in caplog.text
        with pytest.raises(aiohttp.ClientError):
            await status(newer, authority)
        with pytest.raises(aiohttp.ClientError):
            await status(authority, newer)


async def test_bind_for_other_machines_needs_client_certificates(files: PairFiles) -> None:
    from berth_sdk.serve.extender.api_server import ApiAccess

    api = ApiAccess(url="http://127.0.0.1:1")
    with pytest.raises(ListenError, match="anybody could bind pods: give --tls-client-ca"):
        async with extender(Binder, listen="0.0.0.0:0", tls_files=tls_of(files), api=api):
            pass


def test_settings_that_do_not_go_together_are_refused(files: PairFiles) -> None:
    with pytest.raises(TlsError, match="--tls-cert and --tls-key go together"):
        ExtenderTls(cert_file="c", key_file="")
    with pytest.raises(TlsError, match="--tls-client-name needs --tls-client-ca"):
        ExtenderTls(cert_file="c", key_file="k", client_names=("x",))


async def test_files_that_cannot_be_used_are_named(files: PairFiles, tmp_path: Path) -> None:
    missing = ExtenderTls(cert_file=str(tmp_path / "none"), key_file=str(files.key))
    with pytest.raises(TlsError, match="none: No such file"):
        await answers(missing, ssl.create_default_context())
    swapped = ExtenderTls(cert_file=str(files.key), key_file=str(files.certificate))
    with pytest.raises(TlsError, match="no certificate with its key"):
        await answers(swapped, ssl.create_default_context())
    files.authority.write_text("nobody")
    with pytest.raises(TlsError, match="holds no authority"):
        await answers(tls_of(files, clients=True), ssl.create_default_context())


async def asked(context: ssl.SSLContext, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a kept connection on which a request was answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    assert await status_of(reader, writer) == 200
    return reader, writer


async def status_of(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(PATIENCE_S):
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]))
    return int(head.split()[1])


async def test_kept_connection_does_not_outlive_the_clients_certificate(
    files: PairFiles, authority: Authority, tmp_path: Path
) -> None:
    context = client(authority, tmp_path, authority.issue("x", dns=CLIENT))
    async with extender(Plain, tls_files=tls_of(files, clients=True), tls=context) as asking:
        kept = await asked(context, int(asking.url.rpartition(":")[2]))
        with later(DAY_S):
            assert await status_of(*kept) == 401
        assert await kept[0].read() == b""
        kept[1].close()


async def test_kept_connection_does_not_outlive_the_authority_of_clients(
    files: PairFiles, authority: Authority, tmp_path: Path
) -> None:
    context = client(authority, tmp_path, authority.issue("x", dns=CLIENT))
    async with extender(Plain, tls_files=tls_of(files, clients=True), tls=context) as asking:
        port = int(asking.url.rpartition(":")[2])
        kept = await asked(context, port)
        # Another certificate of the server ends no connection.
        files.put(authority.issue("extender"), authority)
        assert await status_of(*kept) == 200
        newer = Authority("newer")
        files.put(newer.issue("extender"), newer)
        assert await status_of(*kept) == 401
        assert await kept[0].read() == b""
        kept[1].close()
