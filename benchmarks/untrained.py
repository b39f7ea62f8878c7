"""Do models that were never trained to organize fork, join and answer? `python -m benchmarks.untrained FOLDER`.

Eleven tasks whose problems have several independent parts. The prompts were designed on the first eight; the last three
were only measured. Each system gets the same problems: AsyncThink with the style `paper` and with `demonstrated`, one
thinker, and a vote of three.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

import tyro

from orgthink.engines.local.engine import LocalEngine
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.organizations.sequential import Sequential
from orgthink.organizations.votes import MajorityVote
from orgthink.record.episode import Episode, Grade, Origin, Problem, Sampling
from orgthink.runtime import Backing, Limits, attempt
from orgthink.runtime.organization import Organization
from orgthink.tasks import task_named
from orgthink.tasks.task import Solution, Split, Task

TOKENS, CAPACITY, TEMPERATURE, SEED, SLOTS = 200, 5, 0.5, 1, 128

SYSTEMS: dict[str, Organization] = {
    "paper": AsyncThink(prompts="paper", tolerant=True),
    "demonstrated": AsyncThink(prompts="demonstrated", tolerant=True),
    "one thinker, paper": Sequential(prompts="paper"),
    "one thinker": Sequential(prompts="demonstrated"),
    "vote of 3": MajorityVote(prompts="demonstrated", samples=3),
}


def _trees(rng: random.Random) -> tuple[str, int]:
    a, b, c, d = (rng.randint(6, 24) for _ in range(4))
    return f"A garden has {a} rows of {b} trees and {c} rows of {d} trees. How many trees are there?", a * b + c * d


def _shopping(rng: random.Random) -> tuple[str, int]:
    counts, prices = rng.sample(range(3, 15), 3), rng.sample(range(4, 30), 3)
    bought = [f"{n} {what} at {price} dollars each" for n, what, price in zip(counts, _GOODS, prices, strict=True)]
    total = sum(n * price for n, price in zip(counts, prices, strict=True))
    return f"Ann buys {bought[0]}, {bought[1]} and {bought[2]}. How many dollars does she pay?", total


_GOODS = ("chairs", "lamps", "plates")


def _difference(rng: random.Random) -> tuple[str, int]:
    a, b, c, d = (rng.randint(11, 29) for _ in range(4))
    facts = f"Tom reads {a} pages a day for {b} days. Eva reads {c} pages a day for {d} days."
    return f"{facts} How many more pages does one of them read?", abs(a * b - c * d)


def _largest(rng: random.Random) -> tuple[str, int]:
    pairs = [(rng.randint(11, 29), rng.randint(6, 19)) for _ in range(3)]
    sizes = ", ".join(f"{a} by {b} meters" for a, b in pairs)
    return f"Three fields measure {sizes}. What is the area of the largest field in square meters?", max(
        a * b for a, b in pairs
    )


def _rolls(rng: random.Random) -> tuple[str, int]:
    a, b, c, d = rng.randint(12, 24), rng.randint(12, 18), rng.randint(4, 12), rng.randint(4, 12)
    facts = f"A baker makes {a} trays of {b} rolls and sells {c} bags of {d} rolls."
    return f"{facts} How many rolls are left?", a * b - c * d


def _wages(rng: random.Random) -> tuple[str, int]:
    hours, pay = rng.sample(range(5, 20), 3), rng.sample(range(11, 30), 3)
    earned = [f"{who} works {n} hours for {m} dollars an hour" for who, n, m in zip(_PEOPLE, hours, pay, strict=True)]
    total = sum(n * m for n, m in zip(hours, pay, strict=True))
    return f"{earned[0]}, {earned[1]} and {earned[2]}. How many dollars do they earn together?", total


_PEOPLE = ("Bo", "Kim", "Lee")


def _trip(rng: random.Random) -> tuple[str, int]:
    hours, speeds = [rng.randint(2, 9) for _ in range(3)], rng.sample(range(31, 79), 3)
    legs = [f"{n} hours at {speed} kilometers an hour" for n, speed in zip(hours, speeds, strict=True)]
    far = sum(n * speed for n, speed in zip(hours, speeds, strict=True))
    return f"A car drives {legs[0]}, then {legs[1]}, then {legs[2]}. How many kilometers does it drive?", far


def _tiles(rng: random.Random) -> tuple[str, int]:
    rooms = [(rng.randint(5, 19), rng.randint(5, 19)) for _ in range(3)]
    sizes = [f"{a} rows of {b} tiles" for a, b in rooms]
    facts = f"The kitchen has {sizes[0]}, the hall has {sizes[1]}, and the bath has {sizes[2]}."
    return f"{facts} How many tiles are there?", sum(a * b for a, b in rooms)


def _savings(rng: random.Random) -> tuple[str, int]:
    a, b, c, d = rng.randint(11, 29), rng.randint(5, 15), rng.randint(11, 29), rng.randint(5, 15)
    facts = f"Mia saves {a} dollars a week for {b} weeks. Her brother saves {c} dollars a week for {d} weeks."
    return f"{facts} How many dollars do they have together?", a * b + c * d


def _eggs(rng: random.Random) -> tuple[str, int]:
    a, b, c, d = rng.randint(15, 30), rng.randint(10, 15), rng.randint(3, 9), rng.randint(6, 12)
    facts = f"A farm has {a} boxes of {b} eggs. It sells {c} boxes of {d} eggs."
    return f"{facts} How many eggs does it still have?", a * b - c * d


class Words(Task):
    """Word problems from a function; the answer is right if its last number is."""

    def __init__(self, name: str, make: Callable[[random.Random], tuple[str, int]]) -> None:
        self.name, self._make = f"benchmarks.untrained:{name}", make

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        rng = random.Random(f"{self.name} {split} {seed}")
        while True:
            text, answer = self._make(rng)
            yield Problem(f"{self.name}/{rng.getrandbits(40)}", self.name, text, data={"answer": answer})

    def grade(self, problem: Problem, answer: str) -> Grade:
        found = re.findall(r"-?\d+", answer.replace(",", ""))
        return Grade(int(bool(found) and int(found[-1]) == problem.data["answer"]), 1)

    def solutions(self, problem: Problem, answer: str) -> list[Solution]:
        found = re.findall(r"-?\d+", answer.replace(",", ""))
        return [Solution(int(found[-1]), found[-1])] if found else []


TREES, SHOPPING = Words("TREES", _trees), Words("SHOPPING", _shopping)
DIFFERENCE, LARGEST = Words("DIFFERENCE", _difference), Words("LARGEST", _largest)

ROLLS, WAGES, TRIP = Words("ROLLS", _rolls), Words("WAGES", _wages), Words("TRIP", _trip)
TILES, SAVINGS, EGGS = Words("TILES", _tiles), Words("SAVINGS", _savings), Words("EGGS", _eggs)

LEGS = task_named("gym:leg_counting?max_animals=4")
DESIGN: tuple[Task, ...] = (TREES, SHOPPING, DIFFERENCE, LARGEST, LEGS, ROLLS, WAGES, TRIP)
REPORT: tuple[Task, ...] = (TILES, SAVINGS, EGGS)


@dataclass(frozen=True)
class Row:
    """Shares of episodes."""

    model: str
    task: str
    system: str
    episodes: int
    forks: float
    """Of a model: those of a vote do not count."""
    joins: float
    """At least one fork was joined."""
    answers: float
    right: float
    format_errors: float
    tokens: float
    """Mean, of all agents."""


def row(model: str, task: Task, system: str, episodes: Sequence[Episode]) -> Row:
    def share(holds: Callable[[Episode], object]) -> float:
        return sum(bool(holds(one)) for one in episodes) / len(episodes)

    return Row(
        model,
        task.name,
        system,
        len(episodes),
        share(lambda one: one.root.forks and not one.root.is_code),
        share(lambda one: one.root.joins and not one.root.is_code),
        share(lambda one: one.answer is not None),
        share(lambda one: one.answer is not None and task.grade(one.problem, one.answer).correct),
        share(lambda one: one.format_faults),
        sum(trace.steps for one in episodes for trace in one.traces) / len(episodes),
    )


async def measure(folder: Path, tasks: Sequence[Task], systems: Sequence[str], problems: int, show: bool) -> list[Row]:
    """All episodes at once, so that the engine decodes large batches."""
    assert all(task_named(task.name) for task in tasks), "a vote looks a task up by its name"
    engine = LocalEngine.open(folder, slots=SLOTS)
    backing, limits = Backing(engine, Sampling(TOKENS, TEMPERATURE, seed=SEED)), Limits(CAPACITY)

    async def episodes(task: Task, system: str) -> Row:
        work = (
            attempt(SYSTEMS[system], problem, backing, limits=limits)
            for problem in islice(task.problems("test", SEED), problems)
        )
        found = await asyncio.gather(*work)
        for one in found if show else ():
            print(readable(one))
        print(line(one := row(folder.name, task, system, found)), flush=True)
        return one

    rows = await asyncio.gather(*(episodes(task, system) for task in tasks for system in systems))
    await engine.aclose()
    return rows


def readable(episode: Episode) -> str:
    """What its agents wrote; what was injected stands in brackets."""
    faults = " ".join(fault.kind for fault in episode.format_faults)
    lines = [f"=== {episode.problem.query} -> {episode.answer} ({episode.problem.data.get('answer')}) {faults}"]
    for trace in episode.traces:
        texts = (f"[{span.text}]" if span.origin is Origin.INJECTED else span.text for span in trace.spans[1:])
        lines.append(f"--- {trace.agent} {trace.stop} {trace.status}\n{''.join(texts)}")
    return "\n".join(lines)


def line(one: Row) -> str:
    shares = " | ".join(f"{share:.0%}" for share in (one.forks, one.joins, one.answers, one.right, one.format_errors))
    return f"| {one.model} | {one.task} | {one.system} | {one.episodes} | {shares} | {one.tokens:.0f} |"


def main(
    folders: tyro.conf.Positional[tuple[Path, ...]],
    tasks: Literal["design", "report", "all"] = "all",
    systems: tuple[str, ...] = tuple(SYSTEMS),
    problems: int = 12,
    show: bool = False,
    file: Annotated[Path | None, tyro.conf.arg(name="json")] = None,
) -> None:
    """Print a table: shares of episodes that fork, join, answer, are right, have format errors, and their tokens."""
    named = {"design": DESIGN, "report": REPORT, "all": DESIGN + REPORT}[tasks]
    rows = [one for folder in folders for one in asyncio.run(measure(folder, named, systems, problems, show))]
    if file is not None:
        file.write_text(json.dumps([asdict(one) for one in rows], indent=1))


if __name__ == "__main__":
    tyro.cli(main)
