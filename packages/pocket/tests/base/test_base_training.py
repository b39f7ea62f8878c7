"""The training of the base: it learns, resumes exactly, and its checkpoints can be examined."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch
from orgthink_pocket.base import job, skills
from orgthink_pocket.base import model as base
from orgthink_pocket.base.model import PERIODS, vocabulary
from orgthink_pocket.model import vocabulary as pocket_words
from orgthink_pocket.shipped import POCKET
from orgthink_pocket.tasks.countdown import COUNTDOWN_MINI
from safetensors.torch import load_file
from torch import Tensor

from orgthink.models.qwen3 import Qwen3
from orgthink.record.folder import RunFolder
from orgthink.training.checkpoint import saved
from orgthink.training.sft import SftSettings
from orgthink.util.errors import UserError

SMALL = replace(
    job.POCKET_BASE, settings=SftSettings(steps=3, batch_tokens=1_200, warmup=1, save_every=2), hidden=64, layers=1
)


def _trained(folder: Path, small: job.Base = SMALL) -> tuple[Path, list[dict[str, float]]]:
    lines: list[dict[str, float]] = []
    return small.run(RunFolder.create(folder, "train", small), lines.append), lines


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, float]]]:
    return _trained(tmp_path_factory.mktemp("base") / "run")


def test_organizers_have_random_structures_two_topologies_or_no_lessons(tmp_path: Path) -> None:
    def structures(kind: str) -> set[str]:
        """Forks (F) and Joins (J) of each lesson with a Join."""
        course, words = replace(SMALL, organizers=kind)._course(tmp_path / kind), vocabulary()
        texts = [[words[i] for i in row.token_ids] for row in islice(course.rows(0, 0), 400)]
        actions = ["".join(word[1] for word in text if re.match("<(FORK|JOIN)-", word)) for text in texts]
        return {written for written in actions if "J" in written}

    assert structures("none") == set()
    assert all(re.fullmatch("(FJ)+F?|F+J+", written) for written in structures("fixed"))
    assert not all(re.fullmatch("(FJ)+F?|F+J+", written) for written in structures("random"))


def test_organizers_lessons_are_for_the_pool_size_that_was_chosen(tmp_path: Path) -> None:
    def lessons(capacity: int | None, kind: str) -> list[str]:
        """The texts of organizers."""
        course, words = replace(SMALL, organizers=kind, capacity=capacity)._course(tmp_path / kind), vocabulary()
        texts = [" ".join(words[i] for i in row.token_ids) for row in islice(course.rows(0, 0), 300)]
        return [text for text in texts if text.startswith("organizer ")]

    usual, varied = lessons(None, "random"), lessons(8, "varied")
    assert {text.split()[1] for text in usual} == {"2", "3", "4", "8"}
    assert {text.split()[1] for text in varied} == {"8"}
    without = ["<FORK-1>" not in text for text in varied]
    assert sum(without) > 2 * sum("<FORK-1>" not in text for text in lessons(8, "random"))
    with pytest.raises(ValueError, match="capacity is 0"):
        replace(SMALL, capacity=0)


def test_a_result_is_between_what_the_model_was_and_what_it_became(trained, tmp_path: Path) -> None:
    def weights(checkpoint: Path) -> dict[str, Tensor]:
        return load_file(checkpoint / "model" / "model.safetensors")

    start, _ = trained
    after = replace(SMALL, model=str(start / "model"))
    end, _ = _trained(tmp_path / "end", after)
    between, _ = _trained(tmp_path / "between", replace(after, start_weight=0.25))
    expected = {name: 0.25 * weights(start)[name] + 0.75 * weight for name, weight in weights(end).items()}
    torch.testing.assert_close(weights(between), expected)
    assert (between / "model" / "orgthink.json").is_file()

    again = replace(after, start_weight=0.25).run(RunFolder.open(tmp_path / "between"), lambda line: None)
    torch.testing.assert_close(weights(again), expected)  # what is done is not averaged a second time
    with pytest.raises(ValueError, match="start_weight is 2"):
        replace(after, start_weight=2)
    with pytest.raises(UserError, match="there is none"):
        replace(SMALL, start_weight=0.5).require()


def test_it_learns_and_its_folder_says_what_it_is_for(trained):
    checkpoint, lines = trained
    assert lines[-1]["loss"] < lines[0]["loss"]
    made_for = json.loads((checkpoint / "model" / "orgthink.json").read_text())
    assert made_for["prompts"] == "pocket-base"
    assert {"sudoku", "countdown-mini-four", "sums-mini"} <= set(made_for["tasks"])


def test_a_stopped_training_goes_on_as_if_it_had_not_stopped(trained, tmp_path):
    def stop(line: dict[str, float]) -> None:
        if line["step"] == 3:  # after the checkpoint of step 2
            raise RuntimeError("stopped")

    folder = RunFolder.create(tmp_path / "run", "train", SMALL)
    with pytest.raises(RuntimeError):
        SMALL.run(folder, stop)
    rest: list[dict[str, float]] = []
    SMALL.run(folder, rest.append)
    assert [(line["step"], line["loss"]) for line in rest] == [(3, trained[1][-1]["loss"])]


def test_a_stopped_training_goes_on_without_the_model_that_it_began_with(trained, tmp_path: Path) -> None:
    base_folder = tmp_path / "start"
    shutil.copytree(trained[0] / "model", base_folder)
    after = replace(SMALL, model=str(base_folder))
    _, whole = _trained(tmp_path / "whole", after)

    def stop(line: dict[str, float]) -> None:
        if line["step"] == 3:  # after the checkpoint of step 2
            raise RuntimeError("stopped")

    folder = RunFolder.create(tmp_path / "run", "train", after)
    with pytest.raises(RuntimeError):
        after.run(folder, stop)
    shutil.rmtree(base_folder)
    rest: list[dict[str, float]] = []
    after.run(folder, rest.append)
    assert [line["loss"] for line in rest] == [whole[-1]["loss"]]

    newest = saved(folder.path)[-1] / "model" / "model.safetensors"
    newest.write_bytes(newest.read_bytes()[:99])
    after.run(folder, rest.append)
    assert [line["loss"] for line in rest[1:]] == [whole[-1]["loss"]], "from the checkpoint before"
    with pytest.raises(UserError, match="start_weight needs its weights"):
        replace(after, start_weight=0.5).run(folder, rest.append)


@torch.no_grad()
def test_a_grown_model_writes_what_the_smaller_one_writes():
    small = Qwen3.load(POCKET)
    model = base.grown(POCKET, base.sized(128, 5), 0)
    words, known = base.vocabulary(), pocket_words()
    question, thinking = "sequential countdown 2 4 6 9 13 = 17", "scan * 2 * 4 8 17 up 9"
    text = f"{question} {thinking}".split()
    former, now = (torch.tensor([[places.index(word) for word in text]]) for places in (known, words))
    expected = small(former)[0, -1, known.index("!")] - small(former)[0, -1, known.index(";")]
    found = model(now)[0, -1, words.index("!")] - model(now)[0, -1, words.index(";")]
    assert found == pytest.approx(expected.item(), rel=1e-5)


def test_a_model_of_another_width_does_not_grow():
    with pytest.raises(ValueError, match="another shape"):
        base.grown(POCKET, base.sized(192, 6), 0)


def test_it_can_go_on_from_an_earlier_state(trained, tmp_path):
    small = replace(SMALL, model=str(trained[0] / "model"), settings=replace(SMALL.settings, learning_rate=1e-9))
    _, lines = _trained(tmp_path / "run", small)
    assert lines[0]["loss"] < trained[1][0]["loss"]


def test_skills_are_examined_forced_and_sampled(trained, monkeypatch, capsys):
    monkeypatch.setattr(skills, "TOKENS", 4)
    monkeypatch.setattr(skills, "FORCED", 1)
    folder = str(trained[0] / "model")
    skills.main([folder, "--forced"])
    assert "| alone sudoku | " in capsys.readouterr().out
    skills.main([folder, "--n", "1", "--temperature", "0"])
    table = capsys.readouterr().out
    assert "| train | 0 | organizing | countdown-mini | 0.0 " in table
    assert "| correcting | sudoku |" in table


@pytest.mark.parametrize("split", ("train", "test"))
def test_problems_of_an_examination_are_of_their_split(split):
    examiner = skills.Examiner(engine=None, temperature=0.0, split=split)  # type: ignore[arg-type]
    for problem in [*examiner.problems("countdown-mini", 5), *examiner.problems("countdown-mini-four", 2)]:
        for part in problem.data.get("parts", [problem.data]):
            assert (part["target"] in COUNTDOWN_MINI.test_targets) == (split == "test")


def test_periods_tell_all_integers_apart():
    assert max(PERIODS) > 399 and "399" in vocabulary()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--n", "0"], "n is 0"),
        (["--temperature", "0", "nan"], "temperature is nan"),
        (["--temperature", "-1"], "temperature is -1.0"),
        (["--temperature", "inf"], "temperature is inf"),
    ],
)
def test_an_examination_that_cannot_be_is_one_line(options, complaint, tmp_path, capsys):
    assert skills.main([str(tmp_path), *options]) == 2
    found = capsys.readouterr()
    (line,) = found.err.splitlines()
    assert complaint in line and not found.out
