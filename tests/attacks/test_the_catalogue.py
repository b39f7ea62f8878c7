"""The catalogue is whole: every test of this folder is in it, and the page shows it."""

from __future__ import annotations

import importlib

from attacks.catalogue import END, FOLDER, PAGE, START, catalogue, table


def test_every_test_is_an_entry():
    listed = {attack.does for _, attack in catalogue()}
    assert len(listed) == len(list(catalogue())), "two entries have one name"
    for path in FOLDER.glob("test_*.py"):
        if path.stem == "test_the_catalogue":
            continue
        module = importlib.import_module(f"attacks.{path.stem}")
        for name, test in vars(module).items():
            if name.startswith("test_"):
                marks = [mark for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
                assert any(mark.args[0] == "attack" for mark in marks), f"{path.stem}: {name} has no entry"


def test_the_page_shows_it():
    assert START + table() + END in PAGE.read_text(), "python tests/attacks/catalogue.py --write"
