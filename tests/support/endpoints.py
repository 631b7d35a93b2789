"""Texts that are endpoints of a plugin, and texts that are none. SDK, host and chart judge them alike."""

from __future__ import annotations

import pytest

GOOD_ENDPOINTS = [
    pytest.param("unix:///run/berth/plugins/a.sock", id="socket"),
    pytest.param("127.0.0.1:7001", id="address"),
    pytest.param("[::1]:65535", id="IPv6"),
    pytest.param("gpu.example:1", id="name"),
]
BAD_ENDPOINTS = [
    pytest.param("unix:/run/a.sock", id="one slash"),
    pytest.param("unix:a.sock", id="relative socket"),
    pytest.param("unix://run/a.sock", id="two slashes"),
    pytest.param("unix:", id="no path"),
    pytest.param("unix:///run/", id="a folder"),
    pytest.param(f"unix:///{'x' * 107}", id="long path"),
    pytest.param("/run/a.sock", id="a path alone"),
    pytest.param("7001", id="a port alone"),
    pytest.param(":7001", id="no host"),
    pytest.param("localhost", id="no port"),
    pytest.param("localhost:http", id="a port by name"),
    pytest.param("localhost:65536", id="port too high"),
    pytest.param("::1:80", id="IPv6 without brackets"),
    pytest.param("http://localhost:80", id="a URL"),
    pytest.param("dns:///localhost:80", id="another scheme"),
]
