"""No private key passes through TMPDIR, which the sidecars of a pod may share."""

from __future__ import annotations

import base64
import os
import ssl
import tempfile
from pathlib import Path

import pytest
import yaml
from berth_host.config.checks.extender_tls import load_client_pair
from berth_host.config.decoding.types_v1 import ExtenderTls
from berth_host.endpoints.certificates import ServingCertificate, self_signed
from berth_host.endpoints.options import ServingOptions
from berth_host.model.in_memory import as_file, load_pair
from berth_host.model.user import ClientTrust
from berth_kube.connection import Connection
from berth_kube.credentials import Credentials

needs_memory = pytest.mark.skipif(
    not hasattr(os, "memfd_create"), reason="this system has no files in memory"
)


@pytest.fixture
def no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no folder for temporary files: whatever is written to one fails."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))


def test_file_has_the_content_and_is_gone_afterwards() -> None:
    content = b"secret" * 100_000
    with as_file(content) as path:
        assert Path(path).read_bytes() == content
        assert Path(path).read_bytes() == content
    assert not Path(path).exists() or "memfd" not in str(Path(path).readlink())


@needs_memory
def test_system_that_refuses_files_in_memory_gets_one_without_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container's filter of system calls may refuse memfd_create."""

    def refuse(name: str, flags: int) -> int:
        raise PermissionError

    monkeypatch.setattr(os, "memfd_create", refuse)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with as_file(b"secret") as path:
        assert not list(tmp_path.iterdir())
        assert Path(path).read_bytes() == b"secret"
        assert Path(path).read_bytes() == b"secret"
    load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), *self_signed())


@needs_memory
@pytest.mark.parametrize("refused", [8, 0])
@pytest.mark.usefixtures("no_folder")
def test_file_in_memory_is_made_with_the_flags_that_the_kernel_takes(
    refused: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels before 6.3 do not know MFD_NOEXEC_SEAL; those with `vm.memfd_noexec=2` demand it."""
    made = os.memfd_create

    def strict(name: str, flags: int) -> int:
        if flags & 8 == refused:
            raise PermissionError
        return made(name, flags & ~8)

    monkeypatch.setattr(os, "memfd_create", strict)
    load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), *self_signed())


@needs_memory
@pytest.mark.usefixtures("no_folder")
def test_key_of_the_secure_port_is_in_no_folder() -> None:
    ServingCertificate(ServingOptions(cert_dir=None)).context(ClientTrust())


@needs_memory
@pytest.mark.usefixtures("no_folder")
def test_client_key_of_an_extender_is_in_no_folder() -> None:
    certificate, key = self_signed()
    load_client_pair(
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ExtenderTls(cert_data=certificate, key_data=key)
    )


@needs_memory
@pytest.mark.usefixtures("no_folder")
async def test_client_key_of_a_kubeconfig_is_in_no_folder(tmp_path: Path) -> None:
    certificate, key = (base64.b64encode(pem).decode() for pem in self_signed())
    user = {"client-certificate-data": certificate, "client-key-data": key}
    content = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": user}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(content))
    opened = await Credentials.open(Connection(kubeconfig=str(path)))
    opened.show_certificate_in(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))


def test_pair_that_is_none_is_refused() -> None:
    certificate, _ = self_signed()
    _, key = self_signed()
    with pytest.raises(ssl.SSLError):
        load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), certificate, key)


def test_made_key_is_for_its_owner_alone_even_where_a_file_was_before(tmp_path: Path) -> None:
    (tmp_path / "kube-scheduler.key").write_text("")
    (tmp_path / "kube-scheduler.key").chmod(0o644)
    ServingCertificate(ServingOptions(cert_dir=tmp_path)).context(ClientTrust())
    assert (tmp_path / "kube-scheduler.key").stat().st_mode & 0o777 == 0o600
