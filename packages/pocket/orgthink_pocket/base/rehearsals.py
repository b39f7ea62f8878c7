"""Rehearsals: lessons of managers and of users of tools, as episodes in which rules play all agents.

The organization, its grammar and its search are real. A teacher writes the manager's replies, rules write the agents'
answers, right or wrong, and programs are evaluated without being run (`players`). Members are m1, m2, … in a fixed
order and without descriptions. Their simulated skills change from batch to batch, and the teacher calls any of them at
random: reinforcement learning teaches which member is good at what.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations
from typing import Any

from orgthink.models.tokenizer import Tokenizer
from orgthink.organizations.paramanager import Aliases, ParaManager, ToolUse
from orgthink.record.episode import Episode, Problem, Sampling, Trace
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_virtual
from orgthink.tasks import TASKS
from orgthink.tasks.countdown import all_solutions
from orgthink.tools.faults import Faults
from orgthink.tools.python import python_tool
from orgthink.tools.search import retriever_named, search_tool
from orgthink.tools.tool import Tool
from orgthink.tools.toolbox import Suite
from orgthink.util.concurrency import run_all
from orgthink_pocket.base.model import CONFIG
from orgthink_pocket.base.players import OnPaper, Player, helping, managing
from orgthink_pocket.style import REFERENCE
from orgthink_pocket.tasks.countdown import COUNTDOWN_MINI_FOUR, COUNTDOWN_MINI_SINGLE, CountdownSeveral

USING: dict[str, Any] = {"rounds": 5, "response_tokens": 32, "suite": {"corpus": "ledger"}, "reserve": 0.0}
"""Settings of models that call tools, such that episodes fit the context of a pocket model."""
MANAGING: dict[str, Any] = {**USING, "rounds": 12, "aliases": "fixed", "brief": True, "echo": True}
"""Settings of managers, without their pool."""
MANAGED = {"arithmetic-mini": 0.2, "countdown-mini-single": 0.2, "countdown-mini-four": 0.4, "ledger-mini": 0.2}
"""Share of each task in the lessons of managers."""
ALONE = {"arithmetic-mini": 0.25, "countdown-mini-single": 0.45, "ledger-mini": 0.3}
"""Share of each task in the lessons of models that use tools without a manager."""
SKILLS = ("arithmetic", "countdown", "code", "review")
"""What a simulated member may be good at."""
MODELS = (1, 6)
"""Fewest and most members of a pool."""
CALLS = 4
"""Most calls of a round."""
SERIAL = 0.25
"""Share of rehearsals with one call a round."""
ROUNDS = (6, 12)
"""Fewest and most rounds of a manager, H."""
PARTS = (2, 6)
"""Fewest and most parts of several countdowns."""
MADE_UP = 0.5
"""Share of a manager's countdowns with an impossible target. Without them a manager cannot copy integers that are never
targets of `train` problems."""
FAULTS = 0.12
"""Share of calls that fail."""
BATCH = 16
"""Episodes that run together."""
CAPACITY = 9
"""Concurrent agents: a manager and more than it can call in a round."""
LONGEST = CONFIG.max_position_embeddings
"""Most tokens of a rehearsal; longer ones, a few in a thousand, are left out."""


@dataclass(frozen=True)
class Rehearsal(ParaManager):
    """ParaManager with the settings of the shipped manager, but `OnPaper` evaluates its programs."""

    prompts: str = REFERENCE
    """Prompt style."""
    rounds: int = MANAGING["rounds"]
    """H."""
    brief: bool = MANAGING["brief"]
    """Agents return only their answers."""
    aliases: Aliases = MANAGING["aliases"]
    """Members are called m1, m2, …"""
    echo: bool = MANAGING["echo"]
    """Responses repeat the subtask."""
    reserve: float = MANAGING["reserve"]
    """No tokens are reserved for the final answer."""
    response_tokens: int = MANAGING["response_tokens"]
    """Most tokens of a response."""
    suite: Suite = field(default_factory=lambda: Suite(**MANAGING["suite"]))
    """Search in the ledger."""

    def resources(self) -> tuple[Tool, Tool]:
        return _resources(self.suite)


@cache
def _resources(suite: Suite) -> tuple[Tool, Tool]:
    return python_tool(OnPaper()), search_tool(retriever_named(suite.corpus), topk=suite.topk)


def managers(rng: random.Random, tokenizer: Tokenizer) -> Iterator[Trace]:
    """An endless stream of managers' episodes."""
    problems = _problems(rng, MANAGED)
    while True:
        count = rng.randint(*MODELS)
        members = {f"p{i}": " ".join(word for word in SKILLS if rng.random() < 0.6) for i in range(count)}
        organization = Rehearsal(
            pool=members,
            rounds=rng.randint(*ROUNDS),
            calls=1 if rng.random() < SERIAL else CALLS,
            faults=_faults(rng),
        )
        selected = [made_up(problem, rng) for problem in _drawn(rng, problems, MANAGED)]
        yield from _fitting(selected, organization, tokenizer, rng)


