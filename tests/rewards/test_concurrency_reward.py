"""R_η (Eq. 1 and 2 of AsyncThink) of a scripted organizer: what never forking, forking well and forking badly earn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.evaluation.grading import grade
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.record.episode import Episode, Sampling
from orgthink.rewards.asyncthink import concurrency_reward
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_virtual
from orgthink.tasks.countdown import COUNTDOWN

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
