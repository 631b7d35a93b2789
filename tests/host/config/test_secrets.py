"""Secrets of a configuration are not shown."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from berth_host.cli.main import berth
from berth_host.config.errors import ConfigurationError
from berth_host.config.loading import load_berth_configuration
from berth_host.config.secrets import masked_object
from berth_host.log.hidden import MASK
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
