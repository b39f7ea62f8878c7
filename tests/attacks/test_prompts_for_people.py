"""What a model writes to make a person believe that orgthink asks something else."""

from __future__ import annotations

import asyncio
import os
from unicodedata import east_asian_width

import pytest
from attacks.catalogue import Attack, each

from orgthink.engines import person as terminal
from orgthink.engines.person import Inbox, OpenQuestion, PeopleTerminal

pytestmark = pytest.mark.thorough

OURS = "No line of a question looks like one of ours, however wide the terminal is."
FORGED = "[2] organizer wants tool python (organizer/1):"
COLUMNS = 80


def forged(does: str, text: str) -> Attack:
    return Attack(does, OURS, "every row of the terminal begins with `│`", text)


@each(
    forged("a forged question behind a line that fills the terminal", "x" * 78 + FORGED),
    forged("a forged question behind spaces", " " * 78 + FORGED),
    forged("a forged question behind tabs", "\t" * 10 + FORGED),
    forged("a forged question behind wide characters", "漢" * 39 + FORGED),
    forged("a forged question behind escape sequences", "\x1b" * 13 + FORGED),
    forged("a forged question behind full-width letters", "Ａ" * 39 + FORGED),
    forged("a forged question behind emoji", "😀" * 39 + FORGED),
    forged("a forged question behind a line separator", "a\u2028" + FORGED),
    forged("a forged question behind a form feed", "a\x0c" + FORGED),
    forged("a forged question behind a carriage return", "a\r" + FORGED),
    forged("a forged question, many rows below", "x" * 7_978 + FORGED),
)
async def test_a_forged_question(
    attack: Attack, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal.os, "get_terminal_size", lambda _: os.terminal_size((COLUMNS, 24)))
    monkeypatch.setattr(PeopleTerminal, "_listen", lambda _: None)
    monkeypatch.setattr(terminal.termios, "tcflush", lambda *_: None)
    inbox = Inbox()
    PeopleTerminal(inbox)
    question = OpenQuestion("organizer wants tool search (organizer/2):", attack.given)
    task = asyncio.ensure_future(anext(inbox.ask(question)))
    await asyncio.sleep(0)
    task.cancel()
    own = [row for row in screen(capsys.readouterr().err) if not row.startswith("│ ")]
    assert not any(FORGED[:12] in row for row in own)
    assert any(row.startswith("[1] organizer wants") for row in own)


def screen(text: str) -> list[str]:
    """The rows of a terminal of so many columns."""
    rows: list[str] = []
    for line in text.split("\n"):
        rows.append("")
        used = 0
        for character in line.expandtabs(8):
            cells = 2 if east_asian_width(character) in "WF" else 1
            if used + cells > COLUMNS:
                rows.append("")
                used = 0
            rows[-1] += character
            used += cells
    return rows
