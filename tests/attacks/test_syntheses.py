"""Syntheses: two processes at one run folder, one of them with a run that is complete."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from attacks.catalogue import Attack, each
from attacks.test_run_folders import ALONE, snapshot
from rule_engine import RuleEngine
from test_synthesis import by_rule, new, plan_for, taught

from orgthink.cli.synth import conduct
from orgthink.record.folder import RunFolder
from orgthink.training.coldstart import synthesis
from orgthink.util.errors import UserError

PLAN = plan_for(2, capacity=2)


@pytest.fixture
def complete(tmp_path: Path) -> Path:
    """A run folder that has all its records, and a summary of an older orgthink."""
    folder = new(tmp_path / "run", PLAN)
    asyncio.run(taught(PLAN, RuleEngine(by_rule), folder))
    folder.write_json("synth.json", {"old": True})
    return folder.path


@each(Attack("a complete synthesis is resumed while another process writes it", ALONE, "the second stops at once"))
def test_a_second_synthesis(attack: Attack, complete: Path) -> None:
    before = snapshot(complete)
    with RunFolder.open(complete).journal(redo=None), pytest.raises(UserError, match="by another process"):
        asyncio.run(conduct(PLAN, RunFolder.open(complete)))
    assert snapshot(complete) == before


@each(
    Attack(
        "a complete synthesis is resumed, its folder is moved and another run begun at its place",
        ALONE,
        "the resumed one ends with one line; nothing of the other is changed",
    )
)
def test_a_synthesis_whose_place_is_taken(attack: Attack, complete: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    harvested = synthesis.harvested

    def taken(*given: Any) -> synthesis.Harvest:
        found = harvested(*given)
        complete.rename(complete.with_name("moved"))
        new(complete.with_name("other"), plan_for(3)).path.rename(complete)
        return found

    monkeypatch.setattr(synthesis, "harvested", taken)
    folder = RunFolder.open(complete)
    with pytest.raises(UserError, match="was moved or removed"):
        asyncio.run(conduct(PLAN, folder))
    assert {path.name for path in complete.iterdir()} == {".lock", "config.json", "episodes.jsonl"}
