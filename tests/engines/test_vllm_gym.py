"""Tasks of reasoning-gym on the real OpenAI server of vLLM, by `orgthink eval`. `make test-vllm`."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest

pytest.importorskip("vllm")
pytest.importorskip("reasoning_gym")

from models import tiny_model
from taught import SHAPE, TEMPLATE, teach
from terse import TERSE
from vllm_process import vllm_server

from orgthink.cli import main
from orgthink.models.tokenizer import Tokenizer
from orgthink.organizations.prompts import prompt
from orgthink.record.episode import Problem
from orgthink.record.folder import RunFolder
from orgthink.tasks import task_named

pytestmark = pytest.mark.vllm

NAMES = "gym:countdown+gym:mini_sudoku+gym:zebra_puzzles"


def taught_answers(folder: Path, problems: list[Problem]) -> Path:
    """A model that answers these problems right, when it works alone."""
    tiny_model(folder, "bytes", **{**SHAPE, "context": 8192})
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    tokenizer, lessons = Tokenizer(folder), []
    for problem in problems:
        ids = list(tokenizer.prompt(prompt(TERSE, "sequential", problem)).token_ids or ())
        answer = list(tokenizer.encode(f" <ANSWER> {problem.data['answer']} </ANSWER>"))
        lessons.append((ids + answer, [-100] * len(ids) + answer))
    return teach(folder, lessons)


def test_an_evaluation_of_several_names(tmp_path: Path) -> None:
    """What the model has learnt is right, and what it has not is wrong; every answer is graded."""
    problems = list(islice(task_named(NAMES).problems("test", 0), 6))
    folder, run = taught_answers(tmp_path / "taught", problems[:2]), tmp_path / "run"
    with vllm_server(folder, tmp_path / "log") as url:
        arguments = ["eval", "--task", NAMES, "--url", url, "--prompts", TERSE, "--n", "6", "--temperature", "0"]
        arguments += ["--organizations", "sequential", "asyncthink", "--set", "asyncthink.tolerant=true"]
        assert main([*arguments, "--max-tokens", "100", "--out", str(run)]) == 0
    episodes = {episode.id: episode for episode in RunFolder.open(run).episodes()}
    assert len(episodes) == 12 and all(episode.grade is not None for episode in episodes.values())
    right = [problem.id for problem in problems if episodes[f"{problem.id}|sequential|0"].grade.all_correct]  # type: ignore[union-attr]
    assert right == [problem.id for problem in problems[:2]]
    summary = json.loads((run / "summary.json").read_text())
    assert summary["sequential"]["all_correct"]["mean"] == pytest.approx(1 / 3)
