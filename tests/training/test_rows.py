"""Rows: masks, ids, and the masks that reinforcement learning will use."""

import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from itertools import accumulate

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from random_episodes import random_program, script_of

from orgthink.engines.engine import Chunk, Context
from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.record.episode import Episode, Origin, Sampling, Span, Trace
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_virtual
from orgthink.tasks.countdown import COUNTDOWN
from orgthink.training.rows import PolicyRow, policy_row, policy_rows, row_of, untrained


def test_the_join_tag_is_trained_and_what_it_brings_is_not():
    engine = ScriptedEngine(
        [
            Turn(" <FORK-1> q </FORK-1> <JOIN-1>", when="main process"),
            Turn(" <RETURN> r </RETURN>", when="Subtask"),
            Turn(" <ANSWER> 1 </ANSWER>", when="r </JOIN-1>"),
        ]
    )
    problem = COUNTDOWN.problem([1, 2, 3, 4, 5, 6], 10)
    episode = run_virtual(attempt(AsyncThink(), problem, Backing(engine, Sampling(50))))
    row = row_of(episode.root)
    trained = [i for i, t in zip(row.token_ids, row.trained, strict=True) if t]
    said = engine.injection(" <FORK-1> q </FORK-1> <JOIN-1> <ANSWER> 1 </ANSWER>")[1]
    assert trained == list(said)
    assert row.token_ids[-len(said) - 2 :] != said  # ` r </JOIN-1>` stands between them
    assert sum(row.trained) == episode.root.steps


class Ledger(ScriptedEngine):
    """Gives every token a log-probability of its own, and remembers which it was and what each request saw."""

    def __init__(self, turns: list[Turn]) -> None:
        super().__init__(turns)
        self.drawn: dict[float, int] = {}
        """Log-probability → id of the token that had it."""
        self.seen: list[list[int]] = []

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        self.seen.append(context.token_ids)
        async with aclosing(super().stream(context, sampling)) as chunks:
            async for chunk in chunks:
                logprobs = tuple(-0.001 * (len(self.drawn) + i) for i in range(1, len(chunk.pieces) + 1))
                self.drawn |= zip(logprobs, chunk.token_ids or (), strict=True)
                yield replace(chunk, logprobs=logprobs)


def played(turns: list[Turn], depth: int = 1, temperature: float = 1.0) -> tuple[Episode, Ledger]:
    engine = Ledger(turns)
    problem = COUNTDOWN.problem([1, 2, 3, 4, 5, 6], 10)
    role = Backing(engine, Sampling(10_000, temperature))
    limits = Limits(3, depth=depth)
    return run_virtual(attempt(AsyncThink(), problem, role, limits=limits, sample=3)), engine


def one_fork(temperature: float = 1.0) -> tuple[Episode, Ledger]:
    return played(
        [
            Turn(" a <FORK-1> q </FORK-1> b <JOIN-1>", when="main process"),
            Turn(" c <RETURN> r <JOIN-1> s </RETURN>", when="Subtask"),
            Turn(" d <ANSWER> 1 </ANSWER>", when="s </JOIN-1>"),
        ],
        temperature=temperature,
    )


def trained(row: PolicyRow) -> list[tuple[int, float]]:
    """Id and log-probability of each trained token."""
    return [(i, p) for i, p, t in zip(row.token_ids, row.logprobs, row.trained, strict=True) if t]


def test_policy_rows_of_a_fork_and_a_join():
    episode, engine = one_fork(temperature=0.7)
    organizer, worker = policy_rows(episode, -0.5)
    assert [organizer.agent, worker.agent] == ["organizer", "organizer/1"]
    for row in (organizer, worker):
        assert (row.advantage, row.temperature) == (-0.5, 0.7)
        assert row.episode == "countdown/1-2-3-4-5-6=10|asyncthink|3"
        assert row.group == "countdown/1-2-3-4-5-6=10"
    said = " a <FORK-1> q </FORK-1> b <JOIN-1>", " d <ANSWER> 1 </ANSWER>"
    before, after = (engine.injection(text)[1] for text in said)
    injected = engine.injection(" r <JOIN-1> s </JOIN-1>")[1]  # what a worker returns is never trained, tags or not
    assert [i for i, _ in trained(organizer)] == [*before, *after]
    generated = (*before, *injected, *after)
    prompt = len(organizer) - len(generated)
    mask = [False] * prompt + [True] * len(before) + [False] * len(injected) + [True] * len(after)
    assert organizer.token_ids[prompt:] == generated
    assert list(organizer.trained) == mask
    assert [i for i, _ in trained(worker)] == list(engine.injection(" c <RETURN> r <JOIN-1> s </RETURN>")[1])


