"""Majority vote over answers: the most frequent solutions.

An answer is read once, in a thread: tasks may run programs for that, and a hostile answer takes its time to read. The
vote itself, on the event loop, takes what was found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence

from orgthink.record.episode import Problem
from orgthink.tasks import task_of
from orgthink.tasks.math_guard import normal_form
from orgthink.tasks.task import Solution
from orgthink.util.threads import PROGRAMS, given_up, off_loop

MOST_SOLUTIONS = 256
"""Solutions of an answer that are voted on, or as many as its problem asks for: what follows them is no vote."""
MOST_ANSWERS = 1 << 14
"""Answers whose solutions are kept for votes to come: more than vote at once."""

Ballot = Mapping[Hashable, Solution]
"""What one answer votes for, by the identity of the solutions."""

_BALLOTS: dict[tuple[str, str, str, str], Ballot] = {}
"""Ballots by task, id and text of the problem, and the answer."""


def _ballot(problem: Problem, answer: str) -> Ballot:
    """The ballot of an answer, read now if it was not before."""
    key = problem.task, problem.id, problem.text, answer
    if (ballot := _BALLOTS.get(key)) is None:
        ballot = _read(problem, answer)
        if len(_BALLOTS) >= MOST_ANSWERS:
            _BALLOTS.clear()
        _BALLOTS[key] = ballot
    return ballot


def vote(problem: Problem, answers: Sequence[str]) -> str | None:
    """The n_s most frequent solutions of all answers; ties go to the first one."""
    solutions = [solution for answer in answers for solution in _ballot(problem, answer).values()]
    votes = Counter(solution.identity for solution in solutions)
    texts = {solution.identity: solution.text for solution in reversed(solutions)}
    winners = [texts[identity] for identity, _ in votes.most_common(problem.required)]
    return "\n".join(winners) if winners else None


def winner(problem: Problem, answers: Sequence[str]) -> int | None:
    """The place of the first answer that has the most frequent solution; `None` if no answer has any."""
    ballots = [_ballot(problem, answer) for answer in answers]
    votes = Counter(identity for ballot in ballots for identity in ballot).most_common(1)
    return next((place for place, ballot in enumerate(ballots) if votes[0][0] in ballot), None) if votes else None


async def prepared(problem: Problem, answer: str | None) -> str | None:
    """The answer, once a thread has read what it votes for: that must not hold up the event loop in the vote."""
    if answer is not None:
        await all_prepared(problem, [answer])
    return answer


async def all_prepared(problem: Problem, answers: Iterable[str]) -> list[str]:
    """The answers as they are, once a thread has read what they vote for."""
    found = list(answers)

    def read() -> None:
        for answer in dict.fromkeys(found):
            if given_up():
                return
            _ballot(problem, answer)

    await off_loop(PROGRAMS, read)
    return found


def _read(problem: Problem, answer: str) -> Ballot:
    """One vote of an answer for each solution in it."""
    ballot: dict[Hashable, Solution] = {}
    for solution in _solutions(problem, answer):
        ballot.setdefault(solution.identity, solution)
        if len(ballot) >= max(MOST_SOLUTIONS, problem.required):
            break
    return ballot


def _solutions(problem: Problem, answer: str) -> list[Solution]:
    """The solutions in an answer; where the problem has no task, its result as that of a question of mathematics."""
    if (task := task_of(problem)) is not None:
        return task.solutions(problem, answer)
    if not answer.strip():
        return []
    return [Solution(normal_form(answer, problem.query), answer)]
