"""`kubectl berth fit FILE` gets the pod of the file from `process`, as `cli` does not know manifests."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from berth_host.errors.manifests import ManifestError
from berth_host.process.pod_file import pod_in
from berth_sdk.testing import pod_object


def test_pod_comes_from_a_file_or_from_standard_input(tmp_path: Path) -> None:
    text = yaml.safe_dump(pod_object("web"))
    (tmp_path / "pod.yaml").write_text(text)
    assert pod_in(str(tmp_path / "pod.yaml"), lambda: "")["metadata"]["name"] == "web"
    assert pod_in("-", lambda: text)["metadata"]["name"] == "web"


def test_error_names_the_file_and_what_it_must_have(tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text(yaml.safe_dump_all([pod_object("a"), pod_object("b")]))
    with pytest.raises(ManifestError, match=r"two\.yaml.*has 2 pods and workloads: name a file with one Pod"):
        pod_in(str(tmp_path / "two.yaml"), lambda: "")
