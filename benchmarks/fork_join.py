"""The fork–join workload: agents on the real runtime with fixed lengths.

Each organizer decodes a segment, forks a worker within it, joins the worker at the segment's end, and reads its last
words. It does so twice, and then decodes a last segment.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from orgthink.engines.engine import Engine
from orgthink.grammar.actions import Event, Fork
from orgthink.record.episode import Episode, Message, Problem, Sampling
from orgthink.runtime import Agent, Backing, Limits, Organization, Result, Session, attempt

ROUNDS = 2
INJECTED = 20
"""Number of tokens that a join injects."""


class Plan(NamedTuple):
    """Lengths of one episode, in tokens."""

    prompt: str
    segment: int
    """Length of each segment of the organizer, from one join to the next."""
    fork_at: int
    """Position in the segment at which a worker is forked."""
    workers: tuple[int, ...]
    """Lengths of the workers, in order."""


class Throughput(NamedTuple):
    """Result of a run."""

    tokens: int
    """Number of sampled tokens that are part of the result."""
    seconds: float
    """Wall-clock seconds."""

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds


def plans(episodes: int, seed: int = 0) -> list[Plan]:
    """Sample plans with prompts of 20 to 40 tokens, and segments and workers of 60 to 120."""
    rng = random.Random(seed)
    return [
        Plan(
            " ".join(f"w{rng.randrange(1, 512)}" for _ in range(rng.randint(20, 40))),
            rng.randint(60, 120),
            rng.randint(5, 50),
            tuple(rng.randint(60, 120) for _ in range(ROUNDS)),
        )
        for _ in range(episodes)
    ]


@dataclass(frozen=True)
class ForkJoin(Organization):
    """The organization of the workload. The name of a role is its token budget for a segment."""

    plan: Plan
    name: str = "fork-join"

    async def run(self, problem: Problem, session: Session) -> str:
        organizer = session.agent(str(self.plan.segment), _user(self.plan.prompt))
        for i, tokens in enumerate(self.plan.workers):
            async for _ in organizer.act(Counted([self.plan.fork_at])):
                worker = session.agent(str(tokens), _user(f"w{i} {self.plan.prompt}"))
                session.fork(organizer, str(i), worker, _work)
            organizer.inject((await session.join(organizer, str(i))).text)
            organizer.resume()  # the agent had reached the end of its segment
        return await organizer.complete()


@dataclass(frozen=True)
class Plain(Organization):
    """An organization of one agent that decodes up to its length."""

    prompt: str
    tokens: int
    name: str = "plain"

    async def run(self, problem: Problem, session: Session) -> str:
        return await session.agent(str(self.tokens), _user(self.prompt)).complete()


class Counted:
    """A scanner that finds a Fork after given numbers of tokens."""

    stops: tuple[str, ...] = ()
    signals: tuple[str, ...] = ()
    quoted = False

    def __init__(self, positions: Sequence[int]) -> None:
        self._positions, self._read = positions, 0

    def feed(self, text: str) -> list[Event]:
        self._read += 1
        return [Event(Fork("", ""), 0)] * self._positions.count(self._read)

    def close(self) -> list[Event]:
        return []

    def mark(self) -> int:
        return self._read

    def rewind(self, mark: int) -> None:
        self._read = mark


def _user(text: str) -> tuple[Message, ...]:
    return (Message("user", text),)


async def _work(worker: Agent) -> Result:
    return Result(" ".join((await worker.complete()).split()[-INJECTED:]))


async def fork_join(engine: Engine, plans: list[Plan]) -> tuple[Throughput, list[Episode]]:
    """Run all episodes in parallel."""
    roles = _roles(engine)
    limits = Limits(capacity=2)
    return await _timed(
        attempt(ForkJoin(plan), Problem(str(i), "", ""), roles["0"], roles=roles, limits=limits)
        for i, plan in enumerate(plans)
    )


async def plain(engine: Engine, plans: list[Plan]) -> tuple[Throughput, list[Episode]]:
    """Run independent completions with the same prompts and lengths, in parallel and in random order."""
    roles = _roles(engine)
    wanted = [(plan.prompt, plan.segment * (ROUNDS + 1)) for plan in plans]
    wanted += [(f"w{i} {plan.prompt}", tokens) for plan in plans for i, tokens in enumerate(plan.workers)]
    random.Random(0).shuffle(wanted)
    return await _timed(
        attempt(Plain(prompt, tokens), Problem(str(i), "", ""), roles["0"], roles=roles)
        for i, (prompt, tokens) in enumerate(wanted)
    )


def _roles(engine: Engine) -> dict[str, Backing]:
    return {str(n): Backing(engine, Sampling(n, seed=0)) for n in range(361)}


async def _timed(attempts: Iterable[Awaitable[Episode]]) -> tuple[Throughput, list[Episode]]:
    start = time.perf_counter()
    episodes = await asyncio.gather(*attempts)
    seconds = time.perf_counter() - start
    return Throughput(sum(trace.steps for episode in episodes for trace in episode.traces), seconds), episodes
