"""Attaching over TLS to a real plugin server, and the condition if either side is refused."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import grpc
import pytest
from berth_host.attach import probing, retrying
from berth_host.attach.configured_places import Place
from berth_host.attach.interfaces import WayBack
from berth_host.attach.peer import DialError
from berth_host.attach.state import State
from berth_host.attach.tls import Renewal, behind_tls, channel_credentials, names_of, own_certificate, trust
from berth_host.config.berth.configuration import TlsFiles
from berth_sdk.extension_points import Plugin
from berth_sdk.handle import Handle
from berth_sdk.pod import Pod
from berth_sdk.serve.server import PluginServer
from berth_sdk.serve.tls import TlsServing
from berth_sdk.wire.message_limit import DEFAULT_BYTES
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from structlog.testing import capture_logs
from support.attached import AttachedHost, attached_host, wanted
from support.certificates import Authority, PairFiles, pair_files, self_signed
from support.echo_plugin import Echo
from support.stream_server import stream_server
from support.waiting import PATIENCE_S, until

HOST, PLUGIN = "host.example", "gpu.example"
SECRET = "a credential that must not travel in plaintext"


class Party:
    """The files of both sides, signed by one CA, and a host that trusts the CA."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority()
        self.plugin = pair_files(folder, "plugin", self.authority.issue("p", dns=PLUGIN), self.authority)
        self.host = pair_files(folder, "host", self.authority.issue("h", dns=HOST), self.authority)
        self.credential = folder / "credential"
        self.credential.write_text(SECRET)

    @property
    def serving(self) -> TlsServing:
        return TlsServing(
            cert_file=str(self.plugin.certificate),
            key_file=str(self.plugin.key),
            client_ca_file=str(self.plugin.authority),
            client_names=(HOST,),
        )

    def place(self, address: str, *names: str) -> Place:
        return Place(
            endpoint=address,
            tls=tls_files(self.host),
            credential_file=str(self.credential),
            plugins=tuple(wanted(name) for name in names or ("Echo",)),
        )


def tls_files(files: PairFiles, name: str = PLUGIN) -> TlsFiles:
    return TlsFiles(
        ca_file=str(files.authority),
        cert_file=str(files.certificate),
        key_file=str(files.key),
        server_name=name,
    )


