"""Some tasks run programs to know the solutions in an answer, and a hostile answer takes long to read: no vote may do
that on the event loop."""

from __future__ import annotations

import gc
import itertools
import threading
from typing import Any

import pytest
from managed import ask, reply
from orgthink_arena.organizations.best_of_n import BestOfN
from orgthink_arena.organizations.pacore import Pacore
from orgthink_arena.organizations.puppeteer import Puppeteer
from orgthink_arena.organizations.router import Router
from orgthink_arena.organizations.tool_orchestra import ToolOrchestra
from orgthink_arena.organizations.workflow import Workflow
from orgthink_arena.organizations.workflow_json import read_graph
from registered import register
from rule_engine import RuleEngine
from terse import TERSE

from orgthink.organizations.verifier_corrector import VerifierCorrector
from orgthink.organizations.votes import Parallel
from orgthink.record.episode import Grade, Problem, Sampling
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.organization import Organization
from orgthink.tasks import TASKS
from orgthink.tasks import vote as voting
from orgthink.tasks.math_guard import normal_form
from orgthink.tasks.task import Solution

BALLOT = {
    "nodes": {
        "draft": {"kind": "agent", "prompt": "draft", "samples": 3},
        "ballot": {"kind": "vote", "of": ["draft"]},
    },
    "output": "ballot",
}
ORGANIZATIONS = [
    Parallel(TERSE),
    Router(TERSE, samples=3),
    BestOfN(TERSE, samples=3),
    Pacore(TERSE, widths=(3, 1)),
    Puppeteer(TERSE, tools=("standard_reasoner",), steps=3, temperature=0.0),
    ToolOrchestra(TERSE, rounds=3, tools=("standard_reasoner",)),
    VerifierCorrector(TERSE, rounds=3, passes=1),
    Workflow(TERSE, graph=read_graph(BALLOT)),
]


class Slow:
    """A task that keeps the solutions in an answer, and where they were found."""

    name = "slow"

    def __init__(self) -> None:
        self.found_in: list[tuple[str, int]] = []

    def solutions(self, problem: Problem, answer: str) -> list[Solution]:
        self.found_in.append((answer, threading.get_ident()))
        return [Solution(answer, answer)]

    def grade(self, problem: Problem, answer: str) -> Grade:
        return Grade(1, 1)

    def problems(self, split: str, n: int, seed: int = 0) -> list[Problem]:
        return []


def rule(numbers: Any, text: str) -> str:
    """A new answer each time; an orchestrator asks for one, a verifier is never content."""
    role = text.split(maxsplit=1)[0]
    if text.startswith("orchestrator left"):
        return reply(ask()).says
    return "correctness : wrong" if role == "verifier" else f"so <ANSWER> {next(numbers)} </ANSWER>"


@pytest.mark.parametrize("named", ["slow", ""], ids=["a task", "no task"])
@pytest.mark.parametrize("organization", ORGANIZATIONS, ids=lambda organization: organization.name)
async def test_the_solutions_of_a_vote_are_found_beside_the_event_loop(
    organization: Organization, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, numbers = Slow(), itertools.count()
    register(monkeypatch, TASKS, slow=task)

    def read(text: str, question: str = "") -> Any:
        task.found_in.append((text, threading.get_ident()))
        return normal_form(text, question)

    monkeypatch.setattr(voting, "normal_form", read)
    engine = RuleEngine(lambda text: rule(numbers, text))
    backing = Backing(engine, Sampling(50))
    episode = await attempt(organization, Problem("p", named, "sum 3 + 4"), backing, limits=Limits(capacity=3))
    assert episode.error is None and episode.answer is not None
    answers = [answer for answer, _ in task.found_in]
    assert len(answers) >= 2, "there was something to vote on"
    assert len(answers) == len(set(answers)), "an answer is read once"
    assert threading.get_ident() not in {place for _, place in task.found_in}


async def test_an_answer_of_more_solutions_than_any_problem_asks_for_has_as_many_votes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Many(Slow):
        def solutions(self, problem: Problem, answer: str) -> list[Solution]:
            return [Solution(i, str(i)) for i in range(int(answer))]

    register(monkeypatch, TASKS, slow=Many())
    problem = Problem("p", "slow", "q", required=10_000)
    assert len((voting.vote(problem, ["20000"]) or "").splitlines()) == problem.required
    few = Problem("p", "slow", "q")
    await voting.all_prepared(few, ["20000", "300"])
    assert set(voting._ballot(few, "20000")) == set(range(voting.MOST_SOLUTIONS))


def test_what_is_kept_for_votes_is_bounded_and_goes_with_the_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(voting, "MOST_ANSWERS", 10)
    problem = Problem("p", "", "q")
    answers = [str(i) for i in range(100)]
    assert [list(voting._ballot(problem, answer).values()) for answer in answers] == [
        [Solution(i, str(i))] for i in range(100)
    ]
    assert list(voting._BALLOTS[id(problem)]) == answers[-10:]
    assert voting._ballot(problem, "0") == {0: Solution(0, "0")}
    place = id(problem)
    del problem
    gc.collect()
    assert place not in voting._BALLOTS
