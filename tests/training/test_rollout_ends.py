"""How a rollout ends: a bug, the end of the training and a cancellation stop its requests, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar

import pytest
from registered import register

from orgthink.engines.engine import Chunk, Context, Engine, FinishReason
from orgthink.evaluation.specs import OrganizationSpec
from orgthink.organizations import ORGANIZATIONS
from orgthink.record.episode import Episode, Grade, Message, Origin, Problem, Sampling, Span, StopReason
from orgthink.record.guard import is_storable
from orgthink.runtime.clock import run_virtual
from orgthink.runtime.organization import Organization
from orgthink.runtime.session import Session
from orgthink.tasks import TASKS
from orgthink.tasks.task import Split, Task
from orgthink.training.episodes import Episodes
from orgthink.training.rl import Batch, Clock
from orgthink.training.rl_settings import RlSettings
from orgthink.training.rollout import Rollout
from orgthink.util.errors import UserError


@dataclass(frozen=True)
class Talk(Organization):
    """One agent that talks until it is done."""

    name: str = "talk"
    roles: ClassVar[tuple[str, ...]] = ("talker",)

    async def run(self, problem: Problem, session: Session) -> str | None:
        asked = (Message("user", f"{problem.id} {session.sample}"),)
        return await session.agent("talker", asked).complete()


@dataclass(frozen=True)
class Refused(Talk):
    """The second attempt at the second problem ends the training."""

    name: str = "refused"

    async def run(self, problem: Problem, session: Session) -> str | None:
        answer = await Talk.run(self, problem, session)
        if (problem.id, session.sample) == ("numbers/1", 1):
            raise UserError("no more")
        return answer


class Numbers(Task):
    """Problems without end, or the same few again and again."""

    name = "numbers"

    def __init__(self, different: int = 10**6) -> None:
        self.different = different

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        for n in range(10**6):
            yield Problem(f"numbers/{n % self.different}", self.name, "")

    def grade(self, problem: Problem, answer: str) -> Grade:
        return Grade(1, 1)


@dataclass
class Paced(Engine):
    """Writes a number of words for each episode, one per second."""

    words: Callable[[int, int], int]
    """Of a problem and a sample."""
    version: int = 0
    live: int = 0
    """Streams that are open."""
    fails: str = ""
    """The prompt at whose first word there is a bug."""
    model: str = "paced"
    native_calls: bool = False
    begun: list[str] = field(default_factory=list)
    """Prompts, in order of time."""
    drawn: list[tuple[str, int]] = field(default_factory=list)
    """Prompt and version of each word."""

    def prompt(self, messages: tuple[Message, ...]) -> Span:
        return Span(Origin.PROMPT, messages[0].content, 1, (0,))

    def injection(self, text: str, around: tuple[str, str] = ("", "")) -> tuple[str, tuple[int, ...]]:
        return text.join(around), (1,)

    def turn(self, context: Context, text: str) -> tuple[str, tuple[int, ...]]:
        return self.injection(text)

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        asked = context.messages[0].content
        words = self.words(*map(int, asked.removeprefix("numbers/").split()))
        self.live += 1
        self.begun.append(asked)
        try:
            for n in range(1, words + 1):
                await asyncio.sleep(1)
                if asked == self.fails:
                    raise ZeroDivisionError(asked)
                self.drawn.append((asked, self.version))
                yield Chunk((" x",), (n,), (-0.5,), FinishReason.EOS if n == words else None, str(self.version))
        finally:
            self.live -= 1

    async def aclose(self) -> None: ...


PLAN = Rollout("numbers", OrganizationSpec("talk"), problems=2, group=2)
SETTINGS = RlSettings(PLAN, steps=9, learning_rate=1e-3)


@pytest.fixture(autouse=True, scope="module")
def known() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        register(patch, ORGANIZATIONS, talk=Talk, refused=Refused)
        register(patch, TASKS, numbers=Numbers())
        yield


async def step_of(source: Episodes, engine: Paced, step: int) -> Batch:
    engine.version = step
    return await source.collect(engine, step, Clock(), lambda episode: None)


def test_a_bug_or_an_end_stops_all_requests():
    engine = Paced(lambda problem, sample: 50, fails="numbers/1 1")

    async def go() -> None:
        source = Episodes(SETTINGS)
        async with source.working():
            with pytest.raises(ZeroDivisionError):
                await step_of(source, engine, 0)
            assert engine.live == 0 and len(asyncio.all_tasks()) == 1
            engine.fails = ""
            step = asyncio.create_task(step_of(source, engine, 0))
            await asyncio.sleep(10)
            assert engine.live == 4
            step.cancel()
            with pytest.raises(asyncio.CancelledError):
                await step
        assert engine.live == 0 and len(asyncio.all_tasks()) == 1

    run_virtual(go())


def test_all_episodes_are_recorded_when_a_rollout_fails():
    """Those that had ended, and those in progress."""
    engine = Paced(lambda problem, sample: {(0, 1): 5, (1, 1): 2}.get((problem, sample), 1))
    plan = replace(PLAN, organization=OrganizationSpec("refused"))

    async def go() -> list[Episode]:
        source, recorded = Episodes(replace(SETTINGS, rollout=plan)), list[Episode]()
        async with source.working(lambda name, error: str(error)):
            with pytest.raises(UserError, match="no more"):
                await source.collect(engine, 0, Clock(), recorded.append)
        return recorded

    sampled = run_virtual(go())
    steps = {(int(e.problem.id.removeprefix("numbers/")), e.sample): e.root.steps for e in sampled}
    assert len(steps) == len(sampled) and all(is_storable(episode) for episode in sampled)
    assert steps[0, 1] in (1, 2) and sum(e.stop is StopReason.CANCELLED for e in sampled) == 1
    assert steps == {(0, 0): 1, (0, 1): steps[0, 1], (1, 0): 1, (1, 1): 2}
