"""berth's SDK: write a Kubernetes scheduling plugin as one small class.

Read `berth_sdk.extension_points` first: it describes every extension point, its arguments and its answers.
All names that an author needs can be imported from this package. `berth_sdk.serve.server` serves plugins, and
`berth_sdk.testing` tests them. The SDK depends on grpcio, protobuf and numpy, and on nothing of the host.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from berth_sdk.author import *  # noqa: F403
    from berth_sdk.author import __all__ as __all__
else:
    # The names bring numpy. A command that prints its help imports modules of this package that need none.
    def __getattr__(name: str) -> object:
        author = import_module("berth_sdk.author")
        if name == "__all__" or name in author.__all__:
            return getattr(author, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__getattr__("__all__")})