def users(rng: random.Random, tokenizer: Tokenizer) -> Iterator[Trace]:
    """An endless stream of episodes of models that use tools without a manager."""
    problems = _problems(rng, ALONE)
    while True:
        organization = Rehearsal(tools=ToolUse.tools, rounds=USING["rounds"], faults=_faults(rng))
        yield from _fitting(_drawn(rng, problems, ALONE), organization, tokenizer, rng)


def several(rng: random.Random, parts: tuple[int, int] = PARTS) -> Problem:
    """Countdowns with the fewest and the most parts, as a problem of `countdown-mini-four`."""
    task = CountdownSeveral(COUNTDOWN_MINI_FOUR.name, COUNTDOWN_MINI_SINGLE, rng.randint(*parts))
    return next(task.problems("train", rng.getrandbits(30)))


def _faults(rng: random.Random) -> Faults:
    return Faults(FAULTS, rng.getrandbits(31), marked=True)


def _problems(rng: random.Random, shares: dict[str, float]) -> dict[str, Iterator[Problem]]:
    return {name: TASKS[name].problems("train", rng.getrandbits(30)) for name in shares}


def _drawn(rng: random.Random, problems: dict[str, Iterator[Problem]], shares: dict[str, float]) -> list[Problem]:
    """A batch of problems; several countdowns have any number of parts."""
    names = rng.choices(list(shares), list(shares.values()), k=BATCH)
    return [several(rng) if name == COUNTDOWN_MINI_FOUR.name else next(problems[name]) for name in names]


def _fitting(
    problems: Sequence[Problem], organization: ParaManager, tokenizer: Tokenizer, rng: random.Random
) -> Iterator[Trace]:
    """The traces that fit the context."""
    traces = rehearsed(problems, organization, tokenizer, rng.getrandbits(31))
    yield from (trace for trace in traces if sum(span.tokens for span in trace.spans) <= LONGEST)


def rehearsed(problems: Sequence[Problem], organization: ParaManager, tokenizer: Tokenizer, seed: int) -> list[Trace]:
    """The trace of a manager at each of these problems."""
    sampling = Sampling(512, seed=seed)
    manager = Backing(Player(managing(frozenset(organization.tools), organization.calls), tokenizer), sampling)
    roles = {name: Backing(Player(helping(skills)), sampling) for name, skills in organization.pool.items()}

    async def one(problem: Problem) -> Episode:
        return await attempt(organization, problem, manager, roles=roles, limits=Limits(capacity=CAPACITY))

    return [episode.root for episode in run_virtual(run_all(one, problems))]


def made_up(problem: Problem, rng: random.Random) -> Problem:
    """A countdown, in a share of `MADE_UP` with impossible targets; other problems unchanged."""
    if not problem.task.startswith("countdown") or rng.random() >= MADE_UP:
        return problem
    targets = rng.sample(list(_impossible()), len(problem.data.get("parts", [problem.data])))
    others = [COUNTDOWN_MINI_SINGLE.problem(missing(target, rng), target) for target in targets]
    return COUNTDOWN_MINI_FOUR.problem(others) if len(others) > 1 else others[0]


def missing(target: int, rng: random.Random) -> list[int]:
    """Numbers of which no three make the target."""
    return list(rng.choice(_impossible()[target]))


@cache
def _impossible() -> dict[int, list[tuple[int, ...]]]:
    """Target → sets of numbers of which no three make it. Targets are drawn uniformly: few sets miss a small target."""
    size = COUNTDOWN_MINI_SINGLE.size
    low, high = size.targets
    impossible: dict[int, list[tuple[int, ...]]] = {target: [] for target in range(low, high + 1)}
    for numbers in combinations(range(1, size.largest + 1), size.given):
        made = set().union(*(found for used, found in all_solutions(list(numbers), 3).items() if used.bit_count() == 3))
        for target in impossible.keys() - made:
            impossible[target].append(numbers)
    return impossible
