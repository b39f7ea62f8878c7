"""Segment rollouts (UloRL, section 2.3 of MarsRL): an output is decoded in stretches of a fixed number of tokens.

What is not finished after a stretch is carried on from its prefix in a later one, perhaps with other weights: each
span keeps the version that sampled it.
"""

from __future__ import annotations

import time
from contextlib import aclosing
from dataclasses import dataclass, replace

from orgthink.engines.engine import Context, Engine, EngineError, Finish
from orgthink.engines.local.sampling import ahead
from orgthink.episode import Message, Sampling, Status, StopReason
from orgthink.runtime.draft import Draft
from orgthink.training.marsrl.chain import Member


@dataclass(frozen=True, slots=True)
class Lengths:
    """How far outputs are decoded."""

    most: int
    """Tokens of a whole output."""
    segment: int
    """Tokens of a stretch."""
    temperature: float
    """Nothing else shapes the distribution, so importance ratios are unbiased."""


async def go_on(engine: Engine, messages: tuple[Message, ...], member: Member, lengths: Lengths) -> Member:
    """The member after one more stretch. Raises EngineError.

    With the same weights the tokens are those of one go, on engines whose draws depend on the seed and the number of
    tokens before (`local`).
    """
    trace = member.trace
    spans = list(trace.spans) or [engine.prompt(messages)]
    left = lengths.most - trace.steps
    sampling = Sampling(min(lengths.segment, left), lengths.temperature, seed=ahead(member.seed, trace.steps))
    draft = Draft(sampling, time.time())
    finish: Finish | None = None
    async with aclosing(engine.stream(Context(messages, spans), sampling)) as stream:
        async for chunk in stream:
            for i in range(len(chunk.pieces)):
                if draft.pieces and draft.version != chunk.policy_version:  # other weights, another span
                    spans.append(draft.span(time.time()))
                    draft = Draft(sampling, time.time())
                draft.add(chunk, i)
            finish = chunk.finish or finish
    now = time.time()
    if draft.pieces:
        spans.append(draft.span(now))
    if finish is None:
        raise EngineError("the stream ended without saying why")
    grown = replace(trace, spans=tuple(spans), turns=trace.turns + 1, end=now)
    if finish is Finish.LENGTH:
        # fewer tokens than were asked for: the end of the model's context
        over = grown.steps >= lengths.most or grown.steps - trace.steps < sampling.max_tokens
        return replace(member, trace=grown, finished=over)
    ended = replace(grown, stop=StopReason.DONE, status=Status.OK)
    return replace(member, trace=ended, finished=True)
