"""A worker for every part of a problem: who has nothing to decide."""

from __future__ import annotations

import asyncio
from itertools import islice

from orgthink_pocket.tasks.countdown_linked import COUNTDOWN_MINI_LINKED, chains_of
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


def test_chains_go_to_one_worker_each_in_turn() -> None:
    problem = next(p for p in COUNTDOWN_MINI_LINKED.problems("test", 0) if p.data["chains"] == 3)
    chains = chains_of(problem)
    assert sorted(name for chain in chains for name in chain) == sorted(NAMES[:6]) and len(chains) == 3
    needs = {part["name"]: part["needs"] for part in problem.data["parts"]}
    assert all(needs[second] == first and needs[first] is None for first, second in chains)
    queries: list[str] = []

    def chain_worker(text: str) -> str:
        queries.append(text.partition(" subtask ")[2])
        found = " ".join(f"! {name} 1 + {NAMES.index(name)} left 4 ;" for name in queries[-1].split(" ; "))
        return f" {queries[-1]} : scan <RETURN> {found} </RETURN>"

    backing = Backing(RuleEngine(chain_worker), Sampling(50))
    episode = asyncio.run(attempt(FanOut(by_chains=True), problem, backing, limits=Limits(8)))
    assert sorted(queries) == sorted(" ; ".join(chain) for chain in chains)
    assert episode.answer == " ; ".join(f"1 + {NAMES.index(name)}" for chain in chains for name in chain)
