"""Majority vote over answers: the most frequent solutions.

An answer is read once, in a thread: tasks may run programs for that, and a hostile answer takes its time to read. The
vote itself, on the event loop, takes what was found.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterable, Mapping, Sequence

from orgthink.concurrency import given_up, in_thread
from orgthink.episode import Problem
from orgthink.tasks import task_of
from orgthink.tasks.math_answer import canonical, final
from orgthink.tasks.task import Solution

MOST_SOLUTIONS = 256
"""Solutions of an answer that are voted on, or as many as its problem asks for: what follows them is no vote."""
MOST_KEPT = 1 << 26
"""Characters of answers, and of the solutions in them, that are kept for votes to come."""

Ballot = Mapping[Hashable, str]
"""What one answer votes for: solution → how it is written."""


class _Ballots:
    """Those of the latest answers, until they are too long together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[int, str], tuple[Problem, Ballot]] = OrderedDict()
        self._characters = 0

    def __getitem__(self, place: tuple[Problem, str]) -> Ballot:
        """The ballot of an answer to a problem, read now if it was not before."""
        problem, answer = place
        key = id(problem), answer  # the problem is kept, so that no other gets its id
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key][1]
        ballot = _read(problem, answer)
        with self._lock:
            if key not in self._kept:
                self._kept[key] = problem, ballot
                self._characters += _characters(answer, ballot)
            while self._characters > MOST_KEPT:
                (_, old), (_, gone) = self._kept.popitem(last=False)
                self._characters -= _characters(old, gone)
        return ballot


def _characters(answer: str, ballot: Ballot) -> int:
    return len(answer) + sum(map(len, ballot.values())) + 1


_BALLOTS = _Ballots()


def vote(problem: Problem, answers: Sequence[str]) -> str | None:
    """The n_s most frequent solutions of all answers; ties go to the first one."""
    votes: Counter[Hashable] = Counter()
    texts: dict[Hashable, str] = {}
    for answer in answers:
        ballot = _BALLOTS[problem, answer]
        votes.update(ballot.keys())
        for identity, text in ballot.items():
            texts.setdefault(identity, text)
    winners = [texts[identity] for identity, _ in votes.most_common(problem.required)]
    return "\n".join(winners) if winners else None


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
            _BALLOTS[problem, answer]

    await in_thread(read)
    return found


def _read(problem: Problem, answer: str) -> Ballot:
    """One vote of an answer for each solution in it."""
    ballot: dict[Hashable, str] = {}
    for solution in _solutions(problem, answer):
        ballot.setdefault(solution.identity, solution.text)
        if len(ballot) >= max(MOST_SOLUTIONS, problem.required):
            break
    return ballot


def _solutions(problem: Problem, answer: str) -> list[Solution]:
    """The solutions in an answer; where the problem has no task, its result as that of a question of mathematics."""
    task = task_of(problem)
    return [Solution(canonical(final(answer)), answer)] if task is None else task.solutions(problem, answer)
