"""TLS: certificates that are given, made, kept and replaced; client certificates; bad options."""

from __future__ import annotations

import datetime
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from berth_host.config.loading import default_configuration
from berth_host.endpoints.certificates import self_signed
from berth_host.endpoints.options import ServingOptions
from berth_host.endpoints.server import EndpointServer
from berth_host.errors.endpoints import EndpointError, ReviewError
from berth_host.model.user import ClientTrust
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from support.serving import FakeProcess, FakeSettings, KnownUsers, Served, client_context, served


class Authority:
    """A CA that signs client certificates."""

    def __init__(self, name: str, folder: Path) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._folder = folder
        self.certificate = self._signed(self._name, self._key.public_key(), is_ca=True)
        self.pem = self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def pair(self, common_name: str, *organisations: str) -> tuple[Path, Path]:
        """Files of a certificate and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
        names += [x509.NameAttribute(NameOID.ORGANIZATION_NAME, one) for one in organisations]
        certificate = self._signed(x509.Name(names), key.public_key(), is_ca=False)
        paths = self._folder / f"{common_name}.crt", self._folder / f"{common_name}.key"
        paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        paths[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return paths

    def _signed(self, name: x509.Name, key: ec.EllipticCurvePublicKey, *, is_ca: bool) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )


@asynccontextmanager
async def port(users: KnownUsers | None = None, **options: object) -> AsyncIterator[Served]:
    process = FakeProcess(default_configuration())
    settings = FakeSettings(serving=ServingOptions(**options))  # type: ignore[arg-type]  # any of its fields
    async with served(process, users or KnownUsers(), settings) as found:
        yield found


def write_pair(folder: Path) -> tuple[Path, Path]:
    certificate, key = self_signed()
    paths = folder / "tls.crt", folder / "tls.key"
    paths[0].write_bytes(certificate)
    paths[1].write_bytes(key)
    return paths


async def test_a_made_certificate_is_kept_in_its_folder_and_names_this_host(tmp_path: Path) -> None:
    folder = tmp_path / "certificates"
    for _ in range(2):
        async with port(cert_dir=folder) as found:
            ca = folder / "kube-scheduler.crt"
            reply = await found.ask("GET", "/healthz", ssl=client_context(ca))
            assert reply.body == "ok"
            kept = ca.read_bytes()
    assert kept == ca.read_bytes()
    assert (folder / "kube-scheduler.key").stat().st_mode & 0o777 == 0o600


async def test_replaced_files_count_for_new_connections(tmp_path: Path) -> None:
    certificate, key = write_pair(tmp_path)
    old = tmp_path / "old.crt"
    old.write_bytes(certificate.read_bytes())
    async with port(cert_file=certificate, key_file=key) as found:
        server = found.endpoints.server
        assert (await found.ask("GET", "/healthz", ssl=client_context(old))).body == "ok"
        write_pair(tmp_path)
        await server.renew()
        assert (await found.ask("GET", "/healthz", ssl=client_context(certificate))).body == "ok"
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await found.ask("GET", "/healthz", ssl=client_context(old))
        # Half of a pair is no pair: what is there stays.
        key.write_text("nonsense")
        await server.renew()
        assert (await found.ask("GET", "/healthz", ssl=False)).body == "ok"


async def test_client_certificates_name_users_by_the_clusters_ca(tmp_path: Path) -> None:
    clients, proxies = Authority("clients", tmp_path), Authority("proxies", tmp_path)
    trust = ClientTrust(client_ca=clients.pem, proxy_ca=proxies.pem, proxy_names=("front",))
    users = KnownUsers(trust=trust)
    certificate, key = write_pair(tmp_path)
    async with port(users, cert_file=certificate, key_file=key) as found:

        async def message(pair: tuple[Path, Path], **headers: str) -> str:
            context = client_context(certificate, *pair)
            reply = await found.ask("GET", "/configz", ssl=context, headers=headers)
            return reply.body if reply.status >= 400 else "allowed"

        assert 'User \\"jane\\"' in await message(clients.pair("jane", "dev"))
        assert await message(clients.pair("root", "system:masters")) == "allowed"
        forwarded = {"X-Remote-User": "bob"}
        assert 'User \\"bob\\"' in await message(proxies.pair("front"), **forwarded)
        assert 'User \\"system:anonymous\\"' in await message(proxies.pair("back"), **forwarded)
        # A certificate of another authority ends before the request.
        stranger = Authority("strangers", tmp_path).pair("mallory", "system:masters")
        with pytest.raises(aiohttp.ClientError):
            await message(stranger)


async def test_a_ca_that_the_cluster_replaces_counts_at_once_and_the_old_one_no_more(tmp_path: Path) -> None:
    old, new = Authority("old", tmp_path), Authority("new", tmp_path)
    users = KnownUsers()
    certificate, key = write_pair(tmp_path)
    async with port(users, cert_file=certificate, key_file=key) as found:

        async def status(pair: tuple[Path, Path]) -> int:
            context = client_context(certificate, *pair)
            return (await found.ask("GET", "/configz", ssl=context)).status

        admin = old.pair("root", "system:masters")
        assert await status(admin) == 403  # anonymous: no client certificate counts
        users.found_trust = ClientTrust(client_ca=old.pem)
        await found.endpoints.server.renew()
        assert await status(admin) == 200
        users.found_trust = ClientTrust(client_ca=new.pem)
        await found.endpoints.server.renew()
        with pytest.raises(aiohttp.ClientError):
            await status(admin)
        assert await status(new.pair("root2", "system:masters")) == 200


async def test_a_lookup_that_fails_is_tolerated_or_not() -> None:
    class Forbidden(KnownUsers):
        async def trust(self) -> ClientTrust:
            raise ReviewError("configmaps is forbidden")

    async with port(Forbidden()) as found:
        assert (await found.ask("GET", "/healthz")).body == "ok"
    with pytest.raises(EndpointError, match="extension-apiserver-authentication-reader"):
        async with port(Forbidden(), tolerate_lookup_failure=False):
            pass


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (ServingOptions(min_tls="VersionTLS11"), "unknown tls version 'VersionTLS11'"),
        (ServingOptions(ciphers=("TLS_NONE",)), "Cipher suite TLS_NONE not supported .*--tls-cipher-suites"),
        (ServingOptions(cert_file=Path("a.crt")), "are given together"),
        (
            ServingOptions(trust=ClientTrust(client_ca="none")),
            "--client-ca-file .* needs certificates in PEM",
        ),
    ],
)
def test_options_that_can_never_work_are_refused_at_once(options: ServingOptions, problem: str) -> None:
    with pytest.raises(EndpointError, match=problem):
        EndpointServer(options)


async def test_an_encrypted_key_is_refused_and_its_password_not_asked_for(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    certificate, key = write_pair(tmp_path)
    secret = serialization.BestAvailableEncryption(b"secret")
    known = serialization.load_pem_private_key(key.read_bytes(), password=None)
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    key.write_bytes(known.private_bytes(pem, pkcs8, secret))
    server = EndpointServer(ServingOptions(port=1, cert_file=certificate, key_file=key))
    with pytest.raises(EndpointError, match="not encrypted"):
        await server.start()
    assert "pass phrase" not in "".join(capfd.readouterr())


async def test_a_port_in_use_a_foreign_address_and_a_missing_file_are_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port_number = taken.getsockname()[1]
        server = EndpointServer(ServingOptions(bind_address="127.0.0.1", port=port_number))
        with pytest.raises(
            EndpointError, match=f"127.0.0.1:{port_number}: the port is in use; .*--secure-port"
        ):
            await server.start()
        await server.stop()
    with pytest.raises(EndpointError, match="does not have the address"):
        await EndpointServer(ServingOptions(bind_address="192.0.2.1", port=port_number)).start()
    missing = ServingOptions(cert_file=tmp_path / "none.crt", key_file=tmp_path / "none.key")
    with pytest.raises(EndpointError, match="certificate of the secure port cannot be used"):
        await EndpointServer(missing).start()


async def test_port_0_turns_the_endpoints_off() -> None:
    server = EndpointServer(ServingOptions(port=0))
    await server.start()
    assert server.port == 0
    await server.stop()
