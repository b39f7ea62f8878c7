"""`orgthink synth --teacher program`: rows that the runtime reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from orgthink_pocket.tasks.countdown import COUNTDOWN_MINI

from orgthink.cli import main
from orgthink.grammar.actions import Answer, Join, Return
from orgthink.grammar.asyncthink import Keys, organizer_scanner, worker_scanner
from orgthink.record.folder import RunFolder
from orgthink.training.coldstart.pairs import read_pairs
from orgthink.training.coldstart.synthesis import Synthesis, problems


@pytest.mark.parametrize("capacity", [2, 4])
def test_the_rows_of_the_program_are_what_the_runtime_reads(tmp_path: Path, capsys, capacity):
    run = tmp_path / "run"
    argv = ["synth", "--teacher", "program", "--task", "countdown-mini", "--capacity", str(capacity), "--seed", "3"]
    assert main([*argv, "--n", "16", "--out", str(run)]) == 0
    assert f"traces are in {run / 'pairs.jsonl'}" in capsys.readouterr().out
    rows = read_pairs(run / "pairs.jsonl")
    plan = RunFolder.open(run).settings("synth", Synthesis)
    by_episode = {problem.id: [row for row in rows if row.problem == problem.id] for problem in problems(plan).values()}
    assert not {int(name.partition("=")[2]) for name in by_episode} & COUNTDOWN_MINI.test_targets
    assert sum(len(group) > 1 for group in by_episode.values()) > 8
    for group in by_episode.values():
        keys, joins = Keys(capacity), 0
        for row in group:
            scanner = organizer_scanner() if row.role == "organizer" else worker_scanner()
            actions = [event.action for event in scanner.feed(row.response) + scanner.close()]
            assert [keys.check(action) for action in actions] == [None] * len(actions)
            assert isinstance(actions[-1], Return if row.role == "worker" else Answer if row.last else Join)
            assert row.prompt.startswith(f"organizer {capacity} " if row.role == "organizer" else "worker ")
            joins += isinstance(actions[-1], Join)
        assert sum(row.role == "worker" for row in group) >= joins


def test_a_finished_run_is_written_again_without_its_teacher(tmp_path: Path, capsys):
    run = tmp_path / "run"
    assert main(["synth", "--teacher", "program", "--task", "countdown-mini", "--n", "4", "--out", str(run)]) == 0
    names = ("pairs.jsonl", "dropped.jsonl", "synth.json")
    before, told = [(run / name).read_bytes() for name in names], capsys.readouterr().out
    (run / "pairs.jsonl").unlink()
    assert main(["synth", "--resume", str(run)]) == 0
    assert capsys.readouterr().out == told
    assert [(run / name).read_bytes() for name in names] == before


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--model", "pocket-base"], "--teacher program needs no model"),
        (["--template", "enable_thinking=false"], "--teacher program needs no model"),
        (["--prompts", "paper"], "prompts of style pocket, not paper"),
        (["--capacity", "1"], "capacity is 1: it must be at least 2"),
    ],
)
def test_what_the_program_cannot_do_is_one_line(tmp_path: Path, monkeypatch, capsys, given, says):
    monkeypatch.chdir(tmp_path)
    assert main(["synth", "--teacher", "program", "--task", "countdown-mini", *given]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line and not list(tmp_path.iterdir())
