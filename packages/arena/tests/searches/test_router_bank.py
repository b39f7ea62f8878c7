"""A bank: what each member of a pool is worth on training problems, by an evaluation that can be resumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from members import POOL, TASK
from orgthink_arena.organizations.router import bank_of, best_member
from orgthink_arena.searches import costs
from orgthink_arena.searches.router_bank import BankSettings, RouterBank
from terse import TERSE

from orgthink.record.folder import RunFolder
from orgthink.training.recipes.registry import Training, go_on, start
from orgthink.util.errors import UserError
from orgthink.util.files import locked

JOB = RouterBank(BankSettings(TASK, POOL, TERSE, problems=6, samples=2))


def made(path: Path, job: RouterBank = JOB) -> tuple[Path, list[dict[str, Any]]]:
    lines: list[dict[str, Any]] = []
    return go_on(start(Training("test", job), path), lines.append), lines


def test_a_bank_knows_who_is_right_and_what_it_took(tmp_path: Path) -> None:
    file, lines = made(tmp_path / "run")
    bank = bank_of(str(file))
    assert len(bank.problems) == 6 and [line["step"] for line in lines] == list(range(1, JOB.settings.steps + 1))
    assert all(known.scores == {"wrong": 0.0, "right": 1.0} for known in bank.problems)
    assert all(known.tokens["wrong"] > known.tokens["right"] for known in bank.problems)
    assert best_member(("wrong", "right"), bank.problems) == "right"
    used = costs.read(tmp_path / "run")
    tokens = sum(known.tokens[name] * 2 for known in bank.problems for name in POOL)
    assert (used.episodes, used.replies, used.cost_units, used.sampled_tokens) == (24, 24, 24.0, tokens)


def test_a_bank_that_was_stopped_goes_on(tmp_path: Path) -> None:
    whole, _ = made(tmp_path / "whole")
    lines: list[int] = []

    def stop(line: dict[str, Any]) -> None:
        lines.append(line["step"])
        if line["step"] == 17:
            raise KeyboardInterrupt

    folder = start(Training("test", JOB), tmp_path / "cut")
    with pytest.raises(KeyboardInterrupt):
        go_on(folder, stop)
    assert not (tmp_path / "cut" / "bank.json").exists()
    resumed = go_on(RunFolder.open(tmp_path / "cut"), lambda line: lines.append(line["step"]))
    assert max(lines) == JOB.settings.steps and len(lines) < JOB.settings.steps + 17, (
        "what was recorded is not run again"
    )
    assert sorted(json.loads(resumed.read_text())["problems"], key=str) == sorted(
        json.loads(whole.read_text())["problems"], key=str
    )


def test_what_cannot_be_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the pool is empty"):
        BankSettings(TASK, {})


def test_a_second_process_makes_nothing_of_a_bank(tmp_path: Path) -> None:
    folder = start(Training("test", JOB), tmp_path / "run")
    before = sorted(folder.path.iterdir())
    with locked(folder.path), pytest.raises(UserError, match="run is being written by another process"):
        go_on(folder, lambda line: None)
    assert sorted(folder.path.iterdir()) == before
