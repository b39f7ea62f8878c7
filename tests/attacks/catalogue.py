"""What an attacker may do, what is promised, what comes of it: the tests of this folder, and a table made of them.

`python tests/attacks/catalogue.py --write` writes the table into docs/security.md.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent
PAGE = FOLDER.parents[1] / "docs" / "security.md"
START, END = "<!-- attacks -->\n", "<!-- /attacks -->\n"


@dataclass(frozen=True, slots=True)
class Attack:
    """An entry of the catalogue. Texts are Markdown."""

    does: str
    """What the attacker does, in a few words: "usage of −500 tokens"."""
    promise: str
    """What holds nevertheless, as a sentence. Attacks on one promise share the text."""
    outcome: str
    """What the user sees of it."""
    given: Any = None
    """What the test needs: an answer of a server, a program, a file."""


def each(*attacks: Attack) -> pytest.MarkDecorator:
    """Run a test for every attack, as its argument `attack`."""
    return pytest.mark.parametrize("attack", attacks, ids=[attack.does for attack in attacks])


def catalogue() -> Iterator[tuple[str, Attack]]:
    """Name of the test's module without `test_`, and the attack, in order of modules and tests."""
    for path in sorted(FOLDER.glob("test_*.py")):
        module = importlib.import_module(f"attacks.{path.stem}")
        for test in vars(module).values():
            for mark in getattr(test, "pytestmark", []):
                if mark.name == "parametrize" and mark.args[0] == "attack":
                    for attack in mark.args[1]:
                        yield path.stem.removeprefix("test_"), attack


def table() -> str:
    """A section for each module, a row for each outcome of a promise."""
    rooms: dict[str, dict[tuple[str, str], list[str]]] = {}
    for room, attack in catalogue():
        rooms.setdefault(room, {}).setdefault((attack.promise, attack.outcome), []).append(attack.does)
    lines: list[str] = []
    for room, rows in rooms.items():
        count = sum(map(len, rows.values()))
        lines += [
            "",
            f"### {room.replace('_', ' ').capitalize()}: {count}",
            "",
            "| promise | outcome | attacks |",
            "|---|---|---|",
        ]
        lines += [f"| {promise} | {outcome} | {'; '.join(does)} |" for (promise, outcome), does in rows.items()]
    return "\n".join([*lines, "", ""])


if __name__ == "__main__":
    sys.path.insert(0, str(FOLDER.parent))
    importlib.import_module("conftest")  # adds the folders of helpers
    before, _, rest = PAGE.read_text().partition(START)
    _, _, after = rest.partition(END)
    text = before + START + table() + END + after
    if "--write" in sys.argv:
        PAGE.write_text(text)
    elif text != PAGE.read_text():
        sys.exit("docs/security.md is old: python tests/attacks/catalogue.py --write")
