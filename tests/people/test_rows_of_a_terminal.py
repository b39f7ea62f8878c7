"""The rows into which a question is broken for a terminal."""

from __future__ import annotations

import os

import pytest

from orgthink.engines import person_terminal as terminal


def test_rows_fit_and_lose_nothing() -> None:
    text = "a漢\t字b" * 50
    for columns in (1, 2, 3, 10, 80):
        found = terminal.rows(text, columns)
        assert "".join(found) == text.replace("\t", "    ")
        assert all(len(row) <= max(1, columns) for row in found)


def test_the_columns_of_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_: int) -> os.terminal_size:
        raise OSError

    monkeypatch.setattr(os, "get_terminal_size", none)
    assert terminal._columns() == 80
