"""Majority vote over answers: the most frequent solutions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

from orgthink.concurrency import in_thread
from orgthink.episode import Problem
from orgthink.tasks import task_of
from orgthink.tasks.math_answer import canonical, final
from orgthink.tasks.task import Solution


def vote(problem: Problem, answers: Sequence[str]) -> str | None:
    """The n_s most frequent solutions of all answers; ties go to the first one."""
    votes: Counter[Hashable] = Counter()
    texts: dict[Hashable, str] = {}
    for answer in answers:
        offered: dict[Hashable, str] = {}  # one vote of each answer for a solution
        for solution in _solutions(problem, answer):
            offered.setdefault(solution.identity, solution.text)
        votes.update(offered.keys())
        texts = offered | texts
    winners = [texts[identity] for identity, _ in votes.most_common(problem.required)]
    return "\n".join(winners) if winners else None


async def prepared(problem: Problem, answer: str | None) -> str | None:
    """The answer, once its task knows the solutions in it: some run programs for that, which must not hold up the event
    loop in the vote."""
    if answer is not None and task_of(problem) is not None:
        await in_thread(_solutions, problem, answer)
    return answer


async def all_prepared(problem: Problem, answers: Iterable[str]) -> list[str]:
    """The answers as they are, once their task knows the solutions in them."""
    found = list(answers)
    for answer in found:
        await prepared(problem, answer)
    return found


def _solutions(problem: Problem, answer: str) -> list[Solution]:
    """The solutions in an answer; where the problem has no task, its result as that of a question of mathematics."""
    task = task_of(problem)
    return [Solution(canonical(final(answer)), answer)] if task is None else task.solutions(problem, answer)
