"""Configurations for commands under test, and what they printed."""

from __future__ import annotations

import json
from typing import Any

from click.testing import Result


def in_process(**plugins: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a configuration of two documents that enables plugins at all their points, by class."""
    enabled = [{"name": name} for name in plugins]
    scheduler = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "default-scheduler", "plugins": {"multiPoint": {"enabled": enabled}}}],
    }
    own = {
        "apiVersion": "config.berth.io/v1alpha1",
        "kind": "BerthConfiguration",
        "plugins": [{"name": name, "inProcess": where} for name, where in plugins.items()],
    }
    return scheduler, own


def answer(result: Result) -> dict[str, Any]:
    """Return the one object on standard output."""
    assert result.exit_code == 0, result.stderr
    value = json.loads(result.stdout)
    assert isinstance(value, dict)
    return value
