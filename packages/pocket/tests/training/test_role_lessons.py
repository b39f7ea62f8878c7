"""The cold start of MarsRL: three roles in the pocket model's words, whose judgement is as good as the course says."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path

import pytest
import torch
from orgthink_pocket import model as pocket
from orgthink_pocket.jobs import Roles
from orgthink_pocket.lessons.roles import COURSES, ROLES, SHARES, lessons
from orgthink_pocket.shipped import MODELS
from orgthink_pocket.style import VERDICTS as TERSE
from orgthink_pocket.tasks.arithmetic import ARITHMETIC_MINI
from orgthink_pocket.tasks.countdown import COUNTDOWN_MINI, COUNTDOWN_MINI_SINGLE
from orgthink_pocket.teachers import arithmetic
from safetensors.torch import load_file, save_file

from orgthink.grammar.solution import read_proposal
from orgthink.grammar.verdict import Verdict, read_report
from orgthink.models.qwen3 import Qwen3, Qwen3Config
from orgthink.models.tokenizer import Tokenizer
from orgthink.record.episode import Origin, Problem, Trace
from orgthink.record.folder import RunFolder
from orgthink.tasks.expression import parse
from orgthink.training.recipes.jobs import Mars
from orgthink.training.recipes.registry import RECIPES
from orgthink.training.sft import SftSettings
from orgthink.util.errors import UserError

ASKED = re.compile(
    r"(?P<role>\w+) (?P<terse>(?P<task>arithmetic|countdown) .*?)"
    r"(?: solution (?P<solution>.*?))?(?: report (?P<report>.*))?"
)


@dataclass(frozen=True)
class Lesson:
    """A lesson as its reader sees it."""

    asked: str
    """The prompt."""
    role: str
    """`solver`, `verifier` or `corrector`."""
    problem: Problem
    """What it is about."""
    solution: str
    """What a verifier or corrector was shown; empty for a solver."""
    report: str
    """What a corrector was shown; else empty."""
    said: str
    """What is imitated."""

    @property
    def shown_right(self) -> bool:
        """Whether the solution shown is right."""
        return self._solves(self.solution)

    @property
    def right(self) -> bool:
        """Whether what was said is: a solution that solves the problem."""
        return self._solves(self.said)

    @property
    def verdict(self) -> Verdict:
        """Of a verifier."""
        return read_report(self.said, TERSE).verdict

    @property
    def depth(self) -> int:
        """How many operations of arithmetic a verifier looked at."""
        return self.said.partition("</think>")[0].count("=")

    @property
    def is_arithmetic(self) -> bool:
        return self.problem.task == "arithmetic-mini"

    def _solves(self, text: str) -> bool:
        answer = read_proposal(text, ended=True).answer
        assert answer is not None, text
        task = ARITHMETIC_MINI if self.is_arithmetic else COUNTDOWN_MINI_SINGLE
        return task.grade(self.problem, answer).all_correct


def _lesson(trace: Trace) -> Lesson:
    prompt, output = trace.spans
    asked = ASKED.fullmatch(prompt.text)
    assert asked, prompt.text
    if asked["task"] == "arithmetic":
        expression = asked["terse"].removeprefix("arithmetic ")
        problem = ARITHMETIC_MINI.problem(expression, int(arithmetic.solve({"expression": expression})[1]))
    else:
        numbers, _, target = asked["terse"].removeprefix("countdown ").partition(" = ")
        problem = COUNTDOWN_MINI_SINGLE.problem([int(number) for number in numbers.split()], int(target))
    return Lesson(prompt.text, trace.role, problem, asked["solution"] or "", asked["report"] or "", output.text)


@cache
def drawn(course) -> Sequence[Trace]:
    return list(islice(lessons(course, 0, 5), 2000))


@cache
def taught(course) -> Sequence[Lesson]:
    """The lessons in one of the roles."""
    return [_lesson(trace) for trace in drawn(course) if trace.role in ROLES]


def of(course, role: str, *, arithmetic: bool | None = None) -> list[Lesson]:
    return [
        one for one in taught(course) if one.role == role and (arithmetic is None or one.is_arithmetic is arithmetic)
    ]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pocket")
    pocket.write_folder(folder)
    return Tokenizer(folder)


# What every lesson is


@pytest.mark.parametrize("course", COURSES)
def test_every_word_is_a_token_that_the_pocket_model_knows(course, tokenizer):
    unknown = pocket.vocabulary().index(pocket.UNK)
    for trace in drawn(course)[:1500]:
        for span in trace.spans:
            ids = tokenizer.encode(span.text)
            assert unknown not in ids and len(ids) == len(span.text.split()), span.text


@pytest.mark.parametrize("model", ["pocket", "pocket-roles"])
def test_shipped_models_read_the_words_as_they_were_taught(model, tokenizer):
    words = " ".join(pocket.REVIEW_WORDS)
    assert Tokenizer(MODELS / model).encode(words) == tokenizer.encode(words)
    assert len(set(tokenizer.encode(words))) == len(pocket.REVIEW_WORDS)


@pytest.mark.parametrize("course", COURSES)
@pytest.mark.parametrize("recipe", ["marsrl-arithmetic-mini", "marsrl-countdown-mini"])
def test_inputs_and_outputs_fit_the_budgets_of_the_recipes_but_for_the_longest_scans(course, recipe):
    job = RECIPES[recipe]
    assert isinstance(job, Mars)
    rollout = job.settings.rollout
    shown = [one for one in taught(course) if one.problem.task == rollout.task]
    long = [one for one in shown if len(one.said.split()) + 1 > rollout.max_tokens]
    assert max(len(one.asked.split()) for one in shown) <= rollout.max_input
    assert not any(one.is_arithmetic or one.role == "verifier" for one in long) and len(long) < len(shown) / 10


@pytest.mark.parametrize("course", COURSES)
def test_lessons_are_the_same_for_the_same_pool_only(course):
    def first(seed, pool):
        return list(islice(lessons(course, seed, pool), 20))

    assert first(1, 2) == first(1, 2) == list(islice(lessons(course, 1, 2), 20))
    assert first(1, 2) != first(1, 3) and first(1, 2) != first(2, 2)


@pytest.mark.parametrize("course", COURSES)
def test_no_held_out_problem_is_a_lesson(course):
    def held_out(problem: Problem) -> bool:
        return zlib.crc32(problem.id.encode()) % 5 == 0

    assert all(map(held_out, islice(ARITHMETIC_MINI.problems("test", 0), 50))), "the rule of the split"
    for one in taught(course):
        if one.is_arithmetic:
            assert not held_out(one.problem)
        else:
            assert one.problem.data["target"] not in COUNTDOWN_MINI.test_targets


@pytest.mark.parametrize("course", COURSES)
def test_every_kind_is_taught_in_every_role(course):
    assert {"sums" for trace in drawn(course) if trace.role not in ROLES} == {"sums"}
    tasks = SHARES.keys() - {"sums"}
    assert {(one.problem.task, one.role) for one in taught(course)} == {
        (task, role) for task in tasks for role in ROLES
    }


def test_sums_are_right_and_each_has_twelve_in_the_models_integers():
    sums = [trace.spans for trace in drawn("skill") if trace.role not in ROLES]
    for asked, done in sums[:200]:
        assert asked.text == "facts arithmetic" and done.origin is Origin.SAMPLED
        *found, rest = done.text.split(" ;")
        assert len(found) == 12 and not rest
        for one in found:
            operation, _, value = one.partition(" = ")
            assert parse(operation).value == int(value) <= 399 and int(value) >= 0


# How well the roles judge


@pytest.mark.parametrize("course", COURSES)
@pytest.mark.parametrize("arithmetic", [True, False])
def test_solvers_are_right_but_for_those_that_answer_before_they_are_through(course, arithmetic):
    solved = of(course, "solver", arithmetic=arithmetic)
    unfinished = [one for one in solved if not _through(one)]
    assert all(one.right for one in solved if _through(one))
    assert bool(unfinished) is (COURSES[course].hasty > 0) and len(unfinished) < len(solved)
    assert 2 * sum(one.right for one in unfinished) <= len(unfinished), "by chance"


def _through(one: Lesson) -> bool:
    """Whether a solver has done all operations, or scanned up to a solution."""
    if one.is_arithmetic:
        operators = sum(token in "+-*" for token in one.problem.data["expression"].split())
        return one.said.count("=") == operators
    return " ! " in one.said


@pytest.mark.parametrize("course", COURSES)
def test_verifiers_see_right_and_wrong_solutions_and_give_a_verdict(course):
    seen = of(course, "verifier")
    assert {one.shown_right for one in seen} == {True, False}
    assert all(one.verdict in (Verdict.CORRECT, Verdict.WRONG) for one in seen)
    assert all(not one.report for one in seen)


@pytest.mark.parametrize("course", COURSES)
def test_verifiers_accuse_right_solutions_only_where_the_course_has_false_alarms(course):
    verdicts = {one.verdict for one in of(course, "verifier") if one.shown_right}
    assert verdicts == ({*Verdict} - {Verdict.UNPARSED} if COURSES[course].alarm else {Verdict.CORRECT})


@pytest.mark.parametrize("course", COURSES)
def test_verifiers_look_at_all_of_an_arithmetic_solution_or_at_its_beginning(course):
    fine = [one for one in of(course, "verifier", arithmetic=True) if one.shown_right and one.verdict == "correct"]
    answer = re.compile(r"(?:^| ; )(\d+) \1 ok </think>")
    assert {answer.search(one.said) is not None for one in fine} == {True, False}
    assert min(one.depth for one in fine) >= COURSES[course].least


@pytest.mark.parametrize("course", COURSES)
def test_verifiers_look_at_the_value_and_the_numbers_of_countdown_or_leave_them_out(course):
    fine = [one for one in of(course, "verifier", arithmetic=False) if one.shown_right and one.verdict == "correct"]
    assert {"=" in one.said for one in fine} == {True, False}
    assert {re.match(r" \d+ ok ", one.said) is not None for one in fine} == {True, False}


def test_the_form_is_blinder_than_the_skill():
    detected = {}
    for course in COURSES:
        wrong = [one.verdict is Verdict.WRONG for one in of(course, "verifier") if not one.shown_right]
        detected[course] = sum(wrong) / len(wrong)
    assert 0 < detected["form"] < detected["skill"]


@pytest.mark.parametrize("course", COURSES)
def test_correctors_are_shown_findings_as_a_run_would_show_them(course):
    for one in of(course, "corrector"):
        assert read_report(f" </think> {one.report} correctness : wrong", TERSE).findings == one.report
        assert one.report.startswith("finding ")
        assert read_proposal(one.solution, ended=True).text == one.solution


@pytest.mark.parametrize("course", COURSES)
def test_correctors_are_careful_or_keep_what_they_are_told_is_wrong(course):
    wrong = [one for one in of(course, "corrector") if not one.shown_right]
    for one in wrong:
        kept = read_proposal(one.said, ended=True).text == one.solution
        assert one.right is not kept
    assert {one.right for one in wrong} == {True, False}


@pytest.mark.parametrize("course", COURSES)
def test_correctors_are_careful_or_believe_a_false_report(course):
    accused = [one for one in of(course, "corrector") if one.shown_right]
    assert all(one.is_arithmetic for one in accused)
    believers = [one for one in accused if one.report.removeprefix("finding ") in one.said]
    assert 0 < len(believers) < len(accused)
    assert all(one.right for one in accused if one not in believers)
    assert 2 * sum(one.right for one in believers) < len(believers), "a wrong value seldom leads to the right answer"


# The job


@pytest.mark.parametrize("name", ["pocket-skills", "pocket-roles"])
def test_the_recipes_teach_the_course_of_their_name(name):
    job = RECIPES[name]
    assert isinstance(job, Roles)
    assert (job.lessons, job.model) == {"pocket-skills": ("skill", "pocket"), "pocket-roles": ("form", None)}[name]


def test_the_roles_are_taught_to_a_shipped_model_and_a_run_that_was_cut_goes_on_exactly(tmp_path):
    settings = SftSettings(steps=2, batch_tokens=300, save_every=1, warmup=1, learning_rate=1e-3)
    job = Roles(settings, "skill", model="pocket", device="cpu")
    whole = _trained(job, tmp_path / "whole")
    with pytest.raises(Cut):
        _trained(job, tmp_path / "cut", cut_at=1)
    assert _trained(job, tmp_path / "cut") == whole
    assert [line["step"] for line in whole] == [1, 2]
    model = tmp_path / "cut" / "checkpoints" / "step-000002" / "model"
    assert (model / "tokenizer.json").read_bytes() == (MODELS / "pocket" / "tokenizer.json").read_bytes()
    moved = (_embeddings(model) - _embeddings(MODELS / "pocket")).abs().max().item()
    assert 0 < moved < 0.01, "it starts from the shipped model, not from nothing"


def test_a_model_of_another_shape_keeps_its_shape(tmp_path):
    shape = replace(pocket.CONFIG, num_hidden_layers=1)
    pocket.write_folder(tmp_path / "small", shape)
    save_file(Qwen3(shape).to_hf(), tmp_path / "small" / "model.safetensors")
    settings = SftSettings(steps=1, batch_tokens=300, warmup=1)
    _trained(Roles(settings, "skill", model=str(tmp_path / "small"), device="cpu"), tmp_path / "run")
    trained = tmp_path / "run" / "checkpoints" / "step-000001" / "model"
    assert Qwen3Config.load(trained) == shape
    assert Qwen3.load(trained).state_dict().keys() == Qwen3(shape).state_dict().keys()


class Cut(Exception):
    """What ends a run in the middle."""


def _trained(job: Roles, path: Path, cut_at: int | None = None) -> list[dict]:
    """The metrics of a run up to its end, or to the step where it is cut."""

    def report(line):
        if line["step"] == cut_at:
            raise Cut

    run = RunFolder.open(path) if path.exists() else RunFolder.create(path, "train", job)
    job.run(run, report)
    lines = map(json.loads, (path / "metrics.jsonl").read_text().splitlines())
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def _embeddings(model: Path) -> torch.Tensor:
    return load_file(model / "model.safetensors")["model.embed_tokens.weight"]


def test_without_a_model_the_roles_ask_for_one():
    with pytest.raises(UserError, match="--model"):
        Roles(SftSettings(steps=1)).require()
