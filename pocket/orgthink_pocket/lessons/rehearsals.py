"""Rehearsals: episodes of a manager's organization in which everybody plays a part, the manager too.

The organization, its grammar and its search are the real ones; the manager's replies are a teacher's, its agents say
what a real one might, right or wrong, and programs are worked out without being run (`players`). What a pocket manager
learns from these episodes is the form of its work. `lessons` is the endless stream.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations

from orgthink.concurrency import run_all
from orgthink.engines.tokenizer import Tokenizer
from orgthink.episode import Episode, Problem, Sampling, Trace
from orgthink.organizations.paramanager import ParaManager
from orgthink.organizations.tool_use import ToolUse
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
from orgthink_pocket.lessons.players import OnPaper, Player, helping, managing
from orgthink_pocket.tasks.countdown import COUNTDOWN_MINI_SINGLE
from orgthink_pocket.tasks.countdown_several import COUNTDOWN_MINI_FOUR
from orgthink_pocket.tool_model import CONFIG, MANAGING, POOL, USING

SHARES = {
    "arithmetic-mini": 0.15,
    "countdown-mini-single": 0.2,
    "countdown-mini-four": 0.4,
    "ledger-mini": 0.25,
}
"""What managers of the pocket world work on, and how much of it."""
ALONE = {"arithmetic-mini": 0.25, "countdown-mini-single": 0.45, "ledger-mini": 0.3}
"""The same of those who use tools alone."""
CALLS = 4
"""Calls of a round at most."""
MADE_UP = 0.5
"""Share of a manager's countdowns whose targets are made up: one that has not seen an integer as a target cannot copy
it, and those of `test` problems are never seen in a problem."""
SERIAL = 0.25
"""Share of rehearsals with one call a round."""
ROUNDS = (6, 12)
"""The fewest and the most rounds of a manager, H."""
FAULTS = 0.12
"""Share of calls that fail."""
AT_ONCE = 64
"""Episodes that are rehearsed together."""
CAPACITY = 9
"""Agents at work at once: a manager and more than it can ask at once."""
LONGEST = CONFIG.max_position_embeddings
"""Tokens of a rehearsal at most; longer ones, a few in a thousand, are left out."""
GOOD_AT = tuple(POOL.values())
"""What managers are told of the models of a pool."""


@dataclass(frozen=True)
class Rehearsal(ParaManager):
    """The pocket world's manager as it is shipped, but that its programs are worked out on paper."""

    prompts: str = "pocket"
    """Prompt style."""
    rounds: int = MANAGING["rounds"]
    """H."""
    brief: bool = MANAGING["brief"]
    """Agents hand back their answers only."""
    aliases: bool = MANAGING["aliases"]
    """The manager has to go by what it is told of the models."""
    echo: bool = MANAGING["echo"]
    """What comes back repeats the subtask."""
    response_tokens: int = MANAGING["response_tokens"]
    """What comes back is cut after so many."""
    suite: Suite = field(default_factory=lambda: Suite(**MANAGING["suite"]))
    """It searches the ledger."""

    def resources(self) -> tuple[Tool, Tool]:
        return _resources(self.suite)


@cache
def _resources(suite: Suite) -> tuple[Tool, Tool]:
    return python_tool(OnPaper()), search_tool(retriever_named(suite.corpus), topk=suite.topk)


def rehearsed(problems: Sequence[Problem], organization: ParaManager, tokenizer: Tokenizer, seed: int) -> list[Trace]:
    """What managers said and saw at these problems, one trace each."""
    sampling = Sampling(512, seed=seed)
    manager = Backing(Player(managing(frozenset(organization.tools), organization.calls), tokenizer), sampling)
    roles = {name: Backing(Player(helping(told)), sampling) for name, told in organization.pool.items()}

    async def one(problem: Problem) -> Episode:
        return await attempt(organization, problem, manager, roles=roles, limits=Limits(capacity=CAPACITY))

    return [episode.root for episode in run_virtual(run_all(one, problems))]


def lessons(seed: int, pool: int, tokenizer: Tokenizer, *, alone: bool = False) -> Iterator[Trace]:
    """An endless stream of managers' traces, or of those who use tools `alone`; the same for the same pool."""
    rng = random.Random(f"rehearsals {seed}/{pool}")
    shares = ALONE if alone else SHARES
    problems = {name: TASKS[name].problems("train", rng.randrange(1 << 30)) for name in shares}
    while True:
        faults = Faults(FAULTS, rng.getrandbits(31))
        if alone:
            organization = Rehearsal(tools=ToolUse.tools, rounds=USING["rounds"], faults=faults)
        else:
            members = {f"p{i}": words for i, words in enumerate(rng.sample(GOOD_AT, len(GOOD_AT)))}
            calls = 1 if rng.random() < SERIAL else CALLS
            organization = Rehearsal(pool=members, rounds=rng.randint(*ROUNDS), calls=calls, faults=faults)
        names = rng.choices(list(shares), list(shares.values()), k=AT_ONCE)
        chosen = [next(problems[name]) for name in names]
        if not alone:  # who is alone has to find the solution
            chosen = [_made_up(problem, rng) for problem in chosen]
        traces = rehearsed(chosen, organization, tokenizer, rng.getrandbits(31))
        yield from (trace for trace in traces if sum(span.tokens for span in trace.spans) <= LONGEST)


def _made_up(problem: Problem, rng: random.Random) -> Problem:
    """A countdown, now and then with other targets, to which there is no solution; any other problem as it is."""
    if not problem.task.startswith("countdown") or rng.random() >= MADE_UP:
        return problem
    impossible = _impossible()
    targets = rng.sample(list(impossible), len(problem.data.get("parts", [problem.data])))
    others = [COUNTDOWN_MINI_SINGLE.problem(list(rng.choice(impossible[target])), target) for target in targets]
    return COUNTDOWN_MINI_FOUR.problem(others) if len(others) > 1 else others[0]


@cache
def _impossible() -> dict[int, list[tuple[int, ...]]]:
    """Targets, and the numbers of which no three make them: every target as often as any other, for the small ones are
    hard to miss."""
    size = COUNTDOWN_MINI_SINGLE.size
    low, high = size.targets
    impossible: dict[int, list[tuple[int, ...]]] = {target: [] for target in range(low, high + 1)}
    for numbers in combinations(range(1, size.largest + 1), size.given):
        made = set().union(*(found for used, found in all_solutions(list(numbers), 3).items() if used.bit_count() == 3))
        for target in impossible.keys() - made:
            impossible[target].append(numbers)
    return impossible
