"""Tokens in and out of verl's servers, through a client that answers as they do: in stretches, at times cut short."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
from engines.models import tiny_model
from hypothesis import given
from hypothesis import strategies as st

from orgthink.engines.engine import Chunk, Context, EngineError, FinishReason
from orgthink.engines.local.engine import LocalEngine
from orgthink.models.tokenizer import Tokenizer
from orgthink.record.episode import Message, Origin, Sampling, Span
from orgthink.training.cluster.verl.engine import VerlEngine

FOLDER = TemporaryDirectory()
MODEL = tiny_model(Path(FOLDER.name), context=1024)
TOKENIZER = Tokenizer(MODEL)
(EOS,) = TOKENIZER.eos_ids
TEXT = TOKENIZER.encode("3 * 5 15 29 ; 7 + 8 15 <JOIN-1> 4 - 2 2 ; 9 + 9 18 1 + 1 2 ;")


@dataclass
class Told:
    """A client whose model always says the same, and whose servers are paused at some places for new weights."""

    ids: tuple[int, ...]
    """What it says after the prompt."""
    prompt: int
    """Tokens of the prompt."""
    pauses: list[int] = field(default_factory=list)
    """Before which tokens it is paused."""
    version: int = 0
    asked: list[dict[str, Any]] = field(default_factory=list)

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Any:
        await asyncio.sleep(0)
        self.asked.append(sampling_params)
        at = len(prompt_ids) - self.prompt
        assert list(self.ids[:at]) == prompt_ids[self.prompt :], "what it said before comes back"
        said = self.ids[at : at + sampling_params["max_tokens"]]
        for count in range(1, len(said) + 1):
            if any(stop in TOKENIZER.decode(said[:count]) for stop in sampling_params.get("stop", ())):
                said = said[:count]
                break
        reason, drawn_by = "completed", self.version
        if self.pauses and self.pauses[0] <= at + len(said):
            said, reason = said[: self.pauses.pop(0) - at], "aborted"
            self.version += 1
        logprobs = [-float(place) for place in range(at, at + len(said))]
        return SimpleNamespace(
            token_ids=list(said), log_probs=logprobs, stop_reason=reason, extra_fields={"global_steps": drawn_by}
        )


def context(text: str = "7 + 8", signals: tuple[str, ...] = ()) -> Context:
    ids = TOKENIZER.encode(text)
    return Context((Message("user", text),), [Span(Origin.PROMPT, text, len(ids), ids)], signals=signals)


def said_by(
    client: Told, sampling: Sampling, *, stretch: int, most: int = 1000, signals: tuple[str, ...] = ()
) -> list[Chunk]:
    engine = VerlEngine(client, TOKENIZER, name="tiny", context=most, stretch=stretch)

    async def listen() -> list[Chunk]:
        async with aclosing(engine.stream(context(signals=signals), sampling)) as stream:
            return [chunk async for chunk in stream]

    return asyncio.run(listen())


def tokens(chunks: list[Chunk]) -> list[int]:
    return [i for chunk in chunks for i in chunk.token_ids or ()]


@given(
    st.integers(1, 60),
    st.integers(1, 40),
    st.lists(st.integers(0, len(TEXT)), max_size=4),
    st.sets(st.sampled_from(["15", ";", "7 + 8", "nowhere"])),
)
def test_however_it_is_cut_the_output_is_the_same(stretch: int, most: int, pauses: list[int], signals: set[str]):
    from unittest.mock import patch

    with patch("orgthink.training.cluster.verl.engine.PAUSED", 0):
        client = Told((*TEXT, EOS), len(context().token_ids), sorted(pauses))
        chunks = said_by(client, Sampling(most, stop=("<JOIN-1>",)), stretch=stretch, signals=tuple(signals))
    stop = TEXT.index(TOKENIZER.id_of("<JOIN-1>")) + 1
    assert tokens(chunks) == list(TEXT[: min(most, stop)])
    assert [p for chunk in chunks for p in chunk.logprobs or ()] == [-float(i) for i in range(min(most, stop))]
    assert [chunk.finish for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].finish is (FinishReason.STOP if most >= stop else FinishReason.LENGTH)
    assert "".join(p for chunk in chunks for p in chunk.pieces) == TOKENIZER.decode(tokens(chunks))
    assert sum(asked["max_tokens"] for asked in client.asked) >= min(most, stop)
    assert all(asked["max_tokens"] <= stretch for asked in client.asked)
    drawn_by = [int(chunk.policy_version or 0) for chunk in chunks]
    assert all(one <= other for one, other in pairwise(drawn_by))


def test_a_signal_ends_a_request_and_not_the_output():
    client = Told((*TEXT, EOS), len(context().token_ids))
    chunks = said_by(client, Sampling(500), stretch=500, signals=("<JOIN-1>",))
    signal = TEXT.index(TOKENIZER.id_of("<JOIN-1>")) + 1
    assert [chunk.token_ids for chunk in chunks] == [TEXT[:signal], (*TEXT[signal:], EOS)]
    assert [chunk.finish for chunk in chunks] == [None, FinishReason.EOS]
    assert [asked["max_tokens"] for asked in client.asked] == [500, 500 - signal]


def test_each_chunk_names_the_weights_that_drew_it():
    client = Told((*TEXT, EOS), len(context().token_ids), [5, 9])
    chunks = said_by(client, Sampling(12), stretch=6)
    assert [(chunk.policy_version, len(chunk.pieces)) for chunk in chunks] == [("0", 5), ("1", 4), ("2", 3)]


def test_the_token_that_ends_the_text_is_said_and_is_no_text():
    chunks = said_by(Told((*TEXT, EOS), len(context().token_ids)), Sampling(500), stretch=500)
    assert tokens(chunks) == [*TEXT, EOS]
    assert (chunks[-1].pieces[-1], chunks[-1].finish) == ("", FinishReason.EOS)


def test_a_server_that_fails_or_says_nothing_is_an_engine_error():
    class Broken(Told):
        async def generate(self, request_id: str, **said: Any) -> Any:
            raise RuntimeError("first line\nthe actor died")

    with pytest.raises(EngineError, match="the actor died"):
        said_by(Broken(TEXT, 0), Sampling(5), stretch=3)
    with pytest.raises(EngineError, match="no token"):
        said_by(Told((), len(context().token_ids)), Sampling(5), stretch=3)


async def test_who_is_cancelled_waits_until_nothing_is_sampled_any_more():
    over = asyncio.Event()

    class Slow(Told):
        async def generate(self, request_id: str, **said: Any) -> Any:
            try:
                await asyncio.sleep(0.2)
                return await Told.generate(self, request_id, **said)
            finally:
                over.set()

    engine = VerlEngine(Slow(TEXT, len(context().token_ids)), TOKENIZER, name="tiny", context=1000)

    async def listen() -> None:
        async for _ in engine.stream(context(), Sampling(50)):
            pass

    listening = asyncio.ensure_future(listen())
    await asyncio.sleep(0.05)
    listening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await listening
    assert over.is_set()


class Served:
    """A client of the local engine, as the rollout server of the CPU platform asks it."""

    def __init__(self, engine: LocalEngine) -> None:
        self._engine = engine

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Any:
        told = {name: sampling_params.get(name) for name in ("max_tokens", "temperature", "top_p", "seed")}
        prompt = Context((), [Span(Origin.PROMPT, "", len(prompt_ids), tuple(prompt_ids))])
        ids, logprobs = [], []
        sampling = Sampling(**told, stop=tuple(sampling_params.get("stop", ())))  # type: ignore[arg-type]
        async for chunk in self._engine.stream(prompt, sampling):
            ids += chunk.token_ids or ()
            logprobs += chunk.logprobs or ()
        return SimpleNamespace(token_ids=ids, log_probs=logprobs, stop_reason="completed", extra_fields={})


async def test_it_draws_what_the_local_engine_draws():
    """Whatever the stretch: a seed goes on where it was left."""
    local = LocalEngine.open(MODEL, threaded=False)
    messages = (Message("user", "Use each of 3 5 7 9 at most once to make 24."),)
    for stretch in (5, 64):
        engine = VerlEngine(Served(local), TOKENIZER, name="tiny", context=1024, stretch=stretch)
        seen = Context(messages, [engine.prompt(messages)])
        sampling = Sampling(40, 1.0, seed=11)
        ours = [chunk async for chunk in engine.stream(seen, sampling)]
        theirs = [chunk async for chunk in local.stream(seen, sampling)]
        assert tokens(ours) == tokens(theirs)
        assert [p for c in ours for p in c.logprobs or ()] == pytest.approx(
            [p for c in theirs for p in c.logprobs or ()], abs=1e-5
        )
        assert ours[-1].finish is theirs[-1].finish
