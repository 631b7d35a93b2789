"""Decodes the bytes of a manifest, a configuration or a kubeconfig.

kubectl, kube-scheduler and client-go read UTF-8, and UTF-16 with a byte order mark, which PowerShell writes
(`kubectl get pods -o yaml > pods.yaml`).
Source: cli-runtime `pkg/resource/visitor.go` (FileVisitor), go.yaml.in/yaml v2 `readerc.go`.
"""

from __future__ import annotations

import codecs
import io
from pathlib import Path


def read_text(path: Path) -> str:
    """Return the text of a file, with LF at the end of each line. Raises OSError and UnicodeDecodeError."""
    return io.StringIO(text_of(path.read_bytes()), newline=None).read()


def text_of(raw: bytes) -> str:
    """Return the text of UTF-8 or UTF-16 bytes. Raises UnicodeDecodeError."""
    is_utf_16 = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return raw.decode("utf-16" if is_utf_16 else "utf-8")