@pytest.fixture
def party(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Party:
    monkeypatch.setattr(retrying, "FIRST_S", 0.05)
    monkeypatch.setattr(retrying, "MAX_S", 0.1)
    return Party(tmp_path)


@asynccontextmanager
async def served(party: Party, address: str = "127.0.0.1:0", cls: type = Echo) -> AsyncIterator[str]:
    server = PluginServer({cls.__name__: cls}, SECRET, party.serving)
    try:
        yield server.listen(address)
    finally:
        await asyncio.to_thread(server.stop, 1.0)


def condition(host: AttachedHost) -> tuple[State, str]:
    (found,) = host.attachments.conditions()
    return found.state, found.reason


async def backing_off(host: AttachedHost, words: str) -> None:
    """Wait until the condition has this reason; the plugin cannot be called then."""
    await until(lambda: condition(host)[0] is State.BACKOFF and words in condition(host)[1])
    assert not host.client.available


async def test_mutual_tls_attaches_with_unary_calls(party: Party) -> None:
    async with served(party) as address, attached_host(party.place(address)) as host:
        assert condition(host) == (State.ACTIVE, "")
        (found,) = host.attachments.conditions()
        assert found.carrier == "unary"
        (attachment,) = host.attachments.places
        shown = x509.load_pem_x509_certificate(party.plugin.certificate.read_bytes())
        assert attachment.peer.to_log() == {
            "peer_names": ["p", PLUGIN],
            "peer_certificate": shown.fingerprint(hashes.SHA256()).hex(),
        }


async def test_the_name_of_the_endpoint_counts_where_none_is_given(party: Party) -> None:
    party.plugin.put(party.authority.issue("p"), party.authority)  # for 127.0.0.1
    async with served(party) as address:
        own = replace(party.place(address), tls=tls_files(party.host, ""))
        async with attached_host(own) as host:
            assert condition(host) == (State.ACTIVE, "")


@pytest.mark.parametrize(
    ("what", "words"),
    [
        pytest.param("its name", f"certificate is not valid for '{PLUGIN}'", id="name"),
        pytest.param("its authority", "unable to get local issuer certificate", id="authority"),
        pytest.param("its time", "certificate has expired", id="expired"),
        pytest.param("its begin", "certificate is not yet valid", id="not yet valid"),
        pytest.param("its own", "self-signed certificate", id="self-signed"),
        pytest.param("my authority", "does not accept the host's certificate", id="host's authority"),
        pytest.param("my time", "expired at", id="host's expired"),
        pytest.param("my begin", "is not valid before", id="host's not yet valid"),
        pytest.param("my name", "names x, stranger.example", id="host's name"),
    ],
)
async def test_row_27_a_wrong_certificate_is_told_until_the_files_are_replaced(
    party: Party, what: str, words: str
) -> None:
    good, other = party.authority, Authority("other")
    match what:
        case "its name":
            party.plugin.put(good.issue("p", dns="another.example"), good)
        case "its authority":
            party.plugin.put(other.issue("p", dns=PLUGIN), good)
        case "its time":
            party.plugin.put(good.issue("p", dns=PLUGIN, expired=True), good)
        case "its begin":
            party.plugin.put(good.issue("p", dns=PLUGIN, early=True), good)
        case "its own":
            party.plugin.put(self_signed("p", dns=PLUGIN), good)
        case "my authority":
            party.host.put(other.issue("h", dns=HOST), good)
        case "my time":
            party.host.put(good.issue("h", dns=HOST, expired=True), good)
        case "my begin":
            party.host.put(good.issue("h", dns=HOST, early=True), good)
        case "my name":
            party.host.put(good.issue("x", dns="stranger.example"), good)
    async with served(party) as address, attached_host(party.place(address), patience_s=0.0) as host:
        await backing_off(host, words)
        party.plugin.put(good.issue("p", dns=PLUGIN), good)
        party.host.put(good.issue("h", dns=HOST), good)
        await until(lambda: condition(host)[0] is State.ACTIVE)


async def test_row_27_a_certificate_that_goes_bad_is_found_with_the_next_connection(party: Party) -> None:
    async with served(party) as address:
        host_of = attached_host(party.place(address))
        host = await host_of.__aenter__()
    try:
        await until(lambda: condition(host)[0] is State.BACKOFF)
        party.plugin.put(party.authority.issue("p", dns=PLUGIN, expired=True), party.authority)
        async with served(party, address):
            await backing_off(host, "certificate has expired")
            party.plugin.put(party.authority.issue("p", dns=PLUGIN), party.authority)
            await until(lambda: condition(host)[0] is State.ACTIVE)
    finally:
        await host_of.__aexit__(None, None, None)


async def test_row_27_replaced_files_take_effect_on_a_connection_that_stands(
    party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "PROBE_PERIOD_S", 0.05)
    with capture_logs() as logs:
        async with served(party) as address, attached_host(party.place(address)) as host:
            (attachment,) = host.attachments.places
            before, link = attachment.peer.to_log(), attachment.link
            party.plugin.put(party.authority.issue("newer", dns=PLUGIN), party.authority)
            party.host.put(party.authority.issue("h", dns=HOST), party.authority)
            await until(lambda: attachment.link not in (None, link) and condition(host) == (State.ACTIVE, ""))
            assert attachment.peer.to_log() != before
            assert attachment.peer.names == ("newer", PLUGIN)
            assert host.client.available
    trail = [(line["event"], line.get("reason", "")) for line in logs if line["event"].startswith("audit.")]
    assert [event for event, _ in trail][:3] == ["audit.attached", "audit.detached", "audit.attached"]
    assert "were replaced" in trail[1][1]
    assert not [line for line in logs if line.get("state") == State.BACKOFF.value]


async def test_row_27_a_certificate_that_expires_ends_the_connection_that_it_was_made_with(
    party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "PROBE_PERIOD_S", 0.05)
    async with served(party) as address, attached_host(party.place(address)) as host:
        (attachment,) = host.attachments.places
        assert condition(host) == (State.ACTIVE, "")
        party.plugin.put(party.authority.issue("p", dns=PLUGIN, expired=True), party.authority)
        renewal = attachment.peer.renewal.__self__  # type: ignore[attr-defined]  # a method of one
        shown = x509.load_pem_x509_certificate(party.host.certificate.read_bytes())
        assert abs(renewal.ends_s - shown.not_valid_after_utc.timestamp()) < PATIENCE_S
        renewal.ends_s = 0.0
        await backing_off(host, "certificate has expired")
        party.plugin.put(party.authority.issue("p", dns=PLUGIN), party.authority)
        await until(lambda: condition(host)[0] is State.ACTIVE)


async def test_row_27_an_endpoint_in_plaintext_gets_no_call(party: Party) -> None:
    heard = bytearray()
    connections = 0

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        heard.extend(await reader.read(65536))
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with (
        stream_server(listen) as address,
        attached_host(party.place(address), patience_s=0.0) as host,
    ):
        await backing_off(host, "the TLS handshake failed")
        await until(lambda: connections >= 3)
    assert heard.startswith(b"\x16\x03")  # a record of TLS
    for needle in (b"PRI * HTTP/2.0", b"berth", SECRET.encode()):
        assert needle not in heard


async def test_a_silent_endpoint_is_given_up_after_the_timeout(party: Party) -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with stream_server(hang) as address:
        port = int(address.rpartition(":")[2])
        with pytest.raises(DialError, match=r"does not answer over TLS within 0\.05 s"):
            await behind_tls("127.0.0.1", port, tls_files(party.host), 0.05)
    with pytest.raises(DialError, match=f"127.0.0.1:{port}: "):
        await behind_tls("127.0.0.1", port, tls_files(party.host), PATIENCE_S)


class Asks(Plugin):
    """A plugin that uses the handle."""

    def __init__(self, args: object, handle: Handle) -> None:
        self.handle = handle

    def pre_enqueue(self, pod: Pod) -> None:
        return None


class NoGrants:
    """Grants that must not be requested."""

    over_tls = False

    async def grant(
        self,
        attachment_id: str,
        plugins: frozenset[str],
        *,
        loopback_tcp: bool = False,
        tls_name: str = "",
        max_message_bytes: int = DEFAULT_BYTES,
    ) -> WayBack:
        raise AssertionError("a token was made for a plugin behind TLS")

    def revoke(self, attachment_id: str, plugin: str = "") -> None:
        return None


async def test_the_way_back_is_not_given_away_in_plaintext(party: Party) -> None:
    async with (
        served(party, cls=Asks) as address,
        attached_host(party.place(address, "Asks"), grants=NoGrants()) as host,
    ):
        assert condition(host) == (State.ACTIVE, "")
        (found,) = host.attachments.conditions()
        assert any("gets no way back" in warning for warning in found.warnings)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def paths(tmp_path: Path, authority: Authority) -> PairFiles:
    return pair_files(tmp_path, "host", authority.issue("berth", dns="host.example"), authority)


def files(paths: PairFiles) -> TlsFiles:
    return TlsFiles(
        ca_file=str(paths.authority),
        cert_file=str(paths.certificate),
        key_file=str(paths.key),
        server_name="",
    )


def test_good_files_make_credentials(paths: PairFiles) -> None:
    assert isinstance(channel_credentials(files(paths)), grpc.ChannelCredentials)
    context = trust(files(paths))
    assert names_of(own_certificate(files(paths), context)) == ("berth", "host.example")
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


@pytest.mark.parametrize("name", ["authority", "certificate", "key"])
@pytest.mark.parametrize("missing", [True, False])
def test_a_file_that_cannot_be_used_is_named(paths: PairFiles, name: str, missing: bool) -> None:
    path: Path = getattr(paths, name)
    if missing:
        path.unlink()
    else:
        path.write_text("no PEM")
    with pytest.raises(DialError) as caught:
        channel_credentials(files(paths))
    text = str(caught.value)
    assert str(path) in text
    assert ("No such file" if missing else "PEM") in text


def test_the_key_of_another_certificate_is_refused(paths: PairFiles, authority: Authority) -> None:
    paths.key.write_bytes(authority.issue("other").key)
    with pytest.raises(DialError, match="no certificate with its key"):
        channel_credentials(files(paths))


def test_an_expired_certificate_is_refused_with_its_day(paths: PairFiles, authority: Authority) -> None:
    paths.put(authority.issue("berth", expired=True), authority)
    day = datetime.now(UTC).strftime("%Y-%m-")
    with pytest.raises(DialError, match=f"{paths.certificate} expired at {day}.*Z: renew it"):
        channel_credentials(files(paths))


def test_common_name_then_alternatives_each_once() -> None:
    authority = Authority("the ca")

    def names(pem: bytes) -> tuple[str, ...]:
        return names_of(x509.load_pem_x509_certificate(pem))

    assert names(authority.issue("berth", dns="host.example").certificate) == ("berth", "host.example")
    assert names(authority.issue("host.example", dns="host.example").certificate) == ("host.example",)
    assert names(authority.issue("berth").certificate) == ("berth", "127.0.0.1")
    assert names(authority.pem) == ("the ca",)


def test_replaced_files_are_a_reason_once_they_are_good(tmp_path: Path) -> None:
    authority = Authority()
    pair = pair_files(tmp_path, "host", authority.issue("h"), authority)
    files = TlsFiles(
        ca_file=str(pair.authority),
        cert_file=str(pair.certificate),
        key_file=str(pair.key),
        server_name="",
    )
    renewal = Renewal(files)
    assert renewal.due() == ""
    with capture_logs() as logs:
        pair.certificate.write_bytes(authority.issue("h").certificate)  # its key is not there yet
        assert [renewal.due(), renewal.due()] == ["", ""]
        pair.key.unlink()
        assert renewal.due() == ""
    assert [line["event"] for line in logs] == ["attachment.not_renewed"] * 2  # once for each reason
    pair.put(authority.issue("h"), authority)
    assert "were replaced" in renewal.due()


def test_the_first_certificate_that_expires_is_a_reason(tmp_path: Path) -> None:
    now_s = 1000.0
    renewal = Renewal(TlsFiles(ca_file="", cert_file="", key_file="", server_name=""), lambda: now_s)
    renewal.ends_s = 2000.0
    assert renewal.due() == ""
    now_s = 2000.0
    assert "has expired" in renewal.due()
