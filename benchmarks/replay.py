"""Recorded organizations on a model whose steps are bound by memory, as those of a GPU are: do seconds keep what steps
promise?

The shipped models solve problems once, in milliseconds a step. Their episodes are then replayed, with the same lengths,
forks and joins, on a Qwen3 shape of 0.6 B parameters with random weights in bfloat16.
"""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import random
import tempfile
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from orgthink.training.cluster.simulation.program import (
    AgentProgram,
    DecodeTokens,
    ForkChild,
    JoinChild,
    ReadTokens,
    WaitSeconds,
)
from orgthink.training.cluster.simulation.recorded import recorded

import orgthink
from benchmarks.fork_join import Counted, Plain
from benchmarks.models import random_model
from benchmarks.report import Line
from orgthink.engines.engine import Chunk, Context, Engine, FinishReason
from orgthink.engines.local.engine import LocalEngine
from orgthink.measure.latency import critical_path, timeline
from orgthink.models.qwen3 import Qwen3Config
from orgthink.record.episode import Episode, Message, Origin, Problem, Sampling
from orgthink.runtime import Agent, Backing, Limits, Organization, Session, attempt
from orgthink.training.cluster.sizing.model import config_of

SHAPE = "qwen3-0.6b"
WORDS = 512
"""Words that the prompts consist of."""
PROBLEMS = 1
"""Problems that are replayed for each task: the first ones that all its organizations solve."""
CANDIDATES = 24
"""Problems that are tried beforehand."""
ROWS = (1, 2, 4, 8)
"""Numbers of rows at which the time of a step is measured."""
CONTEXT = 150
"""Tokens of their prompts: a thinker that thinks alone has as many before its mean token."""


class Recording(NamedTuple):
    """An organization, and how it solves problems."""

    name: str
    organization: str
    model: str
    task: str
    max_tokens: int | None = None
    settings: Mapping[str, Any] = {}


RECORDINGS = (
    Recording("sequential", "sequential", "pocket", "countdown-mini", 480),
    Recording("parallel", "parallel", "pocket", "countdown-mini", 480),
    Recording("asyncthink", "asyncthink", "pocket-organizer", "countdown-mini"),
    Recording("serial manager", "paramanager", "pocket-manager", "countdown-mini-four", settings={"calls": 1}),
    Recording("paramanager", "paramanager", "pocket-manager", "countdown-mini-four"),
)
"""The serial manager is trained for rounds of several calls, and makes one here."""
FASTER = {"asyncthink": "sequential", "paramanager": "serial manager"}
"""Organizations that are to be faster, and than which."""


class Request(NamedTuple):
    """What an agent samples without a pause, and what ends it."""

    tokens: int
    """Tokens that it samples; 0 for code."""
    forks: tuple[tuple[int, AgentProgram], ...]
    """Children, each with the number of tokens before its fork."""
    then: JoinChild | ReadTokens | WaitSeconds | None
    """What follows; `None`: its end."""


def requests(program: AgentProgram) -> tuple[Request, ...]:
    """A program by its pauses."""
    found, tokens, forks = list[Request](), 0, list[tuple[int, AgentProgram]]()
    for operation in program.operations:
        match operation:
            case DecodeTokens():
                tokens += operation.tokens
            case ForkChild(child):
                forks.append((tokens, child))
            case _:
                found.append(Request(tokens, tuple(forks), operation))
                tokens, forks = 0, []
    return (*found, Request(tokens, tuple(forks), None))


class Scheduled(Engine):
    """An engine whose streams end after the tokens of their segment, as if they had completed a stop text."""

    native_calls = False

    def __init__(self, engine: Engine) -> None:
        self.engine, self.model = engine, engine.model
        self.prompt, self.injection, self.turn, self.aclose = (
            engine.prompt,
            engine.injection,
            engine.turn,
            engine.aclose,
        )
        self.lengths: dict[str, list[int]] = {}
        """Tokens of each segment, by the prompt of its agent."""

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        done = sum(span.origin is Origin.SAMPLED for span in context.spans)
        tokens = self.lengths[context.messages[0].content][done]
        async with aclosing(self.engine.stream(context, replace(sampling, max_tokens=tokens))) as chunks:
            async for chunk in chunks:
                yield replace(chunk, finish=FinishReason.STOP) if chunk.finish else chunk


