"""R_η (Eq. 1 and 2 of AsyncThink) of a scripted organizer: what never forking, forking well and forking badly earn."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.evaluate.grading import grade
from orgthink.measure.concurrency import concurrency
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.record.episode import Episode, Sampling
from orgthink.rewards.asyncthink import concurrency_reward
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_virtual
from orgthink.tasks.countdown import COUNTDOWN
from orgthink.training.coldstart.structures import Step, random_plan

PROBLEM = COUNTDOWN.problem([1, 2, 3, 4, 5], 10)
RIGHT = "1 + 4 + 5 ; 2 + 3 + 5 ; 1 + 2 + 3 + 4 ; 5 * 4 / 2"
ANSWER = f" <ANSWER> {RIGHT} </ANSWER>"
CAPACITIES = (2, 4, 8)
PAGE = Path(__file__).parents[2] / "docs" / "papers" / "asyncthink.md"


def played(
    organizer: Sequence[str],
    workers: Sequence[str],
    capacity: int,
    longest: int = 1000,
    depth: int = 1,
    **settings: str,
) -> Episode:
    """The graded episode of what an organizer says up to each Join, and what the worker of `query1`, … says."""
    turns = [Turn(says, when="main process") for says in organizer]
    turns += [Turn(says, when=f"Subtask: query{n}\n") for n, says in enumerate(workers, 1)]
    engine = ScriptedEngine(turns)
    limits = Limits(capacity, depth=depth)
    episode = run_virtual(attempt(AsyncThink(**settings), PROBLEM, Backing(engine, Sampling(longest)), limits=limits))
    run_virtual(engine.aclose())
    return grade(episode, COUNTDOWN)


def think(n: int) -> str:
    return " think" * n


def fork(key: object, query: object) -> str:
    return f" <FORK-{key}> query{query} </FORK-{key}>"


def forking(worker: str, capacity: int, longest: int = 1000) -> Episode:
    """An organizer that gives all its workers something to do at once, thinks, and joins them."""
    keys = range(1, capacity)
    first, *joins = [*(f" <JOIN-{key}>" for key in keys), ANSWER]
    said = "".join(fork(key, key) for key in keys) + think(100) + first
    return played([said, *joins], [worker] * len(keys), capacity, longest)


KINDS = {
    "no fork": lambda c: played([think(100) + ANSWER], [], c),
    "a good fork": lambda c: forking(think(97) + " <RETURN> 1 + 4 + 5 </RETURN>", c),
    "a worker that is cut off": lambda c: forking(think(500), c, 140),
    "a worker that returns nothing": lambda c: forking(think(100), c),
}
"""What the table of the paper's page compares."""


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_no_fork_earns_nothing_and_no_fork_is_worse(capacity: int) -> None:
    earned = {name: concurrency_reward(play(capacity)) for name, play in KINDS.items()}
    assert earned["no fork"] == 0
    assert earned["a good fork"] == 1, "τ follows c, so a full pool reaches it"
    assert min(earned[name] for name in earned if name != "no fork") > 0


@pytest.mark.parametrize("kind", KINDS)
def test_the_table_of_the_paper_s_page_is_what_the_code_computes(kind: str) -> None:
    earned = [
        f"{concurrency_reward(KINDS[kind](c), None, count):.2f}"
        for count in ("workers", "joined", "pool")
        for c in CAPACITIES
    ]
    assert f"| {kind} | {' | '.join(earned)} |" in PAGE.read_text()


@dataclass(frozen=True)
class Structure:
    """What a scripted organizer does, and how long everybody thinks."""

    steps: tuple[Step, ...]
    thoughts: tuple[int, ...]
    """Words of each step that is a thought."""
    work: tuple[tuple[int, bool], ...]
    """Of each worker: words, and whether it returns something."""
    capacity: int

    @property
    def episode(self) -> Episode:
        said, lengths, number = [""], iter(self.thoughts), 0
        for step in self.steps:
            match step.action:
                case "think":
                    said[-1] += think(next(lengths))
                case "fork":
                    number += 1
                    said[-1] += fork(step.key, number)
                case "join":
                    said[-1] += f" <JOIN-{step.key}>"
                    said.append("")
        said[-1] += ANSWER
        returned = " <RETURN> x </RETURN>"
        return played(said, [think(n) + returned * useful for n, useful in self.work], self.capacity)


def random_structure(rng: random.Random, capacity: int) -> Structure:
    steps = (*random_plan(rng, capacity), Step("think"))
    thoughts = tuple(rng.randint(1, 30) for step in steps if step.action == "think")
    work = tuple((rng.randint(1, 40), rng.random() < 0.8) for step in steps if step.action == "fork")
    return Structure(steps, thoughts, work, capacity)


def joined_later(structure: Structure, rng: random.Random) -> Structure | None:
    """The same with a Join after the thought that follows it, so that more is thought while a worker works."""
    steps = structure.steps
    places = [i for i in range(len(steps) - 1) if (steps[i].action, steps[i + 1].action) == ("join", "think")]
    if not places:
        return None
    i = rng.choice(places)
    return replace(structure, steps=(*steps[:i], steps[i + 1], steps[i], *steps[i + 2 :]))


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_more_concurrency_that_reaches_the_answer_never_earns_less(capacity: int) -> None:
    """1,000 random structures over all c, a fifth of whose workers return nothing: an organizer that joins a worker
    later, and so thinks beside it for longer, never earns less; and none that forks earns nothing."""
    rng = random.Random(capacity)
    compared = 0
    for _ in range(334):
        structure = random_structure(rng, capacity)
        episode = structure.episode
        earned = concurrency_reward(episode)
        assert 0 < earned <= 1 and not episode.format_faults
        later = joined_later(structure, rng)
        if later is not None:
            compared += 1
            more = later.episode
            assert (concurrency(more, "workers") or 0) >= (concurrency(episode, "workers") or 0) - 1e-9
            assert concurrency_reward(more) >= earned - 1e-9
    assert compared > 300
