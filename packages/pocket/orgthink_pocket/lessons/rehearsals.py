"""Rehearsals: episodes of a manager's organization in which rules play all agents, the manager included.

The organization, its grammar and its search are real. A teacher writes the manager's replies, rules write the agents'
answers, right or wrong, and programs are evaluated without being run (`players`). A pocket manager learns the form of
its work from these episodes. `lessons` is the endless stream.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations

from orgthink.models.tokenizer import Tokenizer
from orgthink.organizations.paramanager import Aliases, ParaManager
from orgthink.organizations.tool_use import ToolUse
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
from orgthink_pocket.lessons.players import OnPaper, Player, helping, managing
from orgthink_pocket.tasks.countdown import COUNTDOWN_MINI_SINGLE
from orgthink_pocket.tasks.countdown_several import COUNTDOWN_MINI_FOUR
from orgthink_pocket.teachers.seen import MATCHED
from orgthink_pocket.tool_model import CONFIG, MANAGING, POOL, USING

SHARES = {
    "arithmetic-mini": 0.15,
    "countdown-mini-single": 0.2,
    "countdown-mini-four": 0.4,
    "ledger-mini": 0.25,
}
"""Share of each task in the lessons of managers."""
ALONE = {"arithmetic-mini": 0.25, "countdown-mini-single": 0.45, "ledger-mini": 0.3}
"""Share of each task in the lessons of models that use tools alone."""
CALLS = 4
"""Calls of a round at most."""
MADE_UP = 0.5
"""Share of a manager's countdowns with an impossible target. Without them a manager cannot copy integers that are never
targets of `train` problems."""
SERIAL = 0.25
"""Share of rehearsals with one call a round."""
ROUNDS = (6, 12)
"""The fewest and the most rounds of a manager, H."""
FAULTS = 0.12
"""Share of calls that fail."""
BATCH = 64
"""Episodes that run together."""
CAPACITY = 9
"""Concurrent agents: a manager and more than it can call in a round."""
LONGEST = CONFIG.max_position_embeddings
"""Most tokens of a rehearsal; longer ones, a few in a thousand, are left out."""
GOOD_AT = tuple(POOL.values())
"""Descriptions of the models of a pool."""


@dataclass(frozen=True)
class Rehearsal(ParaManager):
    """The shipped manager of the pocket models, but its programs are evaluated by `OnPaper`."""

    prompts: str = "pocket"
    """Prompt style."""
    rounds: int = MANAGING["rounds"]
    """H."""
    brief: bool = MANAGING["brief"]
    """Agents return only their answers."""
    aliases: Aliases = MANAGING["aliases"]
    """Models have aliases, so the manager must read their descriptions."""
    echo: bool = MANAGING["echo"]
    """Responses repeat the subtask."""
    reserve: float = MANAGING["reserve"]
    """Nothing is kept for the final answer."""
    response_tokens: int = MANAGING["response_tokens"]
    """Most tokens of a response."""
    suite: Suite = field(default_factory=lambda: Suite(**MANAGING["suite"]))
    """Search in the ledger."""

    def resources(self) -> tuple[Tool, Tool]:
        return _resources(self.suite)


@cache
def _resources(suite: Suite) -> tuple[Tool, Tool]:
    return python_tool(OnPaper()), search_tool(retriever_named(suite.corpus), topk=suite.topk)


def rehearsed(
    problems: Sequence[Problem], organization: ParaManager, tokenizer: Tokenizer, seed: int, matched: float = MATCHED
) -> list[Trace]:
    """The trace of a manager at each of these problems."""
    sampling = Sampling(512, seed=seed)
    teacher = managing(frozenset(organization.tools), organization.calls, matched)
    manager = Backing(Player(teacher, tokenizer), sampling)
    roles = {name: Backing(Player(helping(skills)), sampling) for name, skills in organization.pool.items()}

    async def one(problem: Problem) -> Episode:
        return await attempt(organization, problem, manager, roles=roles, limits=Limits(capacity=CAPACITY))

    return [episode.root for episode in run_virtual(run_all(one, problems))]


def lessons(
    seed: int, pool: int, tokenizer: Tokenizer, *, alone: bool = False, matched: float = MATCHED
) -> Iterator[Trace]:
    """An endless stream of traces of managers, or of models that use tools `alone`; the same for the same pool."""
    rng = random.Random(f"rehearsals {seed}/{pool}")
    shares = ALONE if alone else SHARES
    problems = {name: TASKS[name].problems("train", rng.randrange(1 << 30)) for name in shares}
    while True:
        faults = Faults(FAULTS, rng.getrandbits(31), marked=True)
        if alone:
            organization = Rehearsal(tools=ToolUse.tools, rounds=USING["rounds"], faults=faults)
        else:
            members = {f"p{i}": words for i, words in enumerate(rng.sample(GOOD_AT, len(GOOD_AT)))}
            calls = 1 if rng.random() < SERIAL else CALLS
            organization = Rehearsal(pool=members, rounds=rng.randint(*ROUNDS), calls=calls, faults=faults)
        names = rng.choices(list(shares), list(shares.values()), k=BATCH)
        selected = [next(problems[name]) for name in names]
        if not alone:  # a model alone must be able to find the solution
            selected = [made_up(problem, rng) for problem in selected]
        traces = rehearsed(selected, organization, tokenizer, rng.getrandbits(31), matched)
        yield from (trace for trace in traces if sum(span.tokens for span in trace.spans) <= LONGEST)


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
