"""Can a manager pay off? `python -m papers.paramanager_simulation [PROBLEMS]` compares the best routing, random
routing, the teacher, each member alone and searched workflows, on held-out problems (200) and without a model.

A language model is assumed to know half of the parts of general knowledge. Tokens are estimated from the text.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from functools import cache
from itertools import islice, permutations
from statistics import fmean

from orgthink.engines.scripted import ScriptedEngine
from orgthink.evaluation.grading import grade
from orgthink.measure.latency import critical_path
from orgthink.measure.orchestration import rounds
from orgthink.record.episode import Sampling
from orgthink.runtime import Backing, Limits, attempt
from orgthink.runtime.clock import run_virtual
from orgthink.runtime.organization import Organization
from orgthink.util.errors import ToolError
from papers.paramanager_members import CALENDAR, TRAINED, Managers, Workflow, result_of
from papers.paramanager_problems import KINDS, LETTERS, MIXED, UNSEEN, Mixed, Part, bank, plain
from papers.paramanager_teacher import Teacher

Value = tuple[float, ...]
"""Means over problems: solved completely, critical path, calls, rounds."""


def value(how: Organization, manager: Teacher | None, n: int, task: Mixed = MIXED, least: int = 1) -> Value:
    """The value of an organization at held-out problems of at least so many parts."""
    found = []
    for problem in islice(task.problems("test", 1), n):
        if len(problem.data["answers"]) >= least:
            backing = Backing(manager or ScriptedEngine([]), Sampling(1_000))
            one = grade(run_virtual(attempt(how, problem, backing, limits=Limits(5))), task)
            solved = one.grade is not None and one.grade.all_correct
            found.append((solved, critical_path(one), len(one.root.forks), len(rounds(one))))
    return tuple(map(fmean, zip(*found, strict=True)))


@cache
def right(member: str, part: Part) -> bool | None:
    """Whether a member's result is right; `None` if it fails."""
    try:
        return plain(asyncio.run(result_of(member, part.text, ""))) == plain(part.answer)
    except ToolError:
        return None


def searched(most_calls: float, each: int = 40) -> tuple[str, ...]:
    """The fixed order of members that solves most training problems, with at most so many calls for a part."""
    sample = [part for kind in KINDS for part in random.Random(kind).sample(bank(kind, "train"), each)]

    def score(order: tuple[str, ...]) -> tuple[float, float]:
        ends = [next((i for i, one in enumerate(order) if right(one, part) is not None), -1) for part in sample]
        share = fmean(right(order[end], part) or False for end, part in zip(ends, sample, strict=True))
        calls = fmean(end % len(order) + 1 for end in ends)
        return (fmean(share**n for n in range(1, len(LETTERS) + 1)) if calls <= most_calls else -1.0, -calls)

    return max((order for n in range(1, len(TRAINED) + 1) for order in permutations(TRAINED, n)), key=score)


def table(n: int) -> dict[str, Value]:
    """Policy → its value at n problems."""
    manager, serial, team = Managers(), Managers(calls=1, rounds=14), Managers(members=(*TRAINED, CALENDAR))
    best, one, chance = Teacher(1, ("all",)), Teacher(1, ("one",)), Teacher(0, ("all",), 0.0)
    orders = {"as many calls": searched(1.1), "any number of calls": searched(9.0)}
    return {
        "best manager": value(manager, best, n),
        "best manager, serial": value(serial, one, n),
        "best manager, 3 and 4 parts": value(manager, best, n, least=3),
        "best manager, serial, 3 and 4 parts": value(serial, one, n, least=3),
        "teacher": value(manager, Teacher(0.3), n),
        "its habit: the first of the list": value(manager, Teacher(0, ("all",), 1.0), n),
        "random routing": value(manager, chance, n),
        "with dates: best, without the calendar": value(manager, best, n, UNSEEN),
        "with dates: best": value(team, best, n, UNSEEN),
        "with dates: best, but the calendar by chance": value(team, Teacher(1, ("all",), 0.0, (CALENDAR,)), n, UNSEEN),
        **{f"{name} alone": value(Workflow((name,)), None, n) for name in TRAINED},
        **{
            f"workflow, {label}: {', '.join(order)}": value(Workflow(order), None, n) for label, order in orders.items()
        },
    }


def main(n: int) -> None:
    """Print the table."""
    print("| policy | solved, % | critical path | calls | rounds |\n|---|--:|--:|--:|--:|")
    for label, (solved, path, calls, waits) in table(n).items():
        print(f"| {label} | {100 * solved:.0f} | {path:.0f} | {calls:.1f} | {waits:.1f} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problems", nargs="?", type=int, default=200)
    main(parser.parse_args().problems)
