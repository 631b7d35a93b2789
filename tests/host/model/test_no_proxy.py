"""Which servers are reached without the proxy of the environment: as with Go's client."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from berth_host.model.no_proxy import goes_direct


@pytest.fixture(autouse=True)
def no_exceptions(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("listed", "url"),
    [
        ("10.96.0.0/12", "https://10.96.0.1"),
        ("fd00::/8", "https://[fd00::1]:6443"),
        ("10.0.0.1", "https://10.0.0.1:6443"),
        ("10.0.0.1:6443", "https://10.0.0.1:6443"),
        ("fd00::1", "https://[fd00::1]:6443"),
        ("[fd00::1]:6443", "https://[fd00::1]:6443"),
        ("Example.com", "https://api.example.com"),
        ("example.com", "https://EXAMPLE.com"),
        (".example.com", "https://api.example.com"),
        ("*.example.com", "https://api.example.com"),
        ("example.com:443", "https://api.example.com"),
        ("other.example, *", "https://api.example.com"),
        ("other.example, api.example.com", "https://api.example.com"),
    ],
)
def test_server_that_no_proxy_names_is_reached_directly(
    monkeypatch: pytest.MonkeyPatch, listed: str, url: str
) -> None:
    assert not goes_direct(urlsplit(url))
    monkeypatch.setenv("no_proxy", listed)
    assert goes_direct(urlsplit(url))
    monkeypatch.setenv("NO_PROXY", "nothing.example")
    assert not goes_direct(urlsplit(url))


@pytest.mark.parametrize(
    ("listed", "url"),
    [
        ("10.96.0.0/12", "https://10.0.0.1"),
        ("10.96.0.0/12", "https://[fd00::1]"),
        ("10.96.0.0/99", "https://10.96.0.1"),
        ("10.0.0.1:443", "https://10.0.0.1:6443"),
        ("fd00::1", "https://[fd00::2]"),
        (".example.com", "https://example.com"),
        ("example.com", "https://notexample.com"),
        ("example.com:80", "https://example.com"),
        ("com.example", "https://example.com"),
        ("", "https://example.com"),
        (" , ", "https://example.com"),
    ],
)
def test_server_that_no_proxy_does_not_name_is_reached_through_the_proxy(
    monkeypatch: pytest.MonkeyPatch, listed: str, url: str
) -> None:
    monkeypatch.setenv("NO_PROXY", listed)
    assert not goes_direct(urlsplit(url))


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1.2.3", "[::1]"])
def test_this_machine_is_reached_directly(host: str) -> None:
    assert goes_direct(urlsplit(f"https://{host}:6443"))
