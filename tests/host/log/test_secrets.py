"""Secrets of a configuration are not shown."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from berth_host.cli.main import berth
from berth_host.config.errors import ConfigurationError
from berth_host.config.loading import load_berth_configuration
from berth_host.log.hidden import MASK, hide, without_hidden
from berth_host.log.secrets import masked_object, secrets_of, without_secrets
from click.testing import CliRunner

CONFIGURATION = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins: {multiPoint: {enabled: [{name: Mine}]}}
  pluginConfig: [{name: Mine, args: {apiToken: hunter2, tokenFile: /path}}]
"""


def test_texts_under_the_name_of_a_secret_are_masked_at_any_depth() -> None:
    shown = masked_object({"a": [{"tlsConfig": {"keyData": "c2VjcmV0", "certData": "x"}, "token": ""}]})
    assert shown == {"a": [{"tlsConfig": {"keyData": MASK, "certData": "x"}, "token": ""}]}


PRIVATE_KEY = "-----BEGIN EC PRIVATE KEY-----\nhunter2\nhunter2==\n-----END EC PRIVATE KEY-----"
WEB_TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJodW50ZXIyIn0.aHVudGVyMmh1bnRlcjI"


@pytest.mark.parametrize(
    "secret",
    [
        {"headers": ["Authorization: Bearer hunter2"]},
        {"headers": ["authorization: token hunter2", "Proxy-Authorization: Basic hunter2"]},
        {"headers": ["Cookie: session=hunter2; user=hunter2"]},
        {"dsn": "user=me password=hunter2"},
        {"webhook": "https://example.com/hook?token=hunter2"},
        {"certificate": PRIVATE_KEY},
        {"args": ["--certificate", PRIVATE_KEY]},
        {"env": [{"name": "MYSQL_PWD", "value": "hunter2"}]},
        {"signingKey": "hunter2", "encryption-key": "hunter2", "pass_word": "hunter2", "bearer": "hunter2"},
    ],
    ids=lambda secret: next(iter(secret)),
)
def test_secret_is_masked_wherever_it_stands(secret: dict[str, Any]) -> None:
    assert "hunter2" not in json.dumps(masked_object(secret))
    hide(secrets_of(secret))
    for values in secret.values():
        for value in values if isinstance(values, list) else [values]:
            text = value if isinstance(value, str) else value["value"]
            assert "hunter2" not in without_hidden(f"the plugin said {text}")


def test_secret_that_is_a_part_of_another_one_leaves_nothing_of_it() -> None:
    for secrets in (
        ["session=hunter2;", "session=hunter2; user=me"],
        ["session=hunter2; user=me", "session="],
    ):
        for secret in secrets:
            hide([secret])
    assert without_hidden("Cookie: session=hunter2; user=me") == f"Cookie: {MASK}"


def test_web_token_is_masked_by_its_form() -> None:
    assert masked_object({"said": [WEB_TOKEN]}) == {"said": [MASK]}
    assert without_secrets(f"cannot use {WEB_TOKEN}, sorry") == f"cannot use {MASK}, sorry"


def test_check_config_shows_no_header_of_a_command(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    command = json.dumps(["serve", "--header", "Authorization: Bearer hunter2"])
    path.write_text(
        "apiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n"
        f"plugins: [{{name: Mine, command: {command}}}]\n"
    )
    result = CliRunner().invoke(berth, ["check-config", str(path)])
    assert result.exit_code == 0, result.output
    assert MASK in result.output
    assert "hunter2" not in result.output


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_check_config_shows_no_secret(output: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIGURATION)
    result = CliRunner().invoke(berth, ["check-config", str(path), "--plugin", "Mine=filter", "-o", output])
    assert result.exit_code == 0, result.output
    assert "hunter2" not in result.output
    assert MASK in result.output
    assert "/path" in result.output
    if output == "json":
        json.loads(result.stdout)


def test_errors_of_a_long_file_with_secrets_take_linear_time() -> None:
    def seconds(keys: int) -> float:
        text = "apiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n" + "".join(
            f"token{number}: hunter{number}\n" for number in range(keys)
        )
        started = time.process_time()
        with pytest.raises(ConfigurationError) as caught:
            load_berth_configuration(text, source="f")
        assert len(caught.value.findings) == keys
        return time.process_time() - started

    seconds(100)
    short = seconds(1000)
    assert seconds(8000) < 8 * 3 * short