@dataclass(frozen=True)
class Replay(Organization):
    """Samples, forks, joins and injects where the record did."""

    program: AgentProgram
    engine: Scheduled
    name: str = "replay"
    roles: tuple[str, ...] = ("agent",)

    async def run(self, problem: Problem, session: Session) -> None:
        drawn = random.Random(problem.id)
        root = self._agent(self.program, session, drawn) if self.program.prompt else session.controller()
        await self._act(root, self.program, session, drawn)

    def _agent(self, program: AgentProgram, session: Session, drawn: random.Random) -> Agent:
        if not program.prompt:
            return session.code("tool")
        prompt = " ".join(f"w{drawn.randrange(1, WORDS)}" for _ in range(max(4, program.prompt)))
        self.engine.lengths[prompt] = [request.tokens for request in requests(program) if request.tokens]
        return session.agent("agent", (Message("user", prompt),))

    async def _act(self, agent: Agent, program: AgentProgram, session: Session, drawn: random.Random) -> str:
        numbers = itertools.count()

        def fork(child: AgentProgram) -> None:
            work = partial(self._act, program=child, session=session, drawn=drawn)
            session.fork(agent, str(next(numbers)), self._agent(child, session, drawn), work)

        for request in requests(program):
            children = iter(request.forks)
            if request.tokens:
                if agent.stop is not None:
                    agent.inject("")  # a Join without a result: it goes on
                async for _ in agent.act(Counted([max(1, position) for position, _ in request.forks])):
                    fork(next(children)[1])
            for _, child in children:
                fork(child)
            match request.then:
                case JoinChild(number):
                    await session.join(agent, str(number))
                case ReadTokens(tokens):
                    agent.inject(" ".join(["w1"] * tokens))
                case WaitSeconds(seconds):
                    await asyncio.sleep(seconds)
        return "done"


class Replayed(NamedTuple):
    """An organization on the large model."""

    seconds: float
    """Of all its episodes, one after the other."""
    steps: int
    """On their critical paths."""
    expected: float
    """Seconds of these steps, each with as many rows as agents decoded at it."""


async def played_again(episode: Episode, engine: Engine) -> Episode:
    """The replay. RuntimeError if its critical path is not that of the record."""
    scheduled, agents = Scheduled(engine), len(episode.traces)
    backing, limits = Backing(scheduled, Sampling(10_000, seed=0)), Limits(agents, depth=agents)
    again = await attempt(Replay(recorded(episode), scheduled), Problem(episode.id, "", ""), backing, limits=limits)
    if critical_path(again) != critical_path(episode):
        raise RuntimeError(f"the replay of {episode.id} is not the recorded one: {again.error}")
    return again


async def replayed(episodes: Sequence[Episode], engine: Engine, step: Sequence[float]) -> Replayed:
    seconds, steps, expected = 0.0, 0, 0.0
    for episode in episodes:
        start = time.perf_counter()
        again = await played_again(episode, engine)
        seconds += time.perf_counter() - start
        steps += critical_path(again)
        expected += float(np.interp(_rows(again), ROWS, step).sum())
    return Replayed(seconds, steps, expected)


def _rows(episode: Episode) -> list[int]:
    """Agents that decode, at each step of the critical path."""
    active = [0] * critical_path(episode)
    for stretch in timeline(episode):
        for at in range(stretch.start, stretch.end):
            active[at] += 1
    return active


async def step_seconds(engine: Engine, rows: int) -> float:
    """Seconds of a decoding step, without prefill: the difference of a long and a short completion."""

    async def complete(tokens: int, repeat: int) -> float:
        backing = Backing(engine, Sampling(tokens, seed=0))
        prompts = [" ".join(f"w{7 * row + repeat + 1}" for _ in range(CONTEXT)) for row in range(rows)]
        start = time.perf_counter()
        await asyncio.gather(*(attempt(Plain(text, tokens), Problem(text, "", ""), backing) for text in prompts))
        return time.perf_counter() - start

    found = [(await complete(24, 2 * i) - await complete(8, 2 * i + 1)) / 16 for i in range(3)]
    return sorted(found)[1]


