"""Kubeconfigs of all kinds with a TLS server, and a message in one line for each wrong one."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import ssl
import stat
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from berth_bench.versus.free_ports import free_port
from berth_host.errors.cluster import ClientConfigError, UnauthorizedError, UnavailableError
from berth_kube import credentials as credentials_module
from berth_kube import exec_plugin, server
from berth_kube.client import KubeClient
from berth_kube.connection import Connection
from berth_sdk.wire.verification import verify_as_go
from cryptography.hazmat.primitives import serialization
from support.certificates import Authority, Pair
from support.kube_api import Answer, KubeApi, kube_api
from support.waiting import PATIENCE_S

EXEC_VERSION = "client.authentication.k8s.io/v1"


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


def server_tls(folder: Path, pair: Pair, client_authority: Authority | None = None) -> ssl.SSLContext:
    path = folder / "server.pem"
    path.write_bytes(pair.certificate + pair.key)
    context = verify_as_go(ssl.create_default_context(ssl.Purpose.CLIENT_AUTH))
    context.load_cert_chain(path)
    if client_authority is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=client_authority.pem.decode())
    return context


@pytest.fixture
async def api(authority: Authority, tmp_path: Path) -> AsyncIterator[KubeApi]:
    async with kube_api(server_tls(tmp_path, authority.issue("server"))) as running:
        await running.put("nodes", "n1")
        yield running


def kubeconfig(folder: Path, cluster: dict[str, Any], user: dict[str, Any], name: str = "kc") -> str:
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    path = folder / name
    path.write_text(json.dumps(content))
    return str(path)


def data(pem: bytes) -> str:
    return base64.b64encode(pem).decode()


@asynccontextmanager
async def opened(path: str, **more: Any) -> AsyncIterator[KubeClient]:
    client = await KubeClient.open(Connection(kubeconfig=path, **more))
    try:
        yield client
    finally:
        await client.close()


async def read(client: KubeClient) -> None:
    assert (await client.request("GET", "/api/v1/nodes/n1"))["kind"] == "Node"


# --- good ones -------------------------------------------------------------------------------------


async def test_token_and_authority_as_data(api: KubeApi, authority: Authority, tmp_path: Path) -> None:
    cluster = {"server": api.url + "/", "certificate-authority-data": data(authority.pem)}
    async with opened(kubeconfig(tmp_path, cluster, {"token": "t0"})) as client:
        await read(client)
        assert client.host == api.url
    assert api.requests[-1].authorization == "Bearer t0"


async def test_authority_as_a_file_beside_the_kubeconfig_and_a_password(
    api: KubeApi, authority: Authority, tmp_path: Path
) -> None:
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    cluster = {"server": api.url, "certificate-authority": "ca.crt"}
    async with opened(kubeconfig(tmp_path, cluster, {"username": "u", "password": "p"})) as client:
        await read(client)
    assert api.requests[-1].authorization == f"Basic {base64.b64encode(b'u:p').decode()}"


async def test_server_without_a_trusted_certificate_is_accepted_if_the_kubeconfig_says_so(
    api: KubeApi, tmp_path: Path
) -> None:
    cluster = {"server": api.url, "insecure-skip-tls-verify": True}
    async with opened(kubeconfig(tmp_path, cluster, {"token": "t"})) as client:
        await read(client)


async def test_name_that_the_certificate_is_for_may_be_said(authority: Authority, tmp_path: Path) -> None:
    pair = authority.issue("server", dns="kubernetes.example")
    cluster = {"certificate-authority-data": data(authority.pem), "tls-server-name": "kubernetes.example"}
    async with kube_api(server_tls(tmp_path, pair)) as running:
        await running.put("nodes", "n1")
        async with opened(kubeconfig(tmp_path, {**cluster, "server": running.url}, {})) as client:
            await read(client)


async def test_master_beats_the_files_server(api: KubeApi, authority: Authority, tmp_path: Path) -> None:
    cluster = {"server": "https://127.0.0.1:9", "certificate-authority-data": data(authority.pem)}
    async with opened(kubeconfig(tmp_path, cluster, {"token": "t"}), master=api.url) as client:
        await read(client)


@pytest.mark.parametrize("as_files", [False, True], ids=["data", "files"])
async def test_client_certificate(authority: Authority, tmp_path: Path, as_files: bool) -> None:
    pair = authority.issue("somebody")
    user: dict[str, str]
    if as_files:
        (tmp_path / "c.crt").write_bytes(pair.certificate)
        (tmp_path / "c.key").write_bytes(pair.key)
        user = {"client-certificate": "c.crt", "client-key": "c.key"}
    else:
        user = {"client-certificate-data": data(pair.certificate), "client-key-data": data(pair.key)}
    tls = server_tls(tmp_path, authority.issue("server"), client_authority=authority)
    async with kube_api(tls) as running:
        await running.put("nodes", "n1")
        cluster = {"server": running.url, "certificate-authority-data": data(authority.pem)}
        async with opened(kubeconfig(tmp_path, cluster, user)) as client:
            await read(client)


async def test_token_file_is_read_again_when_it_is_time_and_when_the_token_is_refused(
    api: KubeApi, authority: Authority, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    cluster = {"server": api.url, "certificate-authority-data": data(authority.pem)}
    async with opened(kubeconfig(tmp_path, cluster, {"tokenFile": "token", "token": "stale"})) as client:
        await read(client)
        token.write_text("second\n")
        await read(client)
        assert [request.authorization for request in api.requests] == ["Bearer first"] * 2
        client.credentials.due_s = 0.0
        await read(client)
        assert api.requests[-1].authorization == "Bearer second"
        token.write_text("third")
        api.answers.append(Answer("GET", "/n1", 401, {"kind": "Status", "message": "Unauthorized"}))
        await read(client)
        assert [request.authorization for request in api.requests[-2:]] == ["Bearer second", "Bearer third"]


async def test_token_that_stays_refused_is_an_error_in_the_servers_words(
    api: KubeApi, authority: Authority, tmp_path: Path
) -> None:
    cluster = {"server": api.url, "certificate-authority-data": data(authority.pem)}
    async with opened(kubeconfig(tmp_path, cluster, {"token": "expired"})) as client:
        api.answers.append(Answer("GET", "/n1", 401, {"kind": "Status", "message": "Unauthorized"}))
        with pytest.raises(UnauthorizedError, match="Unauthorized"):
            await client.request("GET", "/api/v1/nodes/n1")
    assert len(api.requests) == 1


# --- exec plugins ----------------------------------------------------------------------------------


def plugin(folder: Path, status: dict[str, Any] | None, exit_code: int = 0) -> dict[str, Any]:
    """A plugin that answers `status` with the count of its runs in place of N."""
    script = folder / "plugin.py"
    answer = json.dumps({"apiVersion": EXEC_VERSION, "kind": "ExecCredential", "status": status})
    script.write_text(
        f"#!{sys.executable}\n"
        "import pathlib, sys\n"
        f"runs = pathlib.Path({str(folder / 'runs')!r})\n"
        "count = len(runs.read_text()) + 1 if runs.exists() else 1\n"
        "runs.write_text('x' * count)\n"
        f"print({answer!r}.replace('tokenN', f'token{{count}}'))\n"
        f"print('no login', file=sys.stderr)\n"
        f"sys.exit({exit_code})\n"
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return {"exec": {"apiVersion": EXEC_VERSION, "command": "./plugin.py", "interactiveMode": "Never"}}


@pytest.mark.slow
async def test_exec_plugin_runs_once_and_again_when_its_token_is_refused_or_old(
    api: KubeApi, authority: Authority, tmp_path: Path
) -> None:
    cluster = {"server": api.url, "certificate-authority-data": data(authority.pem)}
    user = plugin(tmp_path, {"token": "tokenN", "expirationTimestamp": "2100-01-01T00:00:00Z"})
    async with opened(kubeconfig(tmp_path, cluster, user)) as client:
        await read(client)
        await read(client)
        assert api.requests[-1].authorization == "Bearer token1"
        api.answers.append(Answer("GET", "/n1", 401, {"kind": "Status", "message": "Unauthorized"}))
        await read(client)
        assert api.requests[-1].authorization == "Bearer token2"
        client.credentials.due_s = 0.0
        await read(client)
        assert api.requests[-1].authorization == "Bearer token3"


@pytest.mark.slow
@pytest.mark.parametrize("as_file", [False, True], ids=["data", "file"])
async def test_exec_plugin_is_told_of_the_cluster_if_it_asks(
    api: KubeApi, authority: Authority, tmp_path: Path, as_file: bool
) -> None:
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    trusted = {"certificate-authority": "ca.crt"}
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}
    cluster = {
        "server": f"{api.url}/",
        "tls-server-name": "127.0.0.1",
        **(trusted if as_file else {"certificate-authority-data": data(authority.pem)}),
        "extensions": [{"name": "other", "extension": 1}, extension],
    }
    user = plugin(tmp_path, {"token": "tokenN"})
    script = tmp_path / "plugin.py"
    noting = f"import os; open({str(tmp_path / 'info')!r}, 'w').write(os.environ['KUBERNETES_EXEC_INFO'])"
    script.write_text(script.read_text().replace("print(", f"{noting}\nprint(", 1))
    for asks, expected in (
        (
            True,
            {
                "server": f"{api.url}/",
                "tls-server-name": "127.0.0.1",
                "certificate-authority-data": data(authority.pem),
                "config": {"audience": "a"},
            },
        ),
        (False, None),
    ):
        user["exec"]["provideClusterInfo"] = asks
        async with opened(kubeconfig(tmp_path, cluster, user)) as client:
            await read(client)
        info = json.loads((tmp_path / "info").read_text())
        assert info["spec"].get("cluster") == expected


@pytest.mark.slow
@pytest.mark.parametrize("gone", ["authority", "temporary folder"])
async def test_file_that_is_gone_when_a_certificate_is_renewed_ends_no_working_connection(
    authority: Authority, tmp_path: Path, gone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def given(name: str) -> dict[str, Any]:
        pair = authority.issue(name)
        return {"clientCertificateData": pair.certificate.decode(), "clientKeyData": pair.key.decode()}

    tls = server_tls(tmp_path, authority.issue("server"), client_authority=authority)
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    async with kube_api(tls) as running:
        await running.put("nodes", "n1")
        cluster = {"server": running.url, "certificate-authority": "ca.crt"}
        async with opened(kubeconfig(tmp_path, cluster, plugin(tmp_path, given("first")))) as client:
            await read(client)
            plugin(tmp_path, given("second"))
            if gone == "authority":
                (tmp_path / "ca.crt").unlink()
            else:
                monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
            client.credentials.due_s = 0.0
            await read(client)
            assert client.credentials.due_s > 0.0
            # Refused, it is tried once more; then the server's answer counts.
            running.answers.append(Answer("GET", "/n1", 401, {"kind": "Status", "message": "Unauthorized"}))
            with pytest.raises(UnauthorizedError):
                await read(client)


async def test_exec_plugin_may_give_a_certificate(authority: Authority, tmp_path: Path) -> None:
    pair = authority.issue("somebody")
    given = {"clientCertificateData": pair.certificate.decode(), "clientKeyData": pair.key.decode()}
    tls = server_tls(tmp_path, authority.issue("server"), client_authority=authority)
    async with kube_api(tls) as running:
        await running.put("nodes", "n1")
        cluster = {"server": running.url, "certificate-authority-data": data(authority.pem)}
        async with opened(kubeconfig(tmp_path, cluster, plugin(tmp_path, given))) as client:
            await read(client)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "exit_code", "problem"),
    [
        pytest.param({"token": "x"}, 3, "no login", id="fails"),
        pytest.param({}, 0, "neither token nor client certificate", id="says nothing"),
        pytest.param(
            {"clientCertificateData": "x", "clientKeyData": "y"}, 0, "cannot be used", id="no certificate"
        ),
    ],
)
async def test_exec_plugin_that_gives_nothing_is_named(
    tmp_path: Path, status: dict[str, Any], exit_code: int, problem: str
) -> None:
    path = kubeconfig(tmp_path, {"server": "https://127.0.0.1:9"}, plugin(tmp_path, status, exit_code))
    with pytest.raises(ClientConfigError, match=problem):
        await KubeClient.open(Connection(kubeconfig=path))


@pytest.mark.slow
@pytest.mark.parametrize("status", [None, "x", ["token"]])
async def test_exec_plugin_with_a_malformed_status_is_named(tmp_path: Path, status: Any) -> None:
    path = kubeconfig(tmp_path, {"server": "https://127.0.0.1:9"}, plugin(tmp_path, status))
    with pytest.raises(ClientConfigError, match="its answer has no status"):
        await KubeClient.open(Connection(kubeconfig=path))


@pytest.mark.slow
@pytest.mark.parametrize("expires", ["2100-01-01T00:00:00", "soon", "", 4102444800])
async def test_exec_plugin_whose_expiry_is_no_time_is_named(tmp_path: Path, expires: Any) -> None:
    given = {"token": "tokenN", "expirationTimestamp": expires}
    path = kubeconfig(tmp_path, {"server": "https://127.0.0.1:9"}, plugin(tmp_path, given))
    with pytest.raises(ClientConfigError, match=r"gave no credentials: expirationTimestamp: .* not a time"):
        await KubeClient.open(Connection(kubeconfig=path))


@pytest.mark.slow
@pytest.mark.parametrize("answer", ["'{'", "'[' * 5000 + ']' * 5000"])
async def test_exec_plugin_whose_answer_cannot_be_read_is_named(tmp_path: Path, answer: str) -> None:
    user = plugin(tmp_path, None)
    (tmp_path / "plugin.py").write_text(f"#!{sys.executable}\nprint({answer})\n")
    path = kubeconfig(tmp_path, {"server": "https://127.0.0.1:9"}, user)
    with pytest.raises(ClientConfigError, match="its answer is not JSON"):
        await KubeClient.open(Connection(kubeconfig=path))


@pytest.mark.slow
async def test_exec_plugin_that_hangs_is_ended_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exec_plugin, "ANSWERS_WITHIN_S", 2.0)  # the plugin has to start
    started = tmp_path / "started"
    script = tmp_path / "plugin.sh"
    # What it starts holds its output open as well.
    script.write_text(f"#!/bin/sh\nsleep 600 &\necho $! >{started}\nwait\n")
    script.chmod(0o755)
    user = {"exec": {"apiVersion": EXEC_VERSION, "command": "./plugin.sh", "interactiveMode": "Never"}}
    path = kubeconfig(tmp_path, {"server": "https://127.0.0.1:9"}, user)
    with pytest.raises(ClientConfigError, match=r"plugin\.sh' gave no credentials: no answer within 2 s"):
        async with asyncio.timeout(PATIENCE_S):
            await KubeClient.open(Connection(kubeconfig=path))
    child = Path("/proc") / started.read_text().strip() / "stat"
    async with asyncio.timeout(PATIENCE_S):
        while child.exists() and child.read_text().rpartition(")")[2].split()[0] != "Z":
            await asyncio.sleep(0.01)


async def test_exec_plugin_may_write_much_to_stderr_and_finds_no_terminal(
    api: KubeApi, authority: Authority, tmp_path: Path
) -> None:
    cluster = {"server": api.url, "certificate-authority-data": data(authority.pem)}
    user = plugin(tmp_path, {"token": "tokenN"})
    script = tmp_path / "plugin.py"
    script.write_text(script.read_text().replace("'no login'", "'x' * 2_000_000 + sys.stdin.read()"))
    async with asyncio.timeout(PATIENCE_S), opened(kubeconfig(tmp_path, cluster, user)) as client:
        await read(client)


async def test_exec_plugin_that_fails_is_quoted_on_one_line(tmp_path: Path) -> None:
    user = plugin(tmp_path, {}, exit_code=3)
    script = tmp_path / "plugin.py"
    script.write_text(script.read_text().replace("'no login'", "'no login\\nat all'"))
    path = kubeconfig(tmp_path, {"server": "https://127.0.0.1:9"}, user)
    with pytest.raises(ClientConfigError, match="gave no credentials: it ended with 3: no login at all;"):
        await KubeClient.open(Connection(kubeconfig=path))


async def test_a_token_that_no_header_can_hold_is_named(tmp_path: Path) -> None:
    file = tmp_path / "token-file"
    file.write_text("good\nX-Other: bad")
    for user, where in (
        ({"token": "x\n"}, "kc"),
        ({"tokenFile": str(file)}, "token-file"),
        (plugin(tmp_path, {"token": "x\r\nX-Other: bad"}), "plugin.py"),
    ):
        path = kubeconfig(tmp_path, {"server": "https://127.0.0.1:9"}, user)
        with pytest.raises(ClientConfigError, match=f"{where}.* line end") as refused:
            await KubeClient.open(Connection(kubeconfig=path))
        assert "bad" not in str(refused.value)


async def test_exec_plugin_that_fails_later_leaves_the_old_credentials_in_use(
    api: KubeApi, authority: Authority, tmp_path: Path
) -> None:
    cluster = {"server": api.url, "certificate-authority-data": data(authority.pem)}
    async with opened(kubeconfig(tmp_path, cluster, plugin(tmp_path, {"token": "tokenN"}))) as client:
        plugin(tmp_path, None, exit_code=1)
        client.credentials.due_s = 0.0
        await read(client)
    assert api.requests[-1].authorization == "Bearer token1"


@pytest.mark.parametrize(
    ("user", "want"),
    [({"token": "t"}, "Bearer t"), ({}, "Basic " + base64.b64encode(b"me:p@ss").decode())],
    ids=["token wins", "alone"],
)
async def test_user_in_the_url_of_the_server_counts_where_there_is_no_token(
    api: KubeApi, authority: Authority, tmp_path: Path, user: dict[str, str], want: str
) -> None:
    server = api.url.replace("https://", "https://me:p%40ss@")
    cluster = {"server": server, "certificate-authority-data": data(authority.pem)}
    async with opened(kubeconfig(tmp_path, cluster, user)) as client:
        await read(client)
        assert client.credentials.host == api.url
    assert api.requests[-1].authorization == want


async def test_token_of_an_auth_provider_is_sent(api: KubeApi, authority: Authority, tmp_path: Path) -> None:
    token = ".".join(base64.b64encode(part).decode().rstrip("=") for part in (b"{}", b"{}", b"x"))  # a JWT
    cluster = {"server": api.url, "certificate-authority-data": data(authority.pem)}
    user = {"auth-provider": {"name": "oidc", "config": {"id-token": token}}}
    async with opened(kubeconfig(tmp_path, cluster, user)) as client:
        await read(client)
    assert api.requests[-1].authorization == f"Bearer {token}"


async def test_auth_provider_without_a_token_is_named_with_its_file(tmp_path: Path) -> None:
    user = {"auth-provider": {"name": "oidc", "config": {}}}
    with pytest.raises(ClientConfigError, match=r"kubeconfig '.*': oidc: No valid id-token.*; see it with"):
        await KubeClient.open(Connection(kubeconfig=kubeconfig(tmp_path, {"server": "https://h:1"}, user)))


# --- in a pod --------------------------------------------------------------------------------------


@pytest.fixture
def service_account(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, authority: Authority, api: KubeApi
) -> Path:
    token = tmp_path / "token"
    token.write_text("sa-token\n")
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    host, port = api.url.removeprefix("https://").split(":")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    monkeypatch.setattr(server, "TOKEN_FILE", token)
    monkeypatch.setattr(server, "AUTHORITIES_FILE", tmp_path / "ca.crt")
    return token


async def test_service_account_of_a_pod(api: KubeApi, service_account: Path) -> None:
    async with opened("") as client:
        await read(client)
        service_account.write_text("newer")
        client.credentials.due_s = 0.0
        await read(client)
    assert [request.authorization for request in api.requests] == ["Bearer sa-token", "Bearer newer"]


async def test_no_configuration_at_all_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(
        ClientConfigError, match=r"found no cluster: --kubeconfig, .* (set one of them|uses kubectl's)"
    ):
        await KubeClient.open(Connection())


# --- acting as another user -------------------------------------------------------------------------


async def test_the_impersonated_user_is_sent_in_headers(
    api: KubeApi, authority: Authority, tmp_path: Path
) -> None:
    cluster = {"server": api.url, "certificate-authority-data": data(authority.pem)}
    user = {
        "token": "t",
        "as": "system:kube-scheduler",
        "as-uid": "u-1",
        "as-groups": ["a", "b"],
        "as-user-extra": {"example.com/why": ["x", "y"], "100%": ["z"]},
    }
    async with opened(kubeconfig(tmp_path, cluster, user)) as client:
        await read(client)
        async with client.stream("/api/v1/nodes/n1", query={}, idle_s=5):
            pass
    for seen in api.requests[-2:]:
        assert [(name, value) for name, value in seen.headers if name.startswith("Impersonate-")] == [
            ("Impersonate-User", "system:kube-scheduler"),
            ("Impersonate-Uid", "u-1"),
            ("Impersonate-Group", "a"),
            ("Impersonate-Group", "b"),
            ("Impersonate-Extra-example.com%2Fwhy", "x"),
            ("Impersonate-Extra-example.com%2Fwhy", "y"),
            ("Impersonate-Extra-100%25", "z"),
        ]
        assert seen.authorization == "Bearer t"


@pytest.mark.parametrize(
    ("user", "problem"),
    [
        ({"as-groups": ["system:masters"]}, "as-uid, as-groups and as-user-extra need a user"),
        ({"as": 5}, "as is 5, not text; put it in quotes"),
        ({"as": "x", "as-groups": "g"}, "as-groups is not a list"),
        ({"as": "x", "as-user-extra": ["g"]}, "as-user-extra is not a mapping"),
        ({"as": "x", "as-user-extra": {"k": [1]}}, "as-user-extra.k is 1, not text"),
        ({"as": "x\r\nX-Other: y"}, "as has a line end in it"),
    ],
)
async def test_user_entry_that_cannot_be_impersonated_is_refused(
    tmp_path: Path, user: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ClientConfigError, match=re.escape(f"users[].user: {problem}")):
        await KubeClient.open(Connection(kubeconfig=kubeconfig(tmp_path, {"server": "https://h:1"}, user)))


# --- bad ones --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "problem"),
    [
        pytest.param("a: [", "is not YAML", id="no YAML"),
        pytest.param("just text", "is not a kubeconfig", id="no mapping"),
        pytest.param("kind: Pod", "is not a kubeconfig", id="another kind"),
        pytest.param("clusters: {}\ncontexts: 3", "contexts is not a list", id="no list"),
        pytest.param("contexts: []", "current-context is not set", id="no context"),
        pytest.param("current-context: a\ncontexts: []", "there is no context 'a'", id="unknown context"),
        pytest.param(
            "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]",
            "there is no cluster 'c'",
            id="unknown cluster",
        ),
        pytest.param(
            "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\n"
            "clusters: [{name: c, cluster: {server: 'https://h:1'}}]",
            "there is no user 'u'",
            id="unknown user",
        ),
        pytest.param(
            "current-context: a\ncontexts: [{name: a, context: {cluster: c}}]\nclusters: [{name: c}]",
            "has no server",
            id="no server",
        ),
        pytest.param("contexts: [{name: [a]}]", "the name ['a'] in contexts is not text", id="list as name"),
        pytest.param("current-context: [a]", "current-context ['a'] is not text", id="list as context"),
        pytest.param("a: " + "[" * 5000, "nested deeper than 100 levels", id="deep"),
    ],
)
async def test_wrong_kubeconfig_is_one_line_with_path_and_cure(
    tmp_path: Path, content: str, problem: str
) -> None:
    path = tmp_path / "kc"
    path.write_text(content)
    with pytest.raises(ClientConfigError) as caught:
        await KubeClient.open(Connection(kubeconfig=str(path)))
    text = str(caught.value)
    assert problem in text
    assert str(path) in text
    assert "; " in text
    assert "\n" not in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cluster", "user", "problem"),
    [
        ({"server": "127.0.0.1:6443"}, {}, "is not a URL; write it as https://HOST:PORT"),
        ({"server": "https://h:1", "certificate-authority-data": "%"}, {}, "certificate-authority"),
        ({"server": "https://h:1", "certificate-authority-data": data(b"x")}, {}, "certificate-authority"),
        ({"server": "https://h:1", "certificate-authority": "missing.crt"}, {}, "missing.crt"),
        ({"server": "https://h:1"}, {"client-certificate": "missing.crt"}, "set both or neither"),
        ({"server": "https://h:1"}, {"client-certificate": "a", "client-key": "b"}, "cannot be read"),
        ({"server": "https://h:1"}, {"tokenFile": "missing"}, "cannot be read"),
        ({"server": "https://h:1"}, {"exec": {"apiVersion": EXEC_VERSION}}, "has no command"),
        ({"server": "https://h:1"}, {"exec": {"command": "x"}}, "apiVersion None is not known"),
        ({"server": "https://h:1"}, {"exec": {"command": "x-y-z", "apiVersion": EXEC_VERSION}}, "'x-y-z'"),
        ({"server": 5}, {}, "cluster 'c': server 5 is not text; put it in quotes"),
        ({"server": "https://h:1"}, {"token": 5}, "user 'u': token is not text; put it in quotes"),
        (
            {"server": "https://h:1", "insecure-skip-tls-verify": "false"},
            {},
            "insecure-skip-tls-verify is 'false'; write true or false, without quotes",
        ),
        (
            {"server": "https://h:1"},
            {"exec": {"command": "x", "apiVersion": EXEC_VERSION, "env": [{"name": "A"}]}},
            "users[].user.exec: env is not a list of variables",
        ),
        ({"server": "https://h:1", "proxy-url": "foo bar"}, {}, "proxy-url 'foo bar' is not a URL"),
        (
            {"server": "https://h:1", "proxy-url": "http://p:99999"},
            {},
            "proxy-url 'http://p:99999' is not a URL",
        ),
        (
            {"server": "https://h:1", "proxy-url": "socks5://p:1"},
            {},
            "proxy-url 'socks5://p:1' has the scheme",
        ),
        ({"server": "https://h:1", "tls-server-name": ".a"}, {}, "tls-server-name '.a' is not a host name"),
        ({"server": "https://.a:1"}, {}, "server 'https://.a:1' is not a URL"),
    ],
)
async def test_wrong_entry_is_named(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ClientConfigError) as caught:
        await KubeClient.open(Connection(kubeconfig=kubeconfig(tmp_path, cluster, user)))
    assert problem in str(caught.value)


async def test_missing_kubeconfig_says_so(tmp_path: Path) -> None:
    with pytest.raises(ClientConfigError, match="no such file; give the path of an existing one"):
        await KubeClient.open(Connection(kubeconfig=str(tmp_path / "none")))


async def test_wrong_authority_is_one_line_with_the_cure(api: KubeApi, tmp_path: Path) -> None:
    cluster = {"server": api.url, "certificate-authority-data": data(Authority("other").pem)}
    async with opened(kubeconfig(tmp_path, cluster, {})) as client:
        with pytest.raises(UnavailableError) as caught:
            await client.request("GET", "/version")
    text = str(caught.value)
    assert f"the certificate of {api.url} is not trusted" in text
    assert text.endswith("set certificate-authority in the kubeconfig to the cluster's CA")
    assert "\n" not in text


async def test_a_certificate_for_another_name_is_an_error_with_the_cure(
    api: KubeApi, authority: Authority, tmp_path: Path
) -> None:
    cluster = {"server": api.url, "certificate-authority-data": data(authority.pem)}
    for changed, cure in (
        ({"tls-server-name": "other.example"}, "set tls-server-name in the kubeconfig"),
        ({"server": api.url.replace("127.0.0.1", "localhost")}, "set server in the kubeconfig"),
    ):
        async with opened(kubeconfig(tmp_path, {**cluster, **changed}, {})) as client:
            with pytest.raises(UnavailableError, match="ismatch") as caught:
                await client.request("GET", "/version")
        assert cure in str(caught.value)
        assert "certificate-authority" not in str(caught.value)


async def test_an_encrypted_client_key_is_refused_and_its_password_not_asked_for(
    authority: Authority, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pair = authority.issue("somebody")
    key = serialization.load_pem_private_key(pair.key, password=None)
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    user = {"client-certificate-data": data(pair.certificate), "client-key-data": data(secret)}
    with pytest.raises(ClientConfigError, match="a key that is not encrypted"):
        await KubeClient.open(Connection(kubeconfig=kubeconfig(tmp_path, {"server": "https://h:1"}, user)))
    assert "pass phrase" not in "".join(capfd.readouterr())


async def test_a_proxy_that_does_not_answer_is_named(api: KubeApi, tmp_path: Path) -> None:
    port = free_port()
    for proxy in (f"http://u:secret@127.0.0.1:{port}", f"http://proxy.invalid:{port}"):
        cluster = {"server": api.url, "proxy-url": proxy}
        async with opened(kubeconfig(tmp_path, cluster, {})) as client:
            with pytest.raises(
                UnavailableError, match=rf"through the proxy .*:{port}: .*proxy-url"
            ) as caught:
                await client.request("GET", "/version")
        assert "secret" not in str(caught.value)


async def test_http_where_https_is_meant_is_one_line(tmp_path: Path) -> None:
    async with kube_api() as plain:
        cluster = {"server": plain.url.replace("http:", "https:"), "insecure-skip-tls-verify": True}
        async with opened(kubeconfig(tmp_path, cluster, {})) as client:
            with pytest.raises(UnavailableError, match="is it an https address"):
                await client.request("GET", "/version")


def test_proxy_of_the_environment_is_found_unless_the_host_is_excepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("no_proxy", "10.0.0.1")
    assert credentials_module.proxy_of_environment("https://h.example:6443") == "http://proxy.example:3128"
    assert credentials_module.proxy_of_environment("https://10.0.0.1:6443") is None
    monkeypatch.setenv("https_proxy", "proxy.example:3128")
    assert credentials_module.proxy_of_environment("https://h.example:6443") == "http://proxy.example:3128"
    monkeypatch.setenv("no_proxy", "10.96.0.0/12")
    assert credentials_module.proxy_of_environment("https://10.96.0.1:443") is None
    assert credentials_module.proxy_of_environment("https://127.0.0.1:6443") is None
    monkeypatch.setenv("https_proxy", "foo bar")
    with pytest.raises(ClientConfigError, match="HTTPS_PROXY 'foo bar' is not a URL"):
        credentials_module.proxy_of_environment("https://h.example:6443")


@pytest.mark.parametrize("proxy", ["socks5://user:word7@p.example:1080", "http://user:wo rd7@p.example:3128"])
async def test_password_of_a_wrong_proxy_is_not_in_the_message(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, proxy: str
) -> None:
    monkeypatch.setenv("https_proxy", proxy)
    with pytest.raises(ClientConfigError, match=r"HTTPS_PROXY 'p.example:\d+' ") as of_environment:
        credentials_module.proxy_of_environment("https://h.example:6443")
    monkeypatch.delenv("https_proxy")
    path = kubeconfig(tmp_path, {"server": "https://h.example:1", "proxy-url": proxy}, {})
    with pytest.raises(ClientConfigError, match=r"proxy-url 'p.example:\d+' ") as of_kubeconfig:
        await KubeClient.open(Connection(kubeconfig=path))
    assert "rd7" not in f"{of_environment.value} {of_kubeconfig.value}"


@pytest.mark.parametrize(
    ("cluster", "accepted"),
    [
        pytest.param({}, "gzip", id="by default"),
        pytest.param({"disable-compression": False}, "gzip", id="not disabled"),
        pytest.param({"disable-compression": True}, None, id="disabled"),
    ],
)
async def test_kubeconfig_may_disable_compression(
    cluster: dict[str, Any], accepted: str | None, tmp_path: Path
) -> None:
    async with kube_api() as api, opened(kubeconfig(tmp_path, {"server": api.url} | cluster, {})) as client:
        await api.put("nodes", "n1")
        await client.request("GET", "/api/v1/nodes/n1")
        (headers,) = [dict(one.headers) for one in api.requests if one.path.endswith("/n1")][-1:]
    assert headers.get("Accept-Encoding") == accepted
