"""Derives episodes of the baselines from recorded ones: a single thinker with a smaller budget, and four that vote.

A token depends on the tokens before it and on the attempt's seed, not on the budget. So a thinker with a smaller
budget samples the first tokens of the same trace, and it answers if the answer is complete within them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from orgthink.episode import (
    CONTROLLER,
    Edge,
    EdgeKind,
    Episode,
    Exhausted,
    FormatError,
    FormatFault,
    Origin,
    Span,
    Status,
    StopReason,
    Trace,
    episode_id,
)
from orgthink.grading import grade
from orgthink.tasks import TASKS
from orgthink.tasks.vote import vote

Decode = Callable[[Sequence[int]], str]
"""Function from token ids to their text."""


def cut(episode: Episode, budget: int, decode: Decode) -> Episode:
    """The episode that the same attempt of a single thinker with `budget` tokens would have recorded.

    The seconds are scaled by the number of tokens. ValueError unless the attempt is one sampled span with ids.
    """
    trace = episode.root
    if trace.steps <= budget:
        return episode
    sampled = [span for span in trace.spans if span.origin is Origin.SAMPLED]
    if len(episode.traces) > 1 or len(sampled) > 1 or sampled[0].token_ids is None:
        raise ValueError(f"episode {episode.id} is not one sampled span with its ids: it cannot be cut")
    span = _first(sampled[0], budget, decode)
    ended = replace(
        trace,
        spans=(*trace.spans[: trace.spans.index(sampled[0])], span),
        stop=StopReason.BUDGET,
        exhausted=Exhausted("tokens", budget, budget),
        status=Status.TRUNCATED,
        returned=None,
        end=span.end or 0.0,
    )
    fault = FormatFault(FormatError.TRUNCATED, trace.agent, budget)
    without = replace(
        episode,
        traces=(ended,),
        answer=None,
        format_faults=(fault,),
        stop=StopReason.BUDGET,
        seconds=episode.seconds * budget / trace.steps,
    )
    return grade(without, TASKS[episode.problem.task])


def voted(thinkers: Sequence[Episode], sample: int = 0) -> Episode:
    """The episode of parallel thinking whose thinkers are these single attempts at one problem."""
    problem, keys = thinkers[0].problem, [str(i) for i in range(1, len(thinkers) + 1)]
    names = [f"{CONTROLLER}/{key}" for key in keys]
    traces = [
        replace(thinker.root, agent=name, parent=CONTROLLER) for thinker, name in zip(thinkers, names, strict=True)
    ]
    edges = [Edge(kind, key, name, 0) for kind in EdgeKind for key, name in zip(keys, names, strict=True)]
    answer = vote(problem, [thinker.answer for thinker in thinkers if thinker.answer is not None])
    seconds = max(thinker.seconds for thinker in thinkers)
    status = Status.NO_RETURN if answer is None else Status.OK
    root = Trace(CONTROLLER, CONTROLLER, None, (), tuple(edges), status=status, returned=answer, end=seconds)
    faults = [replace(f, agent=name) for t, name in zip(thinkers, names, strict=True) for f in t.format_faults]
    episode = Episode(
        id=episode_id(problem, "parallel", sample),
        problem=problem,
        organization="parallel",
        capacity=thinkers[0].capacity,
        traces=(root, *traces),
        sample=sample,
        answer=answer,
        format_faults=tuple(faults),
        seconds=seconds,
    )
    return grade(episode, TASKS[problem.task])


def _first(span: Span, tokens: int, decode: Decode) -> Span:
    """The first tokens of a sampled span."""
    assert span.token_ids is not None
    ids = span.token_ids[:tokens]
    end = (
        None if span.start is None or span.end is None else span.start + (span.end - span.start) * tokens / span.tokens
    )
    logprobs = None if span.logprobs is None else span.logprobs[:tokens]
    return replace(span, text=decode(ids), tokens=tokens, token_ids=ids, logprobs=logprobs, end=end)
