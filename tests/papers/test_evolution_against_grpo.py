"""Evolution strategies against GRPO: the task is exact, a training counts within a budget, and the table pairs rows."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lines import ROOT

sys.path.append(str(ROOT))

pytest.importorskip("orgthink_pocket")

from orgthink.organizations.prompts import prompt
from orgthink.record.episode import Problem
from papers import evolution, outcomes
from papers.evolution import LARGEST, within
from papers.outcomes import Outcome


def test_only_the_largest_number_alone_is_right():
    problem = next(LARGEST.problems("train", 0))
    numbers = sorted(problem.text.split(), key=int)
    assert LARGEST.grade(problem, f" {numbers[2]}\n").all_correct
    for wrong in (numbers[0], numbers[1], f"{numbers[2]} {numbers[0]}", f"It is {numbers[2]}", "", "²"):
        assert not LARGEST.grade(problem, wrong).all_correct


def test_held_out_problems_are_not_trained_on():
    train, test = ({one.id for one in islice(LARGEST.problems(split, 1), 2000)} for split in ("train", "test"))
    assert len(test) > 1900 and not train & test


def test_the_examples_of_the_prompt_are_right():
    *turns, question = prompt("papers.evolution:STYLE", "sequential", next(LARGEST.problems("test", 0)))[1:]
    for user, assistant in zip(turns[::2], turns[1::2], strict=True):
        assert LARGEST.grade(Problem("x", LARGEST.name, user.content), assistant.content).all_correct
    assert len(turns) == 4 and question.content == next(LARGEST.problems("test", 0)).text


@given(st.lists(st.integers(1, 50), min_size=1), st.integers(0, 20), st.integers(-1, 1))
def test_a_training_ends_at_the_last_step_within_the_tokens(steps, count, more):
    budget = sum(steps[:count]) + more
    found = [tokens for tokens, _ in within([(tokens, 0.0) for tokens in steps], budget)]
    assert found and found == steps[: len(found)]
    assert sum(found) <= budget or len(found) == 1
    assert len(found) == len(steps) or sum(steps[: len(found) + 1]) > budget


def test_stored_trainings_replace_their_former_outcomes_only(tmp_path, monkeypatch):
    monkeypatch.setattr(outcomes.path_of, "__defaults__", (tmp_path,))
    monkeypatch.setattr(outcomes.write, "__defaults__", (tmp_path,))
    monkeypatch.setattr(outcomes.read, "__defaults__", (tmp_path,))
    monkeypatch.setattr(evolution, "TRAININGS", tmp_path / "trainings.json")
    one = Outcome("pocket, GRPO, T = 0", 0, "a", False, 1, 1)
    evolution.store([one, replace(one, training=1)], {"pocket, GRPO": {"0": [(5, 0.5)]}})
    evolution.store([replace(one, solved=True)], {"pocket, GRPO": {"1": [(6, 0.5)]}})
    assert {(each.training, each.solved) for each in outcomes.read(evolution.NAME)} == {(0, True), (1, False)}
    assert evolution.stored() == {"pocket, GRPO": {"0": [[5, 0.5]], "1": [[6, 0.5]]}}
