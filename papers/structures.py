"""Can organization pay off? `python -m papers.structures` compares the shortest of 60 random structures with the
shortest sequential scan, for 60 held-out problems of each task. It needs SmolLM2's tokenizer (`orgthink models fetch
smollm2`) and runs no model.
"""

from __future__ import annotations

import random
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from math import inf
from statistics import fmean

from orgthink.measure.latency import critical_path
from orgthink.measure.usage import sampled_tokens
from orgthink.models.hub import fetched
from orgthink.models.tokenizer import Tokenizer
from orgthink.record.episode import Problem
from orgthink.tasks import task_named
from orgthink.training.coldstart.lesson import lesson
from papers.asyncthink_variants import teacher

COUNTDOWNS = ("countdown-small", "countdown-all")
CAPACITY = 4


@dataclass(frozen=True, order=True, slots=True)
class Cost:
    """What a right trace costs."""

    path: int
    tokens: int
    forks: int


def costs(task: str, problem: Problem, structures: int, count: Callable[[str], int]) -> Iterator[Cost]:
    """The costs of random structures that leave nothing out, whatever the length of their segments."""
    write, rng = replace(teacher(task), segment=inf, omitted=0.0).write, random.Random(problem.id)
    for _ in range(structures):
        root, *workers = (trace.text for trace in write(problem, CAPACITY, rng))
        episode = lesson(problem, CAPACITY, "paper", root, workers, "program", count)
        yield Cost(critical_path(episode), sampled_tokens(episode), len(workers))


def shortest(
    task: str, problems: int, structures: int, count: Callable[[str], int]
) -> dict[tuple[int, int], list[tuple[Cost, Cost]]]:
    """Numbers and solutions of a problem → its shortest sequential scan and its shortest structure of all."""
    found: dict[tuple[int, int], list[tuple[Cost, Cost]]] = defaultdict(list)
    for problem in islice(task_named(task).problems("test", 1), problems):
        tried = list(costs(task, problem, structures, count))
        pair = min(cost for cost in tried if cost.forks == 0), min(tried)
        found[len(problem.data["numbers"]), problem.required].append(pair)
    return dict(sorted(found.items()))


def row(pairs: list[tuple[Cost, Cost]]) -> str:
    """Means over problems, in Markdown."""
    sequential, best = fmean(one.path for one, _ in pairs), fmean(one.path for _, one in pairs)
    tokens, forked = fmean(one.tokens for _, one in pairs), fmean(one.forks for _, one in pairs)
    return f"{len(pairs)} | {sequential:.0f} | {best:.0f} | {best / sequential:.2f} | {forked:.1f} | {tokens:.0f} |"


def main() -> None:
    """Print a table for each task."""
    tokenizer = Tokenizer(
        fetched("smollm2") or sys.exit("SmolLM2 is not on this machine: orgthink models fetch smollm2")
    )
    for task in COUNTDOWNS:
        found = shortest(task, 60, 60, cache(lambda text: len(tokenizer.encode(text))))
        by_size = defaultdict(list)
        for (numbers, _), pairs in found.items():
            by_size[numbers] += pairs
        print(f"\n{task}\n\n| numbers | solutions | problems | sequential | best | ratio | its forks | its tokens |")
        print("|--:|--:|--:|--:|--:|--:|--:|--:|")
        for numbers, all_of_size in by_size.items():
            for required in (one[1] for one in found if one[0] == numbers):
                print(f"| {numbers} | {required} | {row(found[numbers, required])}")
            print(f"| {numbers} | all | {row(all_of_size)}")


if __name__ == "__main__":
    main()
