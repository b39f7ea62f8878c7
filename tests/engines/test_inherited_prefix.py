"""A worker that inherits the context of an agent at work reads none of it again on the local engine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from models import tiny_model

from orgthink.engines.engine import Context
from orgthink.engines.local.cache import PrefixCache
from orgthink.engines.local.engine import LocalEngine
from orgthink.grammar.actions import Event, Fork, Scanner
from orgthink.record.episode import Message, Origin, Problem, Sampling
from orgthink.runtime.agent import Agent, Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.organization import Organization
from orgthink.runtime.session import Session

NOTE = "You are now the subprocess for this subtask: try what begins with 5, and hand its result back."


class Forks(Scanner):
    """Reads a Fork after so many tokens, whatever they are."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self._left = after

    def feed(self, text: str) -> list[Event]:
        self._left -= 1
        return [Event(Fork("1", ""), 0)] if self._left == 0 else []


@dataclass(frozen=True)
class Splits(Organization):
    """Forks one worker, which inherits, and goes on."""

    after: int

    async def run(self, problem: Problem, session: Session) -> str | None:
        organizer = session.agent("organizer", (Message("user", problem.text),))

        async def work(child: Agent) -> str:
            child.tell(NOTE, organizer.id)
            return await child.complete()

        async for _ in organizer.act(Forks(self.after)):
            session.fork(organizer, "1", session.agent("worker", (), inherits=organizer), work)
        return (await session.join(organizer, "1")).text


@pytest.mark.parametrize("threaded", [True, False], ids=["thread", "loop"])
async def test_only_what_is_injected_is_computed(tmp_path: Path, threaded: bool) -> None:
    folder = tiny_model(tmp_path, "bytes", context=1024)
    engine = LocalEngine.open(folder, threaded=threaded, dtype=torch.float32)
    problem = Problem("p", "t", "the question of this episode, some ninety bytes of it so that it weighs something ...")
    sampling = Sampling(80, temperature=1.0, seed=3)
    episode = await attempt(Splits(60), problem, Backing(engine, sampling), limits=Limits(2))
    root, worker = episode.traces
    prompt, note = root.spans[0].tokens, worker.spans[-2]
    inherited = sum(span.tokens for span in worker.spans[:-2])
    assert note.text == NOTE and inherited == prompt + 60, "the worker inherits 60 sampled tokens"
    computed = engine.counters.computed_prompt_tokens - prompt
    assert computed / note.tokens <= 1.1, (computed, note.tokens, inherited)
    own = worker.spans[-1]
    assert own.origin is Origin.SAMPLED and own.logprobs is not None
    await engine.aclose()

    fresh = LocalEngine.open(folder, threaded=False, dtype=torch.float32)
    context = Context((), list(worker.spans[:-1]))
    ids, logprobs = list[int](), list[float]()
    assert own.sampling is not None
    async for chunk in fresh.stream(context, Sampling(10, seed=own.sampling.seed)):
        ids += chunk.token_ids or ()
        logprobs += chunk.logprobs or ()
    await fresh.aclose()
    assert ids == list(own.token_ids or ())[: len(ids)], "it draws what it would without the cache"
    assert logprobs == pytest.approx(own.logprobs[: len(ids)], abs=1e-3)


def test_a_sequence_that_grows_is_no_longer_than_it_is() -> None:
    """Its table grows with it, and what is not there yet equals no token."""
    cache = PrefixCache(0, 1)
    ids = [0] * 255
    key = cache.add(ids)
    for _ in range(3):
        cache.extend(key, len(ids), 0)
        ids.append(0)
        assert cache.find([*ids, 0, 0]) == (len(ids), key)