def solved_by_all() -> dict[str, list[Episode]]:
    """Episodes of each organization at the same problems: the first ones that all organizations of the task solve.

    RuntimeError if there are too few.
    """
    found = {recording.name: _evaluated(recording) for recording in RECORDINGS}
    episodes: dict[str, list[Episode]] = {}
    for recording in RECORDINGS:
        others = [found[other.name] for other in RECORDINGS if other.task == recording.task]
        common = [problem for problem in found[recording.name] if all(solved(other[problem]) for other in others)]
        if len(common) < PROBLEMS:
            raise RuntimeError(f"all organizations solve {len(common)} of {CANDIDATES} problems of {recording.task}")
        episodes[recording.name] = [found[recording.name][problem] for problem in common[:PROBLEMS]]
    return episodes


def solved(episode: Episode) -> bool:
    return episode.grade is not None and episode.grade.all_correct


def _evaluated(recording: Recording) -> dict[str, Episode]:
    with tempfile.TemporaryDirectory() as folder:
        run = orgthink.evaluate(
            recording.task,
            (recording.organization,),
            model=recording.model,
            settings={recording.organization: dict(recording.settings)},
            n=CANDIDATES,
            temperature=0.3,
            max_tokens=recording.max_tokens,
            out=Path(folder) / "run",
        )
        return {episode.problem.id: episode for episode in run.episodes}


async def measure(
    engine: Engine, name: str, episodes: Mapping[str, Sequence[Episode]], shape: str = SHAPE
) -> list[Line]:
    await step_seconds(engine, 1)  # warm up
    step = [await step_seconds(engine, rows) for rows in ROWS]
    done = {one: await replayed(of, engine, step) for one, of in episodes.items()}
    times = ", ".join(f"{seconds * 1e3:.0f}" for seconds in step)
    load = (
        f"{shape}, random weights, bfloat16, {torch.get_num_threads()} threads; {PROBLEMS} solved"
        f" problem of each task; a step of {', '.join(map(str, ROWS))} rows with"
        f" {CONTEXT} tokens of context takes {times} ms"
    )
    lines = []
    for one, other in FASTER.items():
        ratio, promised = done[one].seconds / done[other].seconds, done[one].steps / done[other].steps
        conditions = f"{load}; {done[one].seconds:.1f} and {done[other].seconds:.1f} s; {promised:.2f} in steps"
        lines.append(Line(f"seconds of {one} ÷ {other}, {name}", ratio, "≤ 0.67", ratio <= 0.67, conditions))
    for one, found in done.items():
        ratio = found.seconds / found.expected
        conditions = f"{load}; {found.steps} steps on the critical path"
        lines.append(
            Line(f"seconds of {one} ÷ its steps × their time, {name}", ratio, "≤ 1.1", ratio <= 1.1, conditions)
        )
    return lines


def run() -> Iterator[Line]:
    """The rows of the local engine, or, where vLLM is installed, those of vLLM."""
    episodes = solved_by_all()
    with tempfile.TemporaryDirectory() as folder:
        model = random_model(Path(folder), Qwen3Config(**config_of(SHAPE)), torch.bfloat16)
        yield from asyncio.run(_run(model, episodes))


async def _run(model: Path, episodes: Mapping[str, Sequence[Episode]]) -> list[Line]:
    if importlib.util.find_spec("vllm") is None:
        engine: Engine = LocalEngine.open(model, dtype=torch.bfloat16)
        name = "local"
    else:
        from orgthink.engines.vllm import VllmEngine

        engine, name = await VllmEngine.open(model, dtype="bfloat16", max_model_len=2048), "vLLM"
    try:
        return await measure(engine, name, episodes)
    finally:
        await engine.aclose()
