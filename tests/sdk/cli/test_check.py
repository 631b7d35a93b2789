"""`berth-sdk check` says what a host would think of a class."""

from __future__ import annotations

from pathlib import Path

import pytest
from berth_sdk.__main__ import main


def test_check_says_what_is_wrong_with_class_and_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "judged.py").write_text(
        "from berth_sdk import Plugin, PluginArgsError, Status\n"
        "class Strict(Plugin):\n"
        "    def __init__(self, args, handle):\n"
        "        super().__init__(args, handle)\n"
        "        if 'zone' not in args:\n"
        "            raise PluginArgsError('zone: is missing')\n"
        "    async def filter(self, state, pod, node):\n"
        "        return Status.success()\n"
        "class Misspelt(Plugin):\n"
        "    def fliter(self, state, pod, node):\n"
        "        return Status.success()\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["check", "judged:Strict"]) == 1
    said = capsys.readouterr().out
    assert "filter               async def filter(self, state, pod, node)" in said
    assert "remark: without `depends_on`" in said
    assert "remark: without `events`" in said
    assert "arguments: refuses {}: zone: is missing" in said
    assert main(["check", "judged:Strict", "--args", '{"zone": "a"}']) == 0
    (tmp_path / "args.json").write_text('{"zone": "a"}')
    assert main(["check", "judged:Strict", "--args", "args.json"]) == 0
    capsys.readouterr()
    assert main(["check", "judged:Misspelt"]) == 1
    assert "filter" in capsys.readouterr().err
    assert main(["check", "judged:Strict", "--args", "[1]"]) == 2
    assert "--args: '[1]' is neither a JSON object nor a file" in capsys.readouterr().err
    assert main(["check", "judged:Nobody"]) == 1


def test_check_shows_what_the_plugin_declares_with_its_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "by_claim.py").write_text(
        "from berth_sdk import EventInterest, Need, Plugin\n"
        "class ByClaim(Plugin):\n"
        "    events = (EventInterest('Node', ('add',)),)\n"
        "    def __init__(self, args, handle):\n"
        "        super().__init__(args, handle)\n"
        "        if 'claim' in args:\n"
        "            self.needs = [Need.objects('persistentvolumeclaims')]\n"
        "            self.events = [EventInterest('PersistentVolumeClaim', ('add',))]\n"
        "        if 'wrong' in args:\n"
        "            self.needs = ['pods']\n"
        "    def filter(self, state, pod, node):\n"
        "        return None\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["check", "by_claim:ByClaim"]) == 0
    said = capsys.readouterr().out
    assert "events: Node add\n" in said
    assert "persistentvolumeclaims" not in said
    assert main(["check", "by_claim:ByClaim", "--args", '{"claim": "gold"}']) == 0
    said = capsys.readouterr().out
    assert "events: PersistentVolumeClaim add\n" in said
    assert "object persistentvolumeclaims" in said
    assert said.endswith('arguments: accepts {"claim": "gold"}\n')
    assert main(["check", "by_claim:ByClaim", "--args", '{"wrong": 1}']) == 1
    captured = capsys.readouterr()
    assert "events: Node add\n" in captured.out
    assert "ByClaim.needs is ['pods']: it must be a list of Need" in captured.err


@pytest.mark.parametrize("code", [0, 3])
def test_class_that_ends_the_process_is_refused(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / f"ends_with_{code}.py").write_text(
        "from berth_sdk import Plugin\n"
        "class Ends(Plugin):\n"
        "    def __init__(self, args, handle):\n"
        f"        raise SystemExit({code})\n"
        "    def filter(self, state, pod, node):\n"
        "        return None\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["check", f"ends_with_{code}:Ends"]) == 1
    assert f"ends_with_{code}:Ends cannot be made: SystemExit: {code}" in capsys.readouterr().err


def test_check_closes_the_plugin_and_shows_what_close_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "closes_badly.py").write_text(
        "from berth_sdk import Plugin\n"
        "class Stuck(Plugin):\n"
        "    def filter(self, state, pod, node):\n"
        "        return None\n"
        "    def close(self):\n"
        "        raise RuntimeError('stuck')\n"
        "class Waits(Plugin):\n"
        "    def filter(self, state, pod, node):\n"
        "        return None\n"
        "    def close(self, grace):\n"
        "        pass\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["check", "closes_badly:Stuck"]) == 0
    assert "remark: close raised RuntimeError: stuck at closes_badly.py:6" in capsys.readouterr().out
    assert main(["check", "closes_badly:Waits"]) == 1
    assert "write it as `def close(self)`" in capsys.readouterr().err


def test_name_or_class_that_is_none_is_named_once_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "oddities.py").write_text(
        "import abc\n"
        "class Abstract(abc.ABC):\n"
        "    @abc.abstractmethod\n"
        "    def filter(self, state, pod, node): ...\n"
        "class Yields:\n"
        "    def filter(self, state, pod, node):\n"
        "        yield None\n"
        "class Attribute:\n"
        "    filter = 3\n"
        "number = 3\n"
    )
    monkeypatch.chdir(tmp_path)
    for name, said in (
        (
            "oddities:Abstract",
            "oddities:Abstract: Abstract cannot be made: it is abstract: write its methods `filter`",
        ),
        ("oddities:Yields", "oddities:Yields: Yields.filter is a generator: `return` the answer in place of"),
        ("oddities:Attribute", "oddities:Attribute: Attribute.filter is not a method: rename the attribute"),
        ("oddities:number", "oddities:number is an int, not a class: name the plugin's class"),
        ("oddities:Nobody", "oddities:Nobody cannot be loaded: module 'oddities' has no attribute 'Nobody'"),
        ("oddities.py:Yields", "oddities.py:Yields names a file: write the module, as oddities:Yields"),
        ("../oddities:Yields", "../oddities:Yields is no module:Class: write the names as in `from module"),
        ("oddities:", "oddities: is no module:Class: write the names as in"),
        ("oddities", "oddities: no installed plugin is named oddities: installed plugins: "),
        ("NodeNam", "NodeNam: no installed plugin is named NodeNam: did you mean NodeName?; to name a class"),
    ):
        assert main(["check", name]) == 1
        assert f"berth-sdk check: {said}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ('{"a": NaN}', "--args: not JSON: NaN is no number of JSON"),
        ('{"a":' * 5000 + "1" + "}" * 5000, "--args: the values are nested too deeply"),
        ("", "--args: '' is neither a JSON object nor a file that can be read: Is a directory"),
    ],
    ids=["not a number", "nested very deeply", "nothing"],
)
def test_arguments_that_are_no_json_object_are_named(
    args: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "NodeName", "--args", args]) == 2
    assert said in capsys.readouterr().err
