"""Programs of organizations that divide a task among workers, with drawn lengths."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from orgthink.errors import UserError
from orgthink.scale.simulation.program import AgentProgram, DecodeTokens, ForkChild, JoinChild, Operation, ReadTokens


@dataclass(frozen=True, slots=True)
class DividedTask:
    """A task whose work can be divided, in tokens."""

    work: int
    """Tokens that one agent alone decodes for it."""
    serial: float = 0.1
    """Share of the work that cannot be divided: half of it comes before the division, half after it."""
    spread: float = 0.5
    """Standard deviation of the logarithm of the length of a part, or of an attempt in a vote. Means stay the same."""
    prompt: int = 512
    """Tokens of an agent's prompt, without its sub-query."""
    query: int = 30
    """Tokens that an agent decodes for a fork: tags and sub-query."""
    join: int = 6
    """Tokens that an agent decodes for a join: its tag."""
    limit: int = 32_768
    """Largest number of tokens of an attempt or a part: its budget."""
    result: int = 60
    """Tokens that a worker decodes besides its part, and returns: its result."""

    def __post_init__(self) -> None:
        if self.work < 2 or not 0 <= self.serial <= 1 or self.spread < 0:
            raise UserError(
                "a task has at least 2 tokens of work, a serial share from 0 to 1, and a spread of at least 0"
            )

    @property
    def before(self) -> int:
        """Tokens before the division."""
        return math.ceil(self.work * self.serial / 2)

    @property
    def divided(self) -> float:
        """Tokens that are divided."""
        return self.work * (1 - self.serial)


def sequential(task: DividedTask) -> AgentProgram:
    """One agent does all the work."""
    return AgentProgram(task.prompt, (DecodeTokens(task.work),))


def fork_join(task: DividedTask, width: int, rng: random.Random) -> AgentProgram:
    """AsyncThink: an organizer writes a fork for each worker, then a join for each. Results are injected one by one."""
    return tree(task, (width,), rng)


def tree(task: DividedTask, fan_outs: Sequence[int], rng: random.Random) -> AgentProgram:
    """Nested fork–join, with a fan-out for each level. Only the agents of the last level work; the others organize."""
    parts = math.prod(fan_outs)

    def organizer(level: int) -> AgentProgram:
        if level == len(fan_outs):
            part = _drawn(task.divided / parts, task, rng)
            return AgentProgram(task.prompt + task.query, (DecodeTokens(part + task.result),))
        children = [organizer(level + 1) for _ in range(fan_outs[level])]
        forks = ((DecodeTokens(task.query), ForkChild(child)) for child in children)
        joins = ((DecodeTokens(task.join), JoinChild(i), ReadTokens(task.result)) for i in range(len(children)))
        own: tuple[Operation, ...] = (*chain.from_iterable(forks), *chain.from_iterable(joins))
        if level:
            return AgentProgram(task.prompt + task.query, (*own, DecodeTokens(task.result)))
        return AgentProgram(task.prompt, (DecodeTokens(task.before), *own, DecodeTokens(max(1, task.before))))

    return organizer(0)


def rounds(task: DividedTask, width: int, number: int, rng: random.Random) -> AgentProgram:
    """ParaManager: in each round a manager writes `width` calls, waits for all, and reads all results at once."""
    operations: list[Operation] = [DecodeTokens(task.before)]
    for n in range(number):
        operations.append(DecodeTokens(width * task.query))
        for _ in range(width):
            part = _drawn(task.divided / (width * number), task, rng)
            operations.append(ForkChild(AgentProgram(task.prompt + task.query, (DecodeTokens(part + task.result),))))
        operations += [JoinChild(n * width + i) for i in range(width)]
        operations.append(ReadTokens(width * task.result))
    return AgentProgram(task.prompt, (*operations, DecodeTokens(max(1, task.before))))


def majority_vote(task: DividedTask, width: int, rng: random.Random) -> AgentProgram:
    """Self-consistency: each of `width` agents does all the work. Only the first one's prompt is not cached."""
    attempts = [
        AgentProgram(task.prompt, (DecodeTokens(_drawn(task.work, task, rng)),), cached=task.prompt if i else 0)
        for i in range(width)
    ]
    return AgentProgram(0, (*map(ForkChild, attempts), *map(JoinChild, range(width))))


def _drawn(mean: float, task: DividedTask, rng: random.Random) -> int:
    """A length from a log-normal distribution, from 1 to the limit."""
    return min(task.limit, max(1, round(mean * rng.lognormvariate(-(task.spread**2) / 2, task.spread))))
