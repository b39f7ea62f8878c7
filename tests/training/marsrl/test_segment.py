"""Segment rollouts: the same tokens as without segments, and each token keeps its policy version."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain as chained
from itertools import repeat
from random import Random

import pytest
import torch
from engines.models import tiny_model
from longest_path import longest_path
from mars_words import WordEngine
from terse import TERSE

from orgthink.engines.engine import Engine
from orgthink.engines.local.engine import LocalEngine
from orgthink.measure.latency import critical_path
from orgthink.models.decoder import Decoder
from orgthink.record.episode import Episode, Origin, Sampling, Span, Status, StopReason, Trace
from orgthink.record.episode_json import dump, load
from orgthink.rewards.marsrl import MarsReward
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.tasks.math import MATH
from orgthink.training.marsrl.chain import Rules, outputs_of
from orgthink.training.marsrl.rollout import MarsRollout
from orgthink.training.marsrl.segments import Segments
from orgthink.training.rows import policy_row

PROBLEM = MATH.problem("3 * ( 2 + 10 )", "36")
MOST = 64
HEAT = 1.0
PLAN = MarsRollout("math", TERSE, max_tokens=MOST, group=12, roles=("solver",))


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalEngine]:
    """A random model."""
    opened = LocalEngine.open(tiny_model(tmp_path_factory.mktemp("tiny"), "words"), threaded=False)
    yield opened
    asyncio.run(opened.aclose())


async def stretched(engine: Engine, segment: int, record: Episode | None, group: int = 12, seed: int = 0) -> Episode:
    """A chain of solvers alone after one more stretch of each, from what the disk would hold of it."""
    plan = replace(PLAN, segment=segment, group=group)
    before = Episode("", PROBLEM, "marsrl", 1, ()) if record is None else load(dump(record))
    segments = Segments(Rules(plan, MATH, MarsReward(), seed), lambda messages: True, before)
    backing, limits = Backing(engine, Sampling(segment, HEAT)), Limits(capacity=group, max_tokens=MOST)
    return await attempt(segments, PROBLEM, backing, limits=limits, since=record.seconds if record else 0.0)


async def finished(engine: Engine, segments: Sequence[int], **plan: int) -> list[Trace]:
    """Outputs after stretches of these lengths, the last as often as it takes."""
    record: Episode | None = None
    for segment in chained(segments[:-1], repeat(segments[-1])):
        record = await stretched(engine, segment, record, **plan)
        if not any(trace.stop is StopReason.LENGTH for trace in record.traces):
            break
    assert record is not None and critical_path(record) == longest_path(record)
    return list(outputs_of(record.traces).values())


def sampled(trace: Trace) -> list[Span]:
    return [span for span in trace.spans if span.origin is Origin.SAMPLED]


def ids(trace: Trace) -> list[int]:
    return [i for span in sampled(trace) for i in span.token_ids or ()]


def logprobs(trace: Trace) -> list[float]:
    return [p for span in sampled(trace) for p in span.logprobs or ()]


def versions(trace: Trace) -> list[str | None]:
    return [span.policy_version for span in sampled(trace) for _ in range(span.tokens)]


def end(trace: Trace) -> tuple[object, ...]:
    return trace.text, trace.stop, trace.status, trace.steps, trace.returned


# One policy version

SEGMENTS = [(1,), (MOST - 1,), *(Random(i).choices(range(1, MOST), k=4) for i in range(2))]


@pytest.fixture(scope="module")
def in_one_go(engine: LocalEngine) -> list[Trace]:
    return asyncio.run(finished(engine, [MOST]))


@pytest.mark.parametrize("segments", SEGMENTS)
def test_segments_give_the_tokens_and_log_probabilities_of_one_go(engine, in_one_go, segments):
    assert {trace.stop for trace in in_one_go} == {StopReason.DONE, StopReason.BUDGET}, "both ends are seen"
    cut = asyncio.run(finished(engine, segments))
    for one, other in zip(in_one_go, cut, strict=True):
        assert ids(other) == ids(one)
        assert logprobs(other) == pytest.approx(logprobs(one), abs=1e-5)
        assert end(other) == end(one)
        assert other.spans[0] == one.spans[0], "the prompt is there once"
        assert [span.tokens for span in other.spans[1:]] == lengths(segments, one.steps)


def lengths(segments: Sequence[int], steps: int) -> list[int]:
    """What of so many steps falls into each segment."""
    found: list[int] = []
    for segment in chained(segments[:-1], repeat(segments[-1])):
        if not (left := steps - sum(found)):
            return found
        found.append(min(segment, left))
    raise AssertionError


# Ends


def words(text: str, segment: int, context: int = 1 << 20) -> tuple[Trace, WordEngine]:
    """Of two outputs that are the same, one; and what the engine was asked for both."""
    engine = WordEngine(lambda asked, luck: text, context=context)
    one, other = asyncio.run(finished(engine, [segment], group=2))
    assert end(one) == end(other)
    return one, engine


@pytest.mark.parametrize(
    ("text", "segment", "requests", "stop"),
    [
        ("", 4, 1, StopReason.DONE),  # the end of the text is the first token
        (" a b c", 4, 1, StopReason.DONE),  # the end of the text is the last token of a segment
        (" a b c d", 4, 2, StopReason.DONE),  # the end of the text is the first token of a segment
        (" a b c d e", 4, 2, StopReason.DONE),
        (" a" * (MOST - 1), MOST // 2, 2, StopReason.DONE),  # it ends with the last token that it may have
        (" a" * MOST, MOST // 2, 2, StopReason.BUDGET),
        (" a" * MOST, MOST - 1, 2, StopReason.BUDGET),
        (" a" * 99, MOST, 1, StopReason.BUDGET),
    ],
)
def test_an_output_ends_where_it_ends_whatever_the_segments(text, segment, requests, stop):
    trace, engine = words(text, segment)
    assert (len(engine.requests), trace.turns, trace.stop) == (2 * requests, requests, stop)
    done = Status.OK if text else Status.NO_RETURN
    assert trace.status is (done if stop is StopReason.DONE else Status.TRUNCATED)
    assert trace.text == " a" * MOST if stop is StopReason.BUDGET else trace.text == text
    assert trace.steps == min(MOST, len(text.split()) + 1)
    assert all(there + most <= MOST for _, there, most in engine.requests)


# Several policy versions


@cache
def disturbed(folder: str, noise: float) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {name: w + noise * torch.randn_like(w) for name, w in Decoder.load(folder).to_hf().items()}


@pytest.mark.parametrize("segments", [(1, 1, 1, 1), *(Random(i).choices(range(1, 16), k=4) for i in range(2))])
@pytest.mark.thorough
def test_every_token_keeps_the_version_that_drew_it(tmp_path, segments):
    """Weights change between any two segments; what was sampled before stays as it was, to the bit."""
    folder = tiny_model(tmp_path, "words")

    async def trained() -> list[Trace]:
        engine, record = LocalEngine.open(folder, threaded=False), None
        for version, length in enumerate(segments):
            await engine.update_weights(disturbed(folder, 0.002 * version), str(version))
            before = outputs_of(record.traces) if record else {}
            record = await stretched(engine, length, record, group=6)
            for place, trace in outputs_of(record.traces).items():
                if place in before:
                    old = before[place]
                    assert trace.spans[: len(old.spans)] == old.spans and trace.start == old.start
                    assert trace == old or (old.stop is StopReason.LENGTH and old.end <= trace.end)
                    assert trace.turns == old.turns + (old.stop is StopReason.LENGTH)
                require_aligned(trace, version)
        assert record is not None
        await engine.aclose()
        return list(outputs_of(record.traces).values())

    for trace in asyncio.run(trained()):
        drawn = versions(trace)
        expected = [str(version) for version, length in enumerate(segments) for _ in range(length)]
        assert drawn == expected[: len(drawn)]
        assert trace.stop is not StopReason.LENGTH or len(drawn) == min(MOST, sum(segments))


def require_aligned(trace: Trace, newest: int) -> None:
    """Ids, masks, log-probabilities and versions are of one length, and ages count from the newest weights."""
    for span in sampled(trace):
        assert span.tokens == len(span.token_ids or ()) == len(span.logprobs or ())
    row = policy_row(trace, episode="e", group="g", advantage=1.0, version=newest)
    assert len(row) == len(row.trained) == len(row.logprobs) == len(row.age)
    prompt = trace.spans[0].tokens
    assert row.trained == (False,) * prompt + (True,) * trace.steps
    assert row.token_ids[prompt:] == tuple(ids(trace))
    assert row.logprobs == (0.0,) * prompt + tuple(logprobs(trace))
    assert row.age == (0,) * prompt + tuple(newest - int(version or "") for version in versions(trace))
