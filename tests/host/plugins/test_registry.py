"""Plugin names and their classes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from berth_host.config.default_plugins import DEFAULT_PLUGINS_BY_NAME
from berth_host.errors.plugins import DuplicatePluginError, PluginLoadError
from berth_host.plugins.registry import ClassRegistry, MissingPluginsError, load_class, points_of_class
from berth_sdk.pod import Pod
from berth_sdk.status import Status
from berth_sdk.tables import NodeView


class Mine:
    """A plugin."""

    def filter(self, state: object, pod: Pod, node: NodeView) -> Status:
        return Status.success()

    def score(self, state: object, pod: Pod, node: NodeView) -> int:
        return 0


@pytest.fixture
def broken_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "raises_at_import.py").write_text("raise RuntimeError('no licence')")
    (tmp_path / "exits_at_import.py").write_text("raise SystemExit(3)")
    (tmp_path / "is_no_python.py").write_text("def (")
    monkeypatch.syspath_prepend(tmp_path)


def test_plugin_that_is_no_class_is_refused() -> None:
    with pytest.raises(PluginLoadError, match="it is a Mine, not a class"):
        ClassRegistry({"Mine": Mine()})  # type: ignore[dict-item]


def test_classes_of_the_program_are_found_with_their_points() -> None:
    registry = ClassRegistry({"Mine": Mine})
    assert registry.find("Mine") is Mine
    assert registry.points()["Mine"] == {"filter", "score"}


def test_host_without_the_default_plugins_refuses_to_start_and_names_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("berth_host.plugins.registry.entry_points", lambda group: ())
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])  # another path is searched anew
    with pytest.raises(MissingPluginsError, match="install berth-plugins"):
        ClassRegistry()


@pytest.mark.parametrize("name", ["NodeName", "InterPodAffinity"])
def test_class_with_the_name_of_a_default_plugin_is_refused(name: str) -> None:
    with pytest.raises(DuplicatePluginError, match=f"a plugin named {name} already exists"):
        ClassRegistry({name: Mine})


def test_every_entry_point_of_a_default_plugin_has_the_points_of_the_table() -> None:
    registry = ClassRegistry()
    found = [name for name in registry.names if name in DEFAULT_PLUGINS_BY_NAME]
    assert len(found) >= 11
    for name in found:
        cls = registry.find(name)
        assert cls is not None
        assert points_of_class(name, cls) == DEFAULT_PLUGINS_BY_NAME[name].points, name


@pytest.mark.parametrize(
    ("where", "problem"),
    [
        ("no.such.module:Class", "No module named"),
        ("berth_sdk.status:NoSuch", "no attribute"),
        ("berth_sdk.status:SUCCESS", "not a class"),
        ("nonsense", "No module named"),
        ("raises_at_import:Mine", "RuntimeError: no licence"),
        ("exits_at_import:Mine", "SystemExit: 3"),
        ("is_no_python:Mine", "SyntaxError: "),
    ],
)
@pytest.mark.usefixtures("broken_modules")
def test_error_of_a_class_that_cannot_be_loaded_names_its_place(where: str, problem: str) -> None:
    with pytest.raises(PluginLoadError, match=problem) as caught:
        load_class("Mine", where)
    assert caught.value.where == where


def test_class_of_the_working_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here_alone.py").write_text("class Here:\n    def filter(self, state, pod, node): ...\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [path for path in sys.path if path])
    assert load_class("Here", "here_alone:Here").__name__ == "Here"
