"""The programs of `countdown-small` and `countdown-all`: traces follow the protocol, are right, and fit the budget."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from orgthink.cli import main
from orgthink.models.tokenizer import Tokenizer
from orgthink.record.folder import RunFolder
from orgthink.tasks import task_named
from orgthink.training.coldstart.pairs import read_pairs
from orgthink.training.coldstart.teachers import program_of

TASK = "countdown-small"
STANDS = {
    TASK: re.compile(r"Now (\d) of (\d)\.(?: Left: ([^.]*)\. Running: ([^.]*)\.)?"),
    "countdown-all": re.compile(r"()()left (\S+) runs (\S+)"),
}
"""Task → where an organizer stands: solutions that it has and needs, parts left, and forks without a join."""
both = pytest.mark.parametrize("task", STANDS)


@both
def test_traces_are_right_unless_they_leave_a_part_out_and_have_no_format_error(task: str, tmp_path: Path, capsys):
    given = ["--task", task, "--n", "60", "--teacher", "program", "--capacity", "4"]
    assert main(["synth", *given, "--out", str(tmp_path / "run")]) == 0
    summary = json.loads((tmp_path / "run/synth.json").read_text())
    assert (summary["kept"], summary["dropped"]) == (60, {}) and 0.8 < summary["all_correct"] < 1
    assert summary["pairs"] == len(read_pairs(tmp_path / "run/pairs.jsonl"))
    episodes = list(RunFolder.open(tmp_path / "run").episodes())
    assert not any(episode.format_faults for episode in episodes)
    assert {len(episode.traces) for episode in episodes} >= {1, 2, 3}, "alone, and with workers"
    for episode in episodes:
        for trace in episode.traces[1:]:
            numbers = r",\s?".join(map(str, episode.problem.data["numbers"]))
            assert re.search(rf"\b{numbers}\b", trace.spans[0].text), "a worker sees its sub-query only"


@both
def test_an_organizer_ends_when_it_has_enough_or_nothing_is_left(task: str):
    """It says so before the answer, and what it joins is what it said to be running."""
    short = 0
    for number, problem in enumerate(islice(task_named(task).problems("train", 5), 80)):
        text = program_of(task).write(problem, 4, Random(number))[0].text
        *_, last = STANDS[task].findall(text)
        enough = last[0] == last[1] != ""
        assert enough or last[2:] == ("none", "none")
        short += not enough
        for *_, running, key in re.findall(STANDS[task].pattern + r"\n<JOIN-(\d)>", text):
            assert key in re.split(", ?", running)
    assert 2 < short < 30 or task != TASK


def test_no_scan_of_countdown_all_ends_early():
    for number, problem in enumerate(islice(task_named("countdown-all").problems("train", 5), 40)):
        parts, *rest = (trace.text for trace in program_of("countdown-all").write(problem, 4, Random(number)))
        named = re.search(r"Parts: ([\d,]+)\.", parts)
        assert named is not None
        for first in named[1].split(","):
            largest = max(n for n in problem.data["numbers"] if n < int(first))
            assert any(f"\n{first}-{largest}=" in f"\n{text}" for text in (parts, *rest))


def test_traces_are_a_function_of_the_seed_and_differ_in_structure():
    write, problem = program_of(TASK).write, next(task_named(TASK).problems("train", 0))
    texts = {"".join(trace.text for trace in write(problem, 4, Random(seed))) for seed in (*range(9), *range(9))}
    assert len(texts) == 9


def test_countdown_small_stays_as_it_was():
    """Stored outcomes and the published adapter belong to these problems and traces."""
    digest = sha256()
    for number, problem in enumerate(islice(task_named(TASK).problems("test", 3), 30)):
        digest.update(f"{problem.id}\n{problem.text}".encode())
        for trace in program_of(TASK).write(problem, 4, Random(number)):
            digest.update(trace.text.encode())
    assert digest.hexdigest()[:16] == "8720a0860069a6fe"


@pytest.mark.parametrize(("task", "segment"), [("countdown-small", 384), ("countdown-all", 384)])
@pytest.mark.parametrize("capacity", [1, 2, 4])
def test_segments_fit_the_budget_of_a_real_model(smollm2: Path, capacity: int, task: str, segment: int):
    """Also those of a thinker alone, which leaves out what it cannot scan."""
    tokenizer = Tokenizer(smollm2)
    for problem in islice(task_named(task).problems("train", 3), 60):
        for trace in program_of(task).write(problem, capacity, Random(capacity)):
            assert all(len(tokenizer.encode(part)) < segment for part in trace.text.split("</JOIN-"))
