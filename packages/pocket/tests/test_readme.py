"""README.md is short, and its make targets and dry runs work. Its code runs in test_docs.py."""

from __future__ import annotations

import json
import re

import pytest
from pages import PAGES, ROOT, commands

from orgthink.cli import main

README = (ROOT / "README.md").read_text()


def test_it_is_short():
    assert len(README.split()) <= 700


@pytest.mark.parametrize("target", ["demo", "papers"])
def test_make_targets_that_it_names_exist(target):
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert f"make {target}" in README


def test_it_names_the_critical_path_an_organization_and_an_endpoint():
    for what in ("Eq. 4", "orgthink/measure/latency.py", "add an organization", "endpoint"):
        assert what in README


DRY_RUNS = [
    words
    for page in PAGES
    for words in commands(page)
    if words[0] == "orgthink" and "--dry-run" in words and len(words) > 3
]
"""Scripts have tests of their own."""


@pytest.mark.parametrize("words", DRY_RUNS, ids=" ".join)
def test_a_dry_run_works_when_pasted(words, tmp_path, monkeypatch, capsys):
    """Without a model or a file of problems, it names what is missing."""
    monkeypatch.chdir(tmp_path)
    assert main(words[1:]) == 0
    out, err = capsys.readouterr()
    assert all(name in err for name in json.loads(out)["unnamed"])


def test_the_pages_show_dry_runs():
    assert len(DRY_RUNS) >= 1
