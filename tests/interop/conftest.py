"""What the tests of foreign formats have in common."""

import pytest

from transduce.interop import certificate


@pytest.fixture(autouse=True)
def _brief_certificates(monkeypatch):
    """Models of random weights write as much as they may, and only their speed needs more than one translation."""
    monkeypatch.setattr(certificate, "_TIMES", 1)
    monkeypatch.setattr(certificate, "_EXTRA", 7)
