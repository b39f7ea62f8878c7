"""One word, one meaning: names that are no terms of the field, and classes that bear the same name."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = [folder for folder in (ROOT / "orgthink", ROOT / "pocket" / "orgthink_pocket") if folder.is_dir()]
FILES = sorted(file for folder in PACKAGES for file in folder.rglob("*.py"))

VAGUE = {
    *("said", "asked", "told", "shown", "heard", "hear", "kept", "chosen", "room", "crowded"),
    *("alike", "at_once", "require_chance", "charged", "precision"),
}
"""Words for what somebody did with a thing: a name says what the thing is."""


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of everything that a source defines: functions, classes, parameters, variables, fields."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id if isinstance(node, ast.Name) else node.attr


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_names_say_what_a_thing_is(file: Path) -> None:
    found = names(ast.parse(file.read_text(encoding="utf-8")))
    assert [f"line {line}: {name}" for line, name in found if name.strip("_").lower() in VAGUE] == []


def test_no_two_classes_bear_one_name() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for file in FILES:
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(file.relative_to(ROOT)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_what_the_test_of_names_finds() -> None:
    source = "class Told: ...\ndef f(said, fine): ...\nroom = 1\nfor kept in x: pass\nself.shown = 2\nprint(told)\n"
    found = [name for _, name in names(ast.parse(source)) if name.strip("_").lower() in VAGUE]
    assert sorted(found) == ["Told", "kept", "room", "said", "shown"]
