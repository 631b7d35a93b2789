"""The examples as modules, and their configurations run by `berth simulate` in this process."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

from support.places import ROOT

EXAMPLES: Final = ROOT / "examples"


def example(path: str) -> ModuleType:
    """Return the module at `examples/<path>`, loaded from its file as a stranger's installation would have
    it.
    """
    name = "example_" + Path(path).stem
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(EXAMPLES / path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
