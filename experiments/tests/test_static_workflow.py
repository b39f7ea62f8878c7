"""The static workflow of the arena: its programs check what members offer, and nothing else."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from itertools import permutations
from pathlib import Path

import pytest
from orgthink_pocket.searches import EVOFLOW, META_AGENT_SEARCH, WORKFLOW
from rule_engine import RuleEngine

from orgthink.episode import Episode, Sampling
from orgthink.evaluation import OrganizationSpec
from orgthink.grading import grade
from orgthink.organizations.workflow_json import read_graph
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.tasks import task_named

FILE = Path(__file__).parents[1] / "arena" / "static_workflow.json"
asked_for: Counter[str] = Counter()


def solution(numbers: list[int], target: int) -> str:
    """An expression of three numbers, or a wrong one."""
    for a, b, c in permutations(numbers, 3):
        found = {f"( {a} {x} {b} ) {y} {c}" for x in "+-*" for y in "+-*"}
        for text in sorted(found):
            if eval(text) == target:
                return text
    return "( 1 + 1 ) + 1"


def offers(text: str) -> str:
    """Offers that are wrong in the value or take a number twice, and then a right one."""
    *numbers, target = map(int, re.findall(r"\d+", text))
    asked_for[text] += 1
    twice = f"{target} + {numbers[0]} - {numbers[0]}"
    wrong = ("none", f"( {numbers[0]} + {numbers[1]} ) + 99 ; {twice} ; __import__('os')")
    offered = wrong[asked_for[text] - 1] if asked_for[text] <= 2 else f"1 + 1 ; {solution(numbers, target)}"
    return f"thinking <ANSWER> {offered} </ANSWER>"


def solved(task: str, seed: int) -> tuple[Episode, RuleEngine]:
    engine = RuleEngine(offers)
    workflow = OrganizationSpec("workflow", {**WORKFLOW, "graph": str(FILE)}).named("static-workflow")
    problems = (p for p in task_named(task).problems("train", seed))
    problem = next(p for p in problems if "parts" not in p.data or all(map(solvable, p.data["parts"])))
    backing = Backing(engine, Sampling(100))
    episode = asyncio.run(attempt(workflow, problem, backing, limits=Limits(9)))
    return grade(episode, task_named(task)), engine


def solvable(part: dict) -> bool:
    return solution(part["numbers"], part["target"]) != "( 1 + 1 ) + 1"


@pytest.mark.parametrize(
    ("task", "requests"),
    [("arithmetic-mini", 0), ("ledger-mini", 0), ("countdown-mini-four", 12)],
)
def test_every_kind_of_problem_is_solved(task: str, requests: int):
    asked_for.clear()
    episode, engine = solved(task, 3)
    assert episode.grade is not None and episode.grade.all_correct, episode.answer
    assert engine.requests == requests, "two wrong offers of each part, and a right one"


def test_offers_that_are_never_right_end_in_a_vote_of_nobody(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(globals(), "solution", lambda numbers, target: "( 1 + 1 ) + 1")
    monkeypatch.setitem(globals(), "solvable", lambda part: True)
    episode, engine = solved("countdown-mini-single", 0)
    assert episode.grade is not None and not episode.grade.all_correct
    assert engine.requests == 8, "four rounds of each member"


@pytest.mark.parametrize("job", [META_AGENT_SEARCH, EVOFLOW], ids=["meta-agent-search", "evoflow"])
def test_the_recipes_begin_with_workflows_that_run(job):
    job.require()
    assert len(job.settings.graphs) == 7 and job.settings.space.tasks[0] == "arithmetic-mini"
    assert read_graph(str(FILE)).calls <= 512
