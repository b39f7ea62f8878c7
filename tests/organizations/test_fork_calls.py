"""Fork and join as calls of a chat model: the same organization, record, measures and reward as with tags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from longest_path import longest_path
from speaker import PlannedModel, call

from orgthink.evaluation.grading import grade
from orgthink.grammar.toolcall import CallStatus, Response, read_responses
from orgthink.measure.latency import concurrency, critical_path, timeline
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.record.episode import Episode, FormatError, Origin, Sampling, Status, StopReason
from orgthink.rewards.asyncthink import AsyncThinkReward
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_virtual
from orgthink.tasks.math import MATH
from orgthink.training.rows import policy_rows

PROBLEM = MATH.problem("2 + 3?", "5")
OK, PARSE_ERR, EXEC_ERR, TIMEOUT = CallStatus
BY_CALLS = AsyncThink(protocol="tools")


def play(
    organization: AsyncThink,
    plans: Mapping[str, Sequence[str]],
    capacity: int = 4,
    depth: int = 1,
    native: bool = False,
    lag: float = 0.0,
    **limits: Any,
) -> tuple[Episode, PlannedModel]:
    model = PlannedModel(plans, native=native, lag=lag)
    allowed = Limits(capacity, depth=depth, **limits)
    episode = run_virtual(attempt(organization, PROBLEM, Backing(model, Sampling(1000)), limits=allowed))
    return grade(episode, MATH), model


def worker(words: int, text: str, tags: bool = False) -> list[str]:
    """A worker that thinks for so many words and returns a text."""
    thoughts = ["<think>", *[" w"] * words, " </think>"]
    return [*thoughts, f" <RETURN> {text} </RETURN>" if tags else f" {text}"]


def responses_of(episode: Episode) -> list[Response]:
    """What the organizer was told of its calls."""
    spans = [span for span in episode.root.spans if span.origin is Origin.INJECTED]
    return [response for span in spans for response in read_responses(span.text)]


def kinds(episode: Episode) -> list[FormatError]:
    return [fault.kind for fault in episode.format_faults]


# The same plan in tags and in calls


class Step(NamedTuple):
    """Words, and then something done."""

    words: int
    does: str
    """fork, join, malformed or nothing."""
    key: int = 0
    """Which is joined."""


class Plan(NamedTuple):
    """What an organizer does, and how long each of its workers thinks."""

    steps: list[Step]
    answers: bool
    workers: list[int]


STEPS = st.builds(
    Step, st.integers(0, 4), st.sampled_from(["fork", "fork", "fork", "join", "join", "malformed"]), st.integers(1, 4)
)
PLANS = st.builds(Plan, st.lists(STEPS, max_size=8), st.booleans(), st.lists(st.integers(0, 9), min_size=8, max_size=8))


def tokens_of(plan: Plan, tags: bool, capacity: int, queue: bool) -> dict[str, list[str]]:
    """The tokens of everyone. A fork in tags has the id that it would be given: the next free number."""
    organizer, forked, taken = [], 0, set()
    for step in plan.steps:
        organizer += [" w"] * step.words
        match step.does:
            case "fork":
                key, fits = forked + 1, queue or len(taken) < capacity - 1
                organizer.append(f" <FORK-{key}> q{key}. </FORK-{key}>" if tags else call("fork", task=f"q{key}."))
                if fits:
                    forked, taken = key, taken | {key}
            case "join":
                organizer.append(f" <JOIN-{step.key}>" if tags else call("join", id=step.key))
                taken -= {step.key}
            case "malformed":
                organizer.append(" </FORK-1>" if tags else call("frok", task="q"))
    organizer += [" so", " <ANSWER> 5 </ANSWER>" if plan.answers else " what"]
    workers = {f"Subtask: q{i}.": worker(n, f"r{i}", tags) for i, n in enumerate(plan.workers, 1)}
    return {"main process": organizer, **workers}


def record(episode: Episode) -> Any:
    """All of an episode but how it was written: texts, requests to the engine, and what an error was about."""
    return replace(
        episode,
        traces=tuple(replace(trace, spans=(), turns=0) for trace in episode.traces),
        format_faults=tuple(replace(fault, detail="") for fault in episode.format_faults),
    )


def sources(episode: Episode) -> list[str]:
    return [span.source for trace in episode.traces for span in trace.spans if span.source is not None]


@given(PLANS, st.integers(2, 4), st.booleans(), st.booleans())
def test_calls_and_tags_leave_the_same_record(plan: Plan, capacity: int, tolerant: bool, queue: bool) -> None:
    episodes = []
    for protocol in ("tags", "tools"):
        organization = AsyncThink(protocol=protocol, tolerant=tolerant, overflow="queue" if queue else "error")
        plans = tokens_of(plan, protocol == "tags", capacity, queue)
        episodes.append(play(organization, plans, capacity, lag=1 / 16)[0])
    tags, calls = episodes
    assert record(calls) == record(tags) and sources(calls) == sources(tags)
    assert [trace.steps for trace in calls.traces] == [trace.steps for trace in tags.traces]
    for measure in (critical_path, longest_path, timeline, AsyncThinkReward(), AsyncThinkReward(count="joined")):
        assert measure(calls) == measure(tags)
    for count in ("workers", "pool", "joined"):
        assert concurrency(calls, count) == concurrency(tags, count)  # type: ignore[arg-type]
    trained = [[sum(row.trained) for row in policy_rows(episode, 1.0)] for episode in episodes]
    assert trained[0] == trained[1]


# A turn of several calls


def test_the_calls_of_a_turn_are_done_in_order_and_their_joins_waited_for_together() -> None:
    turn = call("fork", task="a.") + call("join", id=1) + call("fork", task="b.") + call("join", id="2")
    plans = {"main process": [" w", turn, " so", " <ANSWER> 5 </ANSWER>"]}
    workers = {"Subtask: a.": worker(7, "found a"), "Subtask: b.": worker(4, "found b")}
    episode, _ = play(BY_CALLS, plans | workers)
    assert episode.answer == "5" and not episode.format_faults
    assert [(edge.kind, edge.key, edge.at) for edge in episode.root.edges] == [
        ("fork", "1", 2), ("fork", "2", 2), ("join", "1", 2), ("join", "2", 2)
    ]  # fmt: skip
    assert [(response.name, response.value) for response in responses_of(episode)] == [
        ("fork", "1"), ("join", "found a"), ("fork", "2"), ("join", "found b")
    ]  # fmt: skip
    assert {response.status for response in responses_of(episode)} == {OK}
    assert episode.traces[1].start == episode.traces[2].start == 2.0, "the second worker does not wait for the first"
    assert critical_path(episode) == longest_path(episode) == 2 + 10 + 2 == episode.seconds


def test_the_organizer_speaks_while_its_workers_work() -> None:
    forks = "".join(call("fork", task=f"q{i}.") for i in range(4))
    joins = "".join(call("join", id=i) for i in (1, 2, 3, 4))
    plans = {"main process": [forks, *[" w"] * 5, joins, " <ANSWER> 5 </ANSWER>"]}
    workers = {f"Subtask: q{i}.": worker(6, f"r{i}") for i in range(4)}
    episode, _ = play(BY_CALLS, plans | workers, capacity=5)
    speaks = next(span for span in episode.root.spans if span.text.startswith(" w"))
    alive = [trace for trace in episode.traces[1:] if trace.start <= speaks.start and trace.end >= speaks.end]  # type: ignore[operator]
    assert len(alive) == 4 and episode.answer == "5"
    assert concurrency(episode, "pool") == pytest.approx((1 + 6 + 1 + 4 * 9) / 11)


# Cancel and status


def test_a_cancelled_worker_ends_and_its_place_is_free() -> None:
    ask = call("status")
    cancel = call("cancel", id=1) + call("fork", task="b.") + ask
    plans = {"main process": [call("fork", task="a."), ask, cancel, call("join", id=2) + ask, " <ANSWER> 5 </ANSWER>"]}
    workers = {"Subtask: a.": [" w"] * 99, "Subtask: b.": worker(1, "b")}
    episode, _ = play(BY_CALLS, plans | workers, capacity=2)
    full, free = "left: tokens at a time 1000, workers 0", "left: tokens at a time 1000, workers 1"
    assert [response.value for response in responses_of(episode)] == [
        "1", f"1: at work\n{full}", "cancelled", "2", f"2: at work\n{full}", "b", f"no worker\n{free}"
    ]  # fmt: skip
    first, second = episode.traces[1:]
    assert (first.status, first.stop, first.cancel, first.steps) == (
        Status.CANCELLED,
        StopReason.CANCELLED,
        "parent",
        2,
    )
    assert second.status is Status.OK and not episode.format_faults and episode.answer == "5"
    assert [edge.key for edge in episode.root.joins] == ["2"] and critical_path(episode) == longest_path(episode)


# Format errors


WRONG = {
    "an unknown tool": (call("frok", task="a"), FormatError.MALFORMED_TAG, "there is no tool 'frok'"),
    "no JSON": ("<tool_call>\n{fork\n</tool_call>", FormatError.MALFORMED_TAG, "not JSON"),
    "no task": (call("fork"), FormatError.MALFORMED_TAG, "the arguments of fork are"),
    "a task that is no text": (call("fork", task=3), FormatError.MALFORMED_TAG, "not a number"),
    "more than a task": (call("fork", task="a", to="b"), FormatError.MALFORMED_TAG, "the arguments of fork are"),
    "an id that is no number": (call("join", id="a"), FormatError.MALFORMED_TAG, "the number that fork returned"),
    "an id that is true": (call("join", id=True), FormatError.MALFORMED_TAG, "the number that fork returned"),
    "an unknown id": (call("join", id=7), FormatError.UNKNOWN_JOIN, "no worker has this id"),
    "an id joined twice": (call("join", id=1) * 2, FormatError.UNKNOWN_JOIN, "no worker has this id"),
    "a cancelled id": (call("cancel", id=1) + call("join", id=1), FormatError.UNKNOWN_JOIN, "no worker has this id"),
    "an unknown id to cancel": (call("cancel", id=7), FormatError.UNKNOWN_JOIN, "no worker has this id"),
    "too many forks": (call("fork", task="b.") * 2, FormatError.POOL_OVERFLOW, "too many workers at once"),
}


@pytest.mark.parametrize(("turn", "kind", "notice"), WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("tolerant", [False, True], ids=["strict", "tolerant"])
def test_a_wrong_call_is_the_format_error_of_the_tags(
    turn: str, kind: FormatError, notice: str, tolerant: bool
) -> None:
    plans = {"main process": [call("fork", task="a."), turn, " <ANSWER> 5 </ANSWER>"]}
    workers = {"Subtask: a.": worker(9, "a"), "Subtask: b.": worker(9, "b")}
    episode, _ = play(replace(BY_CALLS, tolerant=tolerant), plans | workers, capacity=3)
    assert kinds(episode) == [kind]
    goes_on = tolerant or kind is FormatError.MALFORMED_TAG
    assert (episode.answer == "5") == goes_on and (episode.stop is StopReason.FORMAT) != goes_on
    if goes_on:
        assert responses_of(episode)[-1].status is PARSE_ERR and notice in responses_of(episode)[-1].value
    assert AsyncThinkReward()(episode).format_error == (kind is not FormatError.MALFORMED_TAG)


def test_a_fork_that_the_budget_forbids_is_refused_where_it_is_tolerated() -> None:
    plans = {"main process": [call("fork", task="a."), " <ANSWER> 5 </ANSWER>"]}
    episode, _ = play(BY_CALLS, plans, depth=0)
    assert episode.stop is StopReason.BUDGET and episode.answer is None
    episode, _ = play(replace(BY_CALLS, tolerant=True), plans, depth=0)
    assert episode.answer == "5" and responses_of(episode) == [
        Response("fork", PARSE_ERR, "not done: budget exhausted: depth")
    ]


# What a reply without a call is


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        (["so <ANSWER> 5 </ANSWER>"], "5"),
        ([r"so \boxed{5}"], "5"),
        ([r"<think> \boxed{4} </think> it is", r" \boxed{5}"], "5"),
        (["so it is 5"], None),
        (["so <ANSWER></ANSWER>"], None),
        ([r"<think> \boxed{5}"], None),
        ([], None),
    ],
)
def test_a_reply_without_a_call_is_the_answer_as_the_prompt_asks_for_it(reply: list[str], answer: str | None) -> None:
    boxes = call("fork", task=r"put it into \boxed{3} or <ANSWER> 3 </ANSWER>")
    episode, _ = play(BY_CALLS, {"main process": [boxes, *reply], "Subtask:": worker(1, r"\boxed{4}")})
    assert episode.answer == answer, "neither a subtask nor a result is an answer"
    assert kinds(episode) == [] if answer else [FormatError.NO_ANSWER]


# Who is told of the tools, and how


def test_tools_are_offered_by_an_engine_that_can_and_by_the_prompt_otherwise() -> None:
    plans = {"main process": [call("fork", task="a."), call("join", id=1), " <ANSWER> 5 </ANSWER>"]}
    for native in (True, False):
        episode, model = play(BY_CALLS, plans | {"Subtask: a.": worker(1, "a")}, native=native)
        organizer, worker_prompt = (trace.spans[0].text for trace in episode.traces)
        offered = [tool["name"] for tool in model.contexts[0].tools]
        assert offered == ["fork", "join", "cancel", "status"] * native
        assert ('"description"' in organizer) is not native and ("<tool_call>" in organizer) is not native
        assert "<FORK" not in organizer and "No more than 3 subtasks" in organizer and "\n\n\n" not in organizer
        assert "fork" not in worker_prompt and "<RETURN>" not in worker_prompt and "\n\n\n" not in worker_prompt
        assert all(not context.tools for context in model.contexts if "Subtask" in context.spans[0].text)
        assert episode.answer == "5"


@pytest.mark.parametrize("native", [True, False])
def test_auto_takes_calls_where_the_engine_offers_them(native: bool) -> None:
    organizer = [call("fork", task="a."), call("join", id=1)] if native else [" <FORK-1> a. </FORK-1>", " <JOIN-1>"]
    plans = {"main process": [*organizer, " <ANSWER> 5 </ANSWER>"], "Subtask: a.": worker(1, "a", tags=not native)}
    episode, _ = play(AsyncThink(protocol="auto"), plans, native=native)
    assert episode.answer == "5" and [edge.key for edge in episode.root.edges] == ["1", "1"]
    assert "fork" not in AsyncThink().protocol and AsyncThink().protocol == "tags", "what runs before had"
