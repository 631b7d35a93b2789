"""The five packages and the chart have one version, which CHANGELOG.md has a section for, and one licence."""

from __future__ import annotations

import re
import tomllib

from support.places import ROOT

PACKAGES = (
    "pyproject.toml",
    "sdk/pyproject.toml",
    "plugins/pyproject.toml",
    "plugins/scheduler_plugins/pyproject.toml",
    "bench/pyproject.toml",
)
CHART = ROOT / "deploy" / "helm" / "berth" / "Chart.yaml"


def test_packages_and_chart_have_one_version_which_the_changelog_has() -> None:
    versions = {name: tomllib.loads((ROOT / name).read_text())["project"]["version"] for name in PACKAGES}
    chart = dict(re.findall(r"^(version|appVersion): \"?([\w.]+)\"?$", CHART.read_text(), re.MULTILINE))
    assert set(chart) == {"version", "appVersion"}
    assert len({*versions.values(), *chart.values()}) == 1, (versions, chart)
    assert f"\n## {versions['pyproject.toml']}," in (ROOT / "CHANGELOG.md").read_text()


def test_each_package_has_the_licence() -> None:
    # A package can only include files of its own folder.
    licence = (ROOT / "LICENSE").read_bytes()
    for name in PACKAGES:
        assert (ROOT / name).with_name("LICENSE").read_bytes() == licence


def test_packages_name_the_pythons_that_the_tests_run_on() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for name in PACKAGES:
        project = tomllib.loads((ROOT / name).read_text())["project"]
        named = [found[1] for line in project["classifiers"] if (found := re.search(r":: (3\.\d+)$", line))]
        assert project["requires-python"] == f">={named[0]}"
        assert named == [f"3.{minor}" for minor in range(11, 11 + len(named))]
        assert f"for p in {' '.join(f'python{version}' for version in named)} python3;" in makefile
        assert f"for v in {' '.join(reversed(named[1:]))};" in makefile


def test_image_has_a_python_that_the_packages_name() -> None:
    (image,) = re.findall(r"Its Python, (3\.\d+), is Debian", (ROOT / "Dockerfile").read_text())
    assert f"Programming Language :: Python :: {image}" in (ROOT / "pyproject.toml").read_text()
