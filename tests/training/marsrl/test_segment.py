"""Segment rollouts: with one policy version the same as in one go; with several, every token keeps its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from random import Random

import pytest
import torch
from echo import ECHO
from hypothesis import given
from hypothesis import strategies as st
from mars_words import Habits, WordEngine
from terse import TERSE
from tiny_policy import TINY

from orgthink.engines.engine import Engine, EngineError
from orgthink.engines.local.engine import LocalEngine
from orgthink.engines.local.qwen3 import Qwen3
from orgthink.episode import Message, Origin, Span, Status, StopReason, Trace
from orgthink.training.marsrl.chain import Asked, Member
from orgthink.training.marsrl.segment import Lengths, go_on
from orgthink.training.rows import policy_row

pytestmark = pytest.mark.usefixtures("tiny_policy")

MESSAGES = Asked("solver").messages(ECHO.problem(3, 5), TERSE)
MOST = 64
HEAT = 2.5
"""Outputs are longer than what the model has learned."""


@cache
def weights(noise: float) -> dict[str, torch.Tensor]:
    """The tiny model's, disturbed."""
    torch.manual_seed(0)
    return {name: w + noise * torch.randn_like(w) for name, w in Qwen3.load(TINY).to_hf().items()}


@cache
def sampler() -> LocalEngine:
    return LocalEngine.open(TINY, threaded=False)


def begun(seed: int) -> Member:
    return Member(Trace("solver/0", "solver", None, (), (), StopReason.LENGTH, Status.TRUNCATED), seed)


async def decoded(
    engine: Engine, members: Sequence[Member], segments: Sequence[int], messages: tuple[Message, ...] = MESSAGES
) -> list[Member]:
    """The members after stretches of these lengths, the last as often as it takes; side by side, as in a step."""
    members, lengths = list(members), list(segments)
    while any(not member.finished for member in members):
        stretch = Lengths(MOST, lengths.pop(0) if len(lengths) > 1 else lengths[0], HEAT)
        live = [i for i, member in enumerate(members) if not member.finished]
        grown = await asyncio.gather(*(go_on(engine, messages, members[i], stretch) for i in live))
        for i, member in zip(live, grown, strict=True):
            members[i] = member
    return members


def sampled(member: Member) -> list[Span]:
    return [span for span in member.trace.spans if span.origin is Origin.SAMPLED]


def ids(member: Member) -> list[int]:
    return [i for span in sampled(member) for i in span.token_ids or ()]


def logprobs(member: Member) -> list[float]:
    return [p for span in sampled(member) for p in span.logprobs or ()]


def versions(member: Member) -> list[str | None]:
    return [span.policy_version for span in sampled(member) for _ in range(span.tokens)]


def end(member: Member) -> tuple[object, ...]:
    trace = member.trace
    return trace.text, trace.stop, trace.status, trace.steps, member.finished


# One policy version


@cache
def in_one_go() -> list[Member]:
    return asyncio.run(decoded(sampler(), [begun(seed) for seed in range(12)], [MOST]))


@pytest.mark.parametrize("segments", [(1,), (MOST - 1,), *(Random(i).choices(range(1, MOST), k=4) for i in range(4))])
def test_segments_give_the_tokens_and_log_probabilities_of_one_go(segments):
    whole = in_one_go()
    assert {member.trace.stop for member in whole} == {StopReason.DONE, StopReason.LENGTH}, "both ends are seen"
    cut = asyncio.run(decoded(sampler(), [begun(seed) for seed in range(12)], segments))
    for one, other in zip(whole, cut, strict=True):
        assert ids(other) == ids(one)
        assert logprobs(other) == pytest.approx(logprobs(one), abs=1e-5)
        assert end(other) == end(one)
        assert other.trace.spans[0] == one.trace.spans[0], "the prompt is there once"


