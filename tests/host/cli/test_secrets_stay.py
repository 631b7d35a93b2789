"""Secrets in every place of the input show up in no output: results, errors, warnings, logs, tracebacks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from berth_host.log.hidden import MASK
from berth_host.log.secrets import masked, masked_arguments, without_secrets
from support import input_samples as samples
from support.any_command import Shot, fire
from support.manifest_objects import pod_object

SECRET: Final = re.compile(r"[sS]3cr3t\w*")
MODULE: Final = """
import sys
from berth_sdk import PluginArgsError

class Refuses:
    def filter(self, state, pod, node): pass
    def __init__(self, args, handle):
        raise PluginArgsError(f"the apiToken {args['apiToken']} is too old")

class Fails:
    def filter(self, state, pod, node): pass
    def __init__(self, args, handle):
        raise KeyError(args["apiToken"])

class Raises:
    def __init__(self, args, handle):
        self.token = args["apiToken"]
        print("token", self.token, args["hosts"][0], file=sys.stderr) if args.get("prints") else None
    def filter(self, state, pod, node):
        raise ValueError(f"no licence for {self.token}")
"""
ARGS: Final = {
    "apiToken": "s3cr3t-api-token",
    "password": "s3cr3t-password",
    "nested": [
        {"clientSecret": "s3cr3t-client", "name": "x"},
        {"name": "DB_PASSWORD", "value": "s3cr3t-variable"},
    ],
    "hosts": ["https://user:s3cr3tInUrl@example.com/x"],
    "flags": ["--token", "s3cr3t-flag", "--api-key=s3cr3t-assigned"],
    "tokens": ["s3cr3t-first", "s3cr3t-second"],
    "pin": 1,
}
COMMAND: Final = [
    *(
        "env",
        "LICENCE_TOKEN=s3cr3t-env",
        "no-such-program",
        "--token",
        "s3cr3t-argument",
        "--password=s3cr3t-word",
    ),
    *("-c", "run --api-key s3cr3t-inner; TOKEN=s3cr3t-shell x"),
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # What another test hides would hide it here as well.
    monkeypatch.setattr("berth_host.log.hidden._hidden", ())
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    Path("good.yaml").write_text(yaml.safe_dump_all(samples.MANIFESTS[2]))
    return tmp_path


def configuration(plugin: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    profile = {
        "schedulerName": "default-scheduler",
        "plugins": {"multiPoint": {"enabled": [{"name": "Mine"}]}},
        "pluginConfig": [{"name": "Mine", "args": ARGS}],
    }
    scheduler = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile],
        **more,
    }
    own = {
        "apiVersion": "config.berth.io/v1alpha1",
        "kind": "BerthConfiguration",
        "plugins": [{"name": "Mine", **plugin}],
    }
    return [scheduler, own]


EXTENDERS: Final = [
    {
        "urlPrefix": "https://admin:s3cr3tExtender@example.com/x",
        "filterVerb": "filter",
        "enableHTTPS": True,
        "tlsConfig": {"keyData": "czNjcjN0LWtleQ==", "certData": "eA=="},
    }
]


def spoilt(documents: list[dict[str, Any]]) -> Iterator[str]:
    """Texts with an error beside, or in, each secret."""
    text = yaml.safe_dump_all(documents)
    yield text
    yield json.dumps(documents[0])
    yield re.sub(r"(apiToken): (\S+)", r"\1: !!int \2", text)
    yield re.sub(r"(password): (\S+)", r"\1: *\2", text)
    yield re.sub(r"(apiToken): (\S+)", r'\1: "\2', text)
    yield text.replace("profiles:", "profile:")
    yield re.sub(r"(keyData): (\S+)", r"\1: s3cr3t not base64", text)
    yield re.sub(r"(urlPrefix): (\S+)", r"\1: 'htt p://admin:s3cr3tExtender@[/'", text)
    yield text.replace("inProcess:", "inProces:").replace("command:", "comand:")
    yield f"{text}\n  - token: s3cr3t-end\n x"
    yield text.replace("kubescheduler.config.k8s.io/v1", "kubescheduler.config.k8s.io/v1beta3")


def assert_hidden(shot: Shot) -> str:
    ended = fire(shot)
    said = f"{ended.out}{ended.err}"
    assert said.strip(), shot.words
    assert not SECRET.search(said), (shot.words, said)
    assert "czNjcjN0LWtleQ==" not in said, (shot.words, said)
    return said


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("output", ["table", "json", "yaml"])
@pytest.mark.parametrize(
    "plugin",
    [{"inProcess": "hiding:Raises"}, {"command": COMMAND}, {"endpoint": "unix:///run/x.sock"}],
    ids=["inProcess", "command", "endpoint"],
)
def test_configuration_shows_no_secret_in_result_or_error(plugin: dict[str, Any], output: str) -> None:
    Path("hiding.py").write_text(MODULE)
    for extended in ({}, {"extenders": EXTENDERS}):
        for text in spoilt(configuration(plugin, **extended)):
            shot = Shot("berth", ("check-config", "c.yaml", "-o", output), {"c.yaml": text.encode()})
            assert_hidden(shot)
            assert_hidden(Shot("berth", ("migrate", "c.yaml"), shot.files))
            if "inProcess" in plugin:
                words = ("simulate", "good.yaml", "--config", "c.yaml", "--no-strict")
                assert_hidden(Shot("berth", words, shot.files))


def test_result_of_check_config_marks_hidden_values() -> None:
    Path("c.yaml").write_text(yaml.safe_dump_all(configuration({"command": COMMAND})))
    said = assert_hidden(Shot("berth", ("check-config", "c.yaml")))
    assert f"no-such-program --token {MASK} --password={MASK}" in " ".join(said.split())


@pytest.mark.parametrize("name", ["Refuses", "Fails", "Raises"])
@pytest.mark.parametrize("command", ["simulate", "why"])
def test_error_of_a_plugin_is_shown_without_its_secret(name: str, command: str) -> None:
    """In the error, in the report, in the log of `-v` and in its traceback."""
    Path("saying.py").write_text(MODULE)
    documents = configuration({"inProcess": f"saying:{name}"})
    Path("c.yaml").write_text(yaml.safe_dump_all(documents))
    words = ("simulate",) if command == "simulate" else ("why", "everything")
    said = assert_hidden(Shot("berth", (*words, "good.yaml", "--config", "c.yaml", "--no-strict", "-v")))
    assert MASK in said


KUBECONFIG_SECRETS: Final = {
    "token": "s3cr3t-token",
    "username": "admin",
    "password": "s3cr3t-password",
    "client-key-data": "czNjcjN0LWtleQ==",
}


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize(
    "change",
    [
        ("token: s3cr3t-token", "token: !!int s3cr3t-token"),
        ("token: s3cr3t-token", "token: *s3cr3t-token"),
        ("token: s3cr3t-token", 'token: "s3cr3t-token'),
        ("token: s3cr3t-token", "token: [s3cr3t-token]"),
        ("password: s3cr3t-password", "password: {s3cr3t-password: 1}"),
        ("client-key-data: czNjcjN0LWtleQ==", "client-key-data: s3cr3t no base64"),
        ("client-key-data: czNjcjN0LWtleQ==", "client-key-data: czNjcjN0LWtleQ=="),
        ("server: https://127.0.0.1:1", "server: https://admin:s3cr3tServer@127.0.0.1:1"),
        ("server: https://127.0.0.1:1", "server: htt ps://admin:s3cr3tServer@["),
        ("server: https://127.0.0.1:1", "server: https://127.0.0.1:1\n    proxy-url: ftp://a:s3cr3tProxy@x"),
        (
            "server: https://127.0.0.1:1",
            "server: https://127.0.0.1:1\n    proxy-url: 'http://a:s3cr3tProxy@ x'",
        ),
        ("user: u", "user: plugin"),
    ],
)
@pytest.mark.parametrize("program", ["kubectl-berth", "berth"])
def test_kubeconfig_shows_no_secret_in_an_error(change: tuple[str, str], program: str) -> None:
    script = Path("credentials.sh")
    script.write_text('#!/bin/sh\necho "refused: $API_TOKEN $*" >&2\nexit 1\n')
    script.chmod(0o755)
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": f"{Path.cwd()}/credentials.sh",
        "args": ["--token", "s3cr3t-argument", "--password=s3cr3t-assigned"],
        "env": [{"name": "API_TOKEN", "value": "s3cr3t-variable"}],
        "interactiveMode": "Never",
    }
    users = [{"name": "u", "user": KUBECONFIG_SECRETS}, {"name": "plugin", "user": {"exec": plugin}}]
    text = yaml.safe_dump(samples.KUBECONFIG | {"users": users})
    assert change[0] in text
    Path("kubeconfig").write_text(text.replace(*change))
    words: tuple[str, ...] = ("why", "p", "--kubeconfig", "kubeconfig")
    if program == "berth":
        words = ("plugins", "--server", "https://127.0.0.1:1", "--kubeconfig", "kubeconfig")
    assert_hidden(Shot(program, words))


def test_manifest_shows_no_secret_in_an_error() -> None:
    pod = pod_object("web")
    for variable in (
        {"name": "API_TOKEN", "value": ["s3cr3t-list"]},
        {"name": "API_TOKEN", "value": {"s3cr3t": 1}},
        {"name": "API_TOKEN", "value": "s3cr3t-value", "valueFrom": "s3cr3t-value"},
    ):
        pod["spec"]["containers"][0]["env"] = [variable]
        Path("m.yaml").write_text(yaml.safe_dump(pod))
        ended = fire(Shot("berth", ("simulate", "m.yaml")))
        assert not SECRET.search(ended.out + ended.err), ended
    Path("m.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {token: !!int s3cr3t-tagged}"
    )
    assert_hidden(Shot("berth", ("simulate", "m.yaml")))


def test_options_with_secrets_are_not_quoted() -> None:
    for words in (
        ("plugins", "--server", "https://admin:s3cr3tUser@127.0.0.1:1"),
        ("plugins", "--server", "http://admin:s3cr3tUser@127.0.0.1:1"),
        ("plugins", "--server", "https://127.0.0.1:1", "--token", "s3cr3t\nline"),
        ("why", "p", "--server", "https://127.0.0.1:1", "--token", "s3cr3t", "--token-file", "x"),
    ):
        assert_hidden(Shot("kubectl-berth", words))


def test_values_are_masked_by_the_name_of_field_flag_and_variable() -> None:
    assert masked(
        {"keyData": "x", "tokens": ["a", ""], "pin": 1, "apiKey": 5, "tokenFile": "/x", "token": True}
    ) == {"keyData": MASK, "tokens": [MASK, ""], "pin": 1, "apiKey": MASK, "tokenFile": "/x", "token": True}
    assert masked_arguments(["serve", "--token", "x", "--token-file", "y", "--password=z", "-v"]) == [
        *("serve", "--token", MASK, "--token-file", "y", f"--password={MASK}", "-v")
    ]
    assert without_secrets("a is b of ab", "token: a") == f"{MASK} is b of ab"