@given(st.integers(0, 1 << 30), st.integers(1, 2), st.floats(-3, 3))
@example(964816, 2, 0.0)  # the episode ends after a worker was joined, before the joining one goes on
def test_policy_rows_hold_what_the_engine_drew(seed: int, depth: int, advantage: float):
    """Random organizations that fork, join, fail and forget to return; the engine's own ledger is the witness."""
    rng = random.Random(seed)
    episode, engine = played(script_of(random_program(rng, depth), rng), depth=depth)
    rows = policy_rows(episode, advantage)
    assert [row.agent for row in rows] == [trace.agent for trace in episode.traces if trace.steps]
    for row in rows:
        trace = episode.trace(row.agent)
        assert row == policy_row(trace, episode=episode.id, group=episode.problem.id, advantage=advantage)
        last = max(i for i, span in enumerate(trace.spans) if span.origin is Origin.SAMPLED and span.tokens)
        spans = trace.spans[: last + 1]  # what is injected after it decides nothing that is trained
        assert row.token_ids == tuple(i for span in spans for i in span.token_ids or ())
        assert len(row) == len(row.trained) == len(row.logprobs) == len(row.age)
        assert sum(row.trained) == trace.steps
        for token, logprob in trained(row):
            assert engine.drawn.pop(logprob) == token  # each token that was drawn is in one place
        assert {p for p, t in zip(row.logprobs, row.trained, strict=True) if not t} == {0.0}
        assert (row.advantage, row.episode, row.group) == (advantage, episode.id, episode.problem.id)
        ends = list(accumulate(span.tokens for span in spans))
        for span, end in zip(spans, ends, strict=True):
            assert set(row.trained[end - span.tokens : end]) <= {span.origin is Origin.SAMPLED}
    assert len(engine.drawn) <= len(episode.traces)  # but for those of the very last moment
    whole = [list(row_of(trace).token_ids) for trace in episode.traces]
    for context in engine.seen:  # a row ends with what was sampled last, and a request may have seen more
        assert any(ids[: len(context)] == context for ids in whole)


def changed(episode: Episode, agent: str, origin: Origin, **fields: object) -> Episode:
    """The record with other fields in the last span of an origin in an agent's trace."""

    def change(trace: Trace) -> Trace:
        if trace.agent != agent:
            return trace
        last = max(i for i, span in enumerate(trace.spans) if span.origin is origin)
        spans = (replace(s, **fields) if i == last else s for i, s in enumerate(trace.spans))  # type: ignore[arg-type]
        return replace(trace, spans=tuple(spans))

    return replace(episode, traces=tuple(map(change, episode.traces)))


@pytest.mark.parametrize("agent", ["organizer", "organizer/1"])
@pytest.mark.parametrize(
    ("lacking", "message"),
    [
        ({"token_ids": None}, "lacks ids"),
        ({"logprobs": None}, "log-probabilities"),
        ({"sampling": None}, "settings"),
        ({"sampling": Sampling(50, top_p=0.95)}, "top_p 0.95"),
        ({"sampling": Sampling(50, temperature=0.0)}, "temperature"),
        ({"sampling": Sampling(50, temperature=float("nan"))}, "temperature"),
    ],
)
def test_what_cannot_be_trained_is_named(agent: str, lacking: dict[str, object], message: str):
    episode = changed(one_fork()[0], agent, Origin.SAMPLED, **lacking)
    with pytest.raises(ValueError, match=rf"^episode countdown/1-2-3-4-5-6=10\|asyncthink\|3, {agent}: .*{message}"):
        policy_rows(episode, 1.0)


def aged(versions: Sequence[str | None], version: int | None) -> tuple[PolicyRow, list[Span]]:
    """The row of a trace whose spans these versions sampled, in turn, and the spans."""
    root = one_fork()[0].root
    versions = iter(versions)
    spans = [replace(s, policy_version=next(versions)) if s.origin is Origin.SAMPLED else s for s in root.spans]
    ids = {"episode": "e", "group": "g"}
    return policy_row(replace(root, spans=tuple(spans)), **ids, advantage=1.0, version=version), spans


def test_a_token_is_as_old_as_the_updates_since_the_weights_that_drew_it():
    row, spans = aged(["3", "12"], version=12)
    assert (row.episode, row.group, row.agent) == ("e", "g", "organizer")
    drawn_by = [span.policy_version if span.origin is Origin.SAMPLED else None for span in spans]
    assert drawn_by.count("3") == drawn_by.count("12") == 1
    ages = {None: 0, "3": 9, "12": 0}
    assert row.age == tuple(ages[by] for by, span in zip(drawn_by, spans, strict=True) for _ in range(span.tokens))


@pytest.mark.parametrize(
    ("drawn_by", "message"),
    [("13", "newer"), ("main", "not a number"), (None, "not a number"), ("-1", "not a number"), ("²", "not a number")],
)
def test_a_version_that_cannot_be_is_named(drawn_by: str | None, message: str):
    with pytest.raises(ValueError, match=f"^episode e, organizer: sampled by version {drawn_by}, .*{message}"):
        aged(["12", drawn_by], version=12)


@given(st.data())
def test_untrained_tokens_are_seen_and_nothing_else_changes(data: st.DataObject):
    row, _ = aged(["3", "5"], version=9)
    places = data.draw(st.sets(st.integers(0, len(row) - 1)))
    left = untrained(row, places)
    for at in range(len(row)):
        expected = (False, 0, 0) if at in places else (row.trained[at], row.logprobs[at], row.age[at])
        assert (left.trained[at], left.logprobs[at], left.age[at]) == expected
    assert replace(left, trained=row.trained, logprobs=row.logprobs, age=row.age) == row