@given(st.integers(0, 99), st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_segments_of_any_engine_whose_draws_follow_the_seed_are_those_of_one_go(seed, segments):
    habits, messages = Habits(), (Message("user", "sequential 7"),)
    engine = WordEngine(habits)
    (cut,) = asyncio.run(decoded(engine, [begun(seed)], segments, messages))
    assert cut.trace.text == habits("sequential 7", Random(seed))
    assert cut.trace.turns == len(engine.requests)
    assert [there for _, there, _ in engine.requests] == [
        sum(span.tokens for span in sampled(cut)[:i]) for i in range(cut.trace.turns)
    ]


# Ends


def words(text: str, segments: Sequence[int], context: int = 1 << 20) -> tuple[Member, WordEngine]:
    engine = WordEngine(lambda asked, luck: text, context=context)
    (member,) = asyncio.run(decoded(engine, [begun(0)], segments, (Message("user", "two words"),)))
    return member, engine


@pytest.mark.parametrize(
    ("text", "segments", "requests", "stop"),
    [
        ("", [4], 1, StopReason.DONE),  # the end of the text is the first token
        (" a b c", [4], 1, StopReason.DONE),  # the end of the text is the last token of a segment
        (" a b c d", [4], 2, StopReason.DONE),  # the end of the text is the first token of a segment
        (" a b c d e", [4], 2, StopReason.DONE),
        (" a" * (MOST - 1), [MOST // 2], 2, StopReason.DONE),  # it ends with the last token that it may have
        (" a" * MOST, [MOST // 2], 2, StopReason.LENGTH),
        (" a" * MOST, [MOST - 1], 2, StopReason.LENGTH),
        (" a" * 99, [MOST], 1, StopReason.LENGTH),
    ],
)
def test_an_output_ends_where_it_ends_whatever_the_segments(text, segments, requests, stop):
    member, engine = words(text, segments)
    assert (len(engine.requests), member.trace.stop) == (requests, stop)
    assert member.trace.status is (Status.OK if stop is StopReason.DONE else Status.TRUNCATED)
    assert member.trace.text == " a" * MOST if stop is StopReason.LENGTH else member.trace.text == text
    assert member.trace.steps == min(MOST, len(text.split()) + 1)
    assert all(there + most <= MOST for _, there, most in engine.requests)


@pytest.mark.parametrize(("context", "requests"), [(6, 2), (7, 2), (8, 2), (10, 3)])
def test_the_end_of_the_models_context_ends_an_output(context, requests):
    """A prompt of two tokens and segments of four: at 6 and 10 the context ends with a segment, and the next finds it
    full."""
    member, engine = words(" a" * 99, [4], context)
    assert (member.trace.stop, member.trace.steps, member.finished) == (StopReason.LENGTH, context - 2, True)
    assert len(engine.requests) == requests
    row = policy_row(member.trace, episode="e", group="g", advantage=1.0, version=0)
    assert len(row) == len(row.logprobs) == context


def test_a_stream_that_just_stops_is_an_error():
    class Broken(WordEngine):
        async def stream(self, context, sampling):
            async for chunk in super().stream(context, sampling):
                yield replace(chunk, finish=None)

    engine = Broken(lambda asked, luck: " a")
    with pytest.raises(EngineError, match="without saying why"):
        asyncio.run(go_on(engine, (Message("user", "x"),), begun(0), Lengths(4, 4, 1.0)))


# Several policy versions


@pytest.mark.parametrize("segments", [(1, 1, 1, 1), *(Random(i).choices(range(1, 16), k=4) for i in range(4))])
def test_every_token_keeps_the_version_that_drew_it(segments):
    """Weights change between any two segments; what was sampled before stays as it was, to the bit."""

    async def trained() -> list[Member]:
        engine, live = sampler(), [begun(seed) for seed in range(6)]
        for version, length in enumerate(segments):
            await engine.update_weights(weights(0.002 * version), str(version))
            for i, member in enumerate(live):
                if not member.finished:
                    live[i] = grown = await go_on(engine, MESSAGES, member, Lengths(MOST, length, HEAT))
                    require_aligned(grown, version)
                    assert grown.trace.spans[: len(member.trace.spans)] == member.trace.spans
                    assert grown.trace.turns == version + 1
        return live

    try:
        for member in asyncio.run(trained()):
            drawn = versions(member)
            expected = [str(version) for version, length in enumerate(segments) for _ in range(length)]
            assert drawn == expected[: len(drawn)]
            assert member.finished or len(drawn) == min(MOST, sum(segments))
    finally:
        asyncio.run(sampler().update_weights(weights(0.0), "tiny"))


def require_aligned(member: Member, newest: int) -> None:
    """Ids, masks, log-probabilities and versions are of one length, and ages count from the newest weights."""
    for span in sampled(member):
        assert span.tokens == len(span.token_ids or ()) == len(span.logprobs or ())
    row = policy_row(member.trace, episode="e", group="g", advantage=1.0, version=newest)
    assert len(row) == len(row.trained) == len(row.logprobs) == len(row.age)
    prompt = member.trace.spans[0].tokens
    assert row.trained == (False,) * prompt + (True,) * member.trace.steps
    assert row.token_ids[prompt:] == tuple(ids(member))
    assert row.logprobs == (0.0,) * prompt + tuple(logprobs(member))
    assert row.age == (0,) * prompt + tuple(newest - int(version or "") for version in versions(member))


async def test_weights_that_change_in_the_middle_of_a_segment_begin_a_span():
    engine = WordEngine(lambda asked, luck: " a b c d e f g")
    plain = engine.stream

    async def updated(context, sampling):
        async for chunk in plain(context, sampling):
            yield chunk
            if chunk.pieces == (" c",):
                engine.version = "1"

    engine.stream = updated  # type: ignore[method-assign]
    member = await go_on(engine, (Message("user", "x"),), begun(0), Lengths(MOST, 5, 1.0))
    assert [(span.text, span.policy_version) for span in sampled(member)] == [(" a b c", "0"), (" d e", "1")]
    member = await go_on(engine, (Message("user", "x"),), member, Lengths(MOST, 5, 1.0))
    assert [span.text for span in sampled(member)] == [" a b c", " d e", " f g"]
    require_aligned(member, 2)
    assert member.trace.stop is StopReason.DONE
