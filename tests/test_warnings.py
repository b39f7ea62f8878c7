"""Warnings of a process that runs many commands."""

from __future__ import annotations

import sys
import warnings

import pytest

from orgthink.util.terminal import clean_tracebacks


def test_a_process_that_runs_many_commands_can_still_warn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    for _ in range(2 * sys.getrecursionlimit()):
        clean_tracebacks()
    assert warnings.formatwarning("old\u202e", UserWarning, "file", 1).endswith("UserWarning: old\\u202e\n")
