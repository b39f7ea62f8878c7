"""A worker for every part of a problem: who has nothing to decide."""

from __future__ import annotations

import asyncio
from itertools import islice

from orgthink_pocket.tasks.countdown_several import COUNTDOWN_MINI_SIX
from orgthink_pocket.tasks.parts import NAMES
from rule_engine import RuleEngine

from experiments.asyncthink.evidence.fan_out import FanOut
from orgthink.episode import Sampling
from orgthink.runtime import Backing, Limits, attempt

(PROBLEM,) = islice(COUNTDOWN_MINI_SIX.problems("test", 0), 1)


def worker(text: str) -> str:
    """Returns a sum that tells which part it is; that of the second part never returns."""
    name = text.split()[-1]
    found = f"! {name} 1 + {NAMES.index(name)} ;"
    return f" {name} : scan {found}" + ("" if name == NAMES[1] else f" <RETURN> {found} </RETURN>")


def test_each_part_has_a_worker_and_the_answer_lists_what_they_return() -> None:
    backing = Backing(RuleEngine(worker), Sampling(50))
    episode = asyncio.run(attempt(FanOut(), PROBLEM, backing, limits=Limits(8)))
    assert [fork.key for fork in episode.root.forks] == list(NAMES[:6])
    assert [trace.role for trace in episode.traces[1:]] == ["worker"] * 6
    assert episode.answer == "1 + 0 ; 1 + 2 ; 1 + 3 ; 1 + 4 ; 1 + 5"
