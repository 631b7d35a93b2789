"""Real processes come back within a tenth of a second here, and hosts notice as soon."""

from __future__ import annotations

import pytest
from berth_host.attach import retrying


@pytest.fixture(autouse=True)
def back_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attachments are tried again within a tenth of a second."""
    monkeypatch.setattr(retrying, "FIRST_S", 0.05)
    monkeypatch.setattr(retrying, "MAX_S", 0.1)
