"""What `python -m benchmarks --json FILE` writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.__main__ import MODULES, rows, save
from benchmarks.report import Line


def test_a_row_is_added_to_the_file_or_takes_the_place_of_its_former_self(tmp_path: Path):
    path = tmp_path / "rows.json"
    save(Line("a ÷ b", 0.5, "≥ 1", False, "two rows"), "machine", path)
    save(Line("c", 3.0, "≤ 4", True, "one row"), "machine", path)
    save(Line("a ÷ b", 1.5, "≥ 1", True, "three rows"), "machine", path)
    assert json.loads(path.read_text()) == {
        "a ÷ b": {"measured": 1.5, "goal": "≥ 1", "holds": True, "conditions": "machine; three rows"},
        "c": {"measured": 3.0, "goal": "≤ 4", "holds": True, "conditions": "machine; one row"},
    }


def test_all_is_every_group_that_the_environment_can_measure(monkeypatch: pytest.MonkeyPatch):
    measured: list[str] = []

    def group(name: str) -> list[Line]:
        measured.append(name)
        return []

    monkeypatch.setattr("benchmarks.__main__._group", group)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert not list(rows("all"))
    assert {*measured, "vllm"} == {*MODULES}
    measured.clear()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    assert not list(rows("all")) and measured == ["vllm", "smollm2", "waiting", "aborts"]
