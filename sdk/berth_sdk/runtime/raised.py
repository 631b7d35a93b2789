"""An exception of a plugin -> a text and a traceback for its author, with only the author's lines.

The host, the server and `berth-sdk serve` use the same texts, for in-process and served plugins.
"""

from __future__ import annotations

import linecache
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from traceback import StackSummary, TracebackException
from types import FrameType, TracebackType
from typing import Final, TypeAlias, TypeGuard

_MAX_MESSAGE: Final = 400
_MAX_SOURCE: Final = 160
_MACHINERY: Final = frozenset({"berth_sdk", "berth_host"})
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
_STANDARD: Final = tuple({f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib")})
_Step: TypeAlias = tuple[TracebackType, FrameType]


def raised_text(err: BaseException) -> str:
    """Return type, message and place: `KeyError: 'x' at my_plugin.py:12: return nodes["x"]`."""
    message = _message(err)
    said = f"{type(err).__name__}: {_cut(message, _MAX_MESSAGE)}" if message else type(err).__name__
    return f"{said}{place_of(err)}"


def is_class(value: object) -> TypeGuard[type]:
    """Return True for a class. `isinstance` would run code of `value`."""
    return issubclass(type(value), type)


def place_of_class(cls: type) -> str:
    """Return `module:Class`. Reading attributes of the class would run code of its metaclass."""
    return ":".join(str(type.__getattribute__(cls, name)) for name in ("__module__", "__qualname__"))


def _message(err: BaseException) -> str:
    try:
        return str(err.msg if isinstance(err, SyntaxError) else err)
    except Exception as failure:  # noqa: BLE001 (an exception of a plugin's own class)
        return f"its message cannot be made ({type(failure).__name__})"


def place_of(err: BaseException) -> str:
    """Return ` at FILE:LINE: SOURCE` of the author's last line in the traceback; empty if there is none."""
    if isinstance(err, SyntaxError) and err.filename and not err.filename.startswith("<"):
        return _place(Path(err.filename).name, err.lineno or 0, err.text or "")
    steps = _of_the_author(err.__traceback__)
    if not steps:
        return ""
    trace, frame = steps[-1]
    file = frame.f_code.co_filename
    source = linecache.getline(file, trace.tb_lineno, frame.f_globals)
    return _place(_short(file, _module(frame)), trace.tb_lineno, source)


def author_trace(err: BaseException) -> TracebackType | None:
    """Return the traceback from the author's first line on; all of it if it has no line of the author.

    None for a module that cannot be compiled, as the exception names the line.
    """
    steps = _of_the_author(err.__traceback__)
    if steps:
        return steps[0][0]
    return None if isinstance(err, SyntaxError) else err.__traceback__


def author_traceback(err: BaseException) -> str:
    """Return the traceback as Python prints it, with only the author's lines; empty if there are none."""
    shown = TracebackException.from_exception(err)
    if not _keep_the_authors(shown, err):
        return "".join(shown.format_exception_only()) if isinstance(err, SyntaxError) else ""
    return "".join(shown.format())


def _keep_the_authors(shown: TracebackException, err: BaseException) -> bool:
    """Keep only the author's frames in `shown`, its cause and its context; return False if there are none."""
    kept = {id(trace) for trace, _ in _of_the_author(err.__traceback__)}
    if shown.stack:
        shown.stack = StackSummary.from_list(
            [
                one
                for one, trace in zip(shown.stack, _steps(err.__traceback__), strict=False)
                if id(trace[0]) in kept
            ]
        )
    for before, came_from in ((shown.__cause__, err.__cause__), (shown.__context__, err.__context__)):
        if before is not None and came_from is not None:
            _keep_the_authors(before, came_from)
    return bool(kept)


def _of_the_author(trace: TracebackType | None) -> list[_Step]:
    """Return the frames of the plugin and of code in its folder, without the libraries that it calls.

    In a traceback, an installed plugin comes before the installed libraries.
    """
    others = [(at, frame) for at, frame in _steps(trace) if not _is_ours(frame) and not _is_standard(frame)]
    if not others:
        return []
    home = _package(others[0][1])
    return [(at, frame) for at, frame in others if not _is_installed(frame) or _package(frame) == home]


def _steps(trace: TracebackType | None) -> Iterator[_Step]:
    while trace is not None:
        yield trace, trace.tb_frame
        trace = trace.tb_next


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _package(frame: FrameType) -> str:
    return _module(frame).partition(".")[0]


def _is_ours(frame: FrameType) -> bool:
    return _package(frame) in _MACHINERY


def _is_installed(frame: FrameType) -> bool:
    return not _INSTALLED.isdisjoint(Path(frame.f_code.co_filename).parts)


def _is_standard(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return file.startswith("<frozen ") or (file.startswith(_STANDARD) and not _is_installed(frame))


def _short(file: str, module: str) -> str:
    """Return the path from the top package on, such as `my_plugins/gpu.py`."""
    path = Path(file)
    depth = module.count(".") + (path.stem == "__init__")
    return "/".join(path.parts[-1 - depth :])


def _place(file: str, line: int, source: str) -> str:
    shown = _cut(" ".join(source.split()), _MAX_SOURCE)
    return f" at {file}:{line}: {shown}" if shown else f" at {file}:{line}"


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 3]}..."
