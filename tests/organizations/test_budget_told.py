"""What is left of the budget, as agents that fork learn it: on request (`<STATUS>`, the call `status`) and at joins."""

from __future__ import annotations

import re
from dataclasses import replace
from math import ceil, inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from longest_path import longest_path
from rules import organizing, played, scripted
from speaker import call

from orgthink.engines.endpoint.tool_calls import messages as native
from orgthink.engines.engine import Context
from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.grammar.actions import Event, Fork, Join, Malformed, Poll, Think
from orgthink.grammar.asyncthink import Dialect, organizer_scanner, worker_scanner
from orgthink.measure.latency import critical_path
from orgthink.measure.usage import sampled_tokens
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.record.episode import Episode, FormatError, Message, Origin, Span, StopReason, Trace
from orgthink.record.episode_json import dump, load
from orgthink.training.rows import policy_rows, row_of
from orgthink.util.errors import UserError
from orgthink.view import render

JOINS = AsyncThink(budget="join")
ASKED = AsyncThink(budget="status")
REPLY = Turn(" x <RETURN> r1 </RETURN>", when="Subtask: one")


def amounts(text: str) -> dict[str, int]:
    """The last amounts of a text, by name."""
    found = re.findall(r"left: ([a-z]+[a-z0-9, ]* [0-9]+)", text)
    parts = (part.rpartition(" ") for part in (found[-1].split(", ") if found else []))
    return {name: int(amount) for name, _, amount in parts}


def told(trace: Trace) -> list[tuple[int, Span, dict[str, int]]]:
    """Place, span and amounts of what an agent was told after it had begun, not of what it has inherited."""
    begun = next((i for i, span in enumerate(trace.spans) if span.origin is Origin.SAMPLED), len(trace.spans))
    injected = ((i, span) for i, span in enumerate(trace.spans) if i > begun and span.origin is Origin.INJECTED)
    found = [(i, span) for i, span in injected if "left: " in span.text]
    assert all("-" not in span.text.rpartition("left: ")[2].partition("<")[0] for _, span in found), "0 is the least"
    return [(i, span, amounts(span.text)) for i, span in found]


def kinds(episode: Episode) -> list[FormatError]:
    return [fault.kind for fault in episode.format_faults]


# The laws


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from(["tags", "tools"]),
    st.sampled_from(["status", "join"]),
    st.sampled_from(["instruction", "inherit"]),
    st.sampled_from(["join", "push"]),
    st.sampled_from(["once", "persistent"]),
    st.sampled_from(["error", "queue"]),
    st.sampled_from([0.0, 0.1]),
    st.fixed_dictionaries(
        {
            "max_tokens": st.none() | st.integers(1, 60),
            "max_episode_tokens": st.none() | st.integers(1, 120),
            "episode_seconds": st.none() | st.floats(1.0, 60.0),
            "agent_seconds": st.none() | st.floats(1.0, 30.0),
            "forks": st.none() | st.integers(0, 6),
        }
    ),
)
def test_what_is_told_is_what_budgets_enforce(
    seed: int,
    protocol: str,
    budget: str,
    context: str,
    delivery: str,
    workers: str,
    overflow: str,
    fails: float,
    limits: dict[str, Any],
) -> None:
    organization = AsyncThink(
        protocol=protocol, budget=budget, worker_context=context, delivery=delivery, workers=workers,
        overflow=overflow, tolerant=True,
    )  # type: ignore[arg-type]  # fmt: skip
    rule = organizing(seed, tools=protocol == "tools", tell=workers == "persistent", ask=protocol == "tags")
    episode, engine = played(organization, rule, fails=fails, turns=60, tokens=20, **limits)
    for trace in episode.traces:
        for place, span, left in told(trace):
            _require_tokens(trace, place, left, limits)
            _require_together(engine, span, left, limits)
            _require_seconds(episode, trace, span, left, limits)
            assert left["workers"] <= min(3, inf if limits["forks"] is None else limits["forks"])
    rows = policy_rows(episode, 1.0)
    assert sum(sum(row.trained) for row in rows) == sampled_tokens(episode) == len(engine.sampled)
    assert critical_path(episode) == longest_path(episode)
    assert load(dump(episode)) == episode and render([episode])


def _require_tokens(trace: Trace, place: int, left: dict[str, int], limits: dict[str, Any]) -> None:
    """Own tokens: never less than it samples afterwards, and exactly what the next request is given."""
    after = [span for span in trace.spans[place + 1 :] if span.origin is Origin.SAMPLED]
    assert sum(span.tokens for span in after) <= left.get("tokens", inf)
    assert ("tokens" in left) == any(limits[name] is not None for name in ("max_tokens", "max_episode_tokens"))
    at_once = min(left.get("tokens", inf), left.get("tokens at a time", inf))
    assert at_once <= 20
    if after and place + 1 < len(trace.spans) and trace.spans[place + 1] is after[0]:
        given = after[0].sampling.max_tokens  # type: ignore[union-attr]
        assert given <= at_once and (given == at_once or limits["max_episode_tokens"] is not None)


def _require_together(engine: ScriptedEngine, span: Span, left: dict[str, int], limits: dict[str, Any]) -> None:
    """Tokens of all: what all agents sample afterwards, but for a chunk of each that was at work."""
    if limits["max_episode_tokens"] is not None:
        together = left.get("tokens of all agents", left["tokens"])
        sampled = sum(at <= span.start for at, _ in engine.sampled)  # type: ignore[operator]
        before = sum(at < span.start for at, _ in engine.sampled)  # type: ignore[operator]
        assert len(engine.sampled) - sampled <= together + 4
        whole = [max(0, limits["max_episode_tokens"] - n) for n in range(before, sampled + 1)]
        assert together in whole


def _require_seconds(episode: Episode, trace: Trace, span: Span, left: dict[str, int], limits: dict[str, Any]) -> None:
    """Seconds to the next deadline above, rounded up; the agent ends by then."""
    ends, one = [inf], trace
    while one.parent is not None:
        ends.append(one.start + (inf if limits["agent_seconds"] is None else limits["agent_seconds"]))
        one = episode.trace(one.parent)
    ends.append(inf if limits["episode_seconds"] is None else limits["episode_seconds"])
    assert ("seconds" in left) == (min(ends) < inf)
    if "seconds" in left:
        seconds = min(ends) - span.start  # type: ignore[operator]
        assert left["seconds"] in (ceil(seconds - 1e-6), ceil(seconds + 1e-6))
        assert trace.end <= span.start + left["seconds"] + 1 + 1e-6  # type: ignore[operator]


def test_the_laws_are_of_many_things_told() -> None:
    """The examples above hold what they speak of."""
    seen = dict.fromkeys(["tags", "tools"], 0)
    deep = 0
    for seed in range(30):
        for protocol in seen:
            organization = replace(JOINS, protocol=protocol, tolerant=True)  # type: ignore[arg-type]
            rule = organizing(seed, tools=protocol == "tools", ask=protocol == "tags")
            episode, _ = played(organization, rule, turns=60, max_episode_tokens=99)
            seen[protocol] += sum(len(told(trace)) for trace in episode.traces)
            deep += sum(len(told(trace)) for trace in episode.traces[1:])
    assert min(seen.values()) > 20 and deep > 10


@settings(max_examples=60, deadline=None)
@given(
    st.integers(2, 5), st.integers(0, 4), st.none() | st.integers(0, 5), st.integers(1, 2), st.sampled_from([0, 1]),
    st.sampled_from(["tags", "tools"]),
)  # fmt: skip
def test_as_many_workers_may_be_forked_as_are_told(
    capacity: int, first: int, forks: int | None, depth: int, more: int, protocol: str
) -> None:
    """And not one more."""
    first = min(first, capacity - 1, inf if forks is None else forks)  # type: ignore[assignment]

    def fork(key: int) -> str:
        return f" <FORK-{key}> wait </FORK-{key}>" if protocol == "tags" else call("fork", task="wait")

    free = list[int]()

    def rule(text: str) -> str:
        if "Subtask: wait" in text:
            return " w" * 99
        if "left: " not in text:
            return "".join(map(fork, range(1, first + 1))) + (" <STATUS>" if protocol == "tags" else call("status"))
        free.append(amounts(text)["workers"])
        if len(free) > 1:  # by calls the forks of a turn are answered
            return " <ANSWER> 5 </ANSWER>"
        rest = "".join(fork(first + 1 + i) for i in range(free[0] + more))
        return rest + (" <ANSWER> 5 </ANSWER>" if protocol == "tags" else "") if rest else " <ANSWER> 5 </ANSWER>"

    organization = replace(ASKED, protocol=protocol)  # type: ignore[arg-type]
    episode, _ = played(organization, rule, capacity=capacity, depth=depth, forks=forks, tokens=200)
    assert free[0] == min(capacity - 1 - first, inf if forks is None else forks - first)
    assert len(episode.traces) == 1 + first + free[0]
    if more:
        spent = forks is not None and forks - first < capacity - 1 - first
        assert episode.stop is (StopReason.BUDGET if spent else StopReason.FORMAT)
        assert kinds(episode) == ([] if spent else [FormatError.POOL_OVERFLOW])
    else:
        assert (episode.answer, kinds(episode)) == ("5", [])


def test_below_the_last_level_there_are_no_workers_and_no_status() -> None:
    """An organizer without depth is told of none; a worker that may not fork has no tag, so it is text."""
    none = scripted(ASKED, [Turn(" <STATUS>"), Turn(" <ANSWER> 5 </ANSWER>", when="left: ")], depth=0)
    assert amounts(none.root.text)["workers"] == 0 and none.answer == "5"
    turns = [
        Turn(" <FORK-1> one </FORK-1> <JOIN-1>", when="main process"),
        Turn(" <STATUS> <RETURN> r </RETURN>", when="Subtask: one"),
        Turn(" <ANSWER> 5 </ANSWER>", when="</JOIN-1>"),
    ]
    episode = scripted(ASKED, turns)
    assert episode.answer == "5" and not told(episode.traces[1])


# Tags


def test_on_request_by_a_tag_it_is_injected_and_not_trained() -> None:
    turns = [
        Turn(" <FORK-1> one </FORK-1> a <STATUS>", when="main process"),
        Turn(" x" * 3 + " <RETURN> r1 </RETURN>", when="Subtask: one"),
        Turn(" b <JOIN-1>", when="</STATUS>"),
        Turn(" <ANSWER> 5 </ANSWER>", when="</JOIN-1>"),
    ]
    episode = scripted(ASKED, turns, max_tokens=50, episode_seconds=30.5)
    root = episode.root
    own = [span.text for span in root.spans if span.origin is Origin.INJECTED]
    assert (episode.answer, kinds(episode)) == ("5", [])
    asked = root.spans[1]
    left = f"tokens {50 - asked.tokens}, workers 1, seconds {ceil(30.5 - asked.tokens)}"
    assert own == [f" 1: at work\nleft: {left} </STATUS>", " r1 </JOIN-1>"], "told at joins only where that is set"
    row = row_of(root)
    trained = [span.origin is Origin.SAMPLED for span in root.spans for _ in range(span.tokens)]
    assert list(row.trained) == trained and sum(row.trained) == root.steps
    assert critical_path(episode) == longest_path(episode) == episode.seconds, "asking takes no step but its tag"
    assert root.spans[3].sampling.max_tokens == amounts(root.text)["tokens"]  # type: ignore[union-attr]


def test_a_limit_ends_the_agent_after_exactly_what_it_was_told() -> None:
    for limit in range(2, 30):
        episode = scripted(ASKED, [Turn(" a <STATUS>"), Turn(" w" * 99)][: 1 + (limit > 2)], max_tokens=limit)
        (_, _, left), *_ = told(episode.root)
        assert left["tokens"] == limit - 2 == sum(span.tokens for span in episode.root.spans[3:])
        assert episode.stop is StopReason.BUDGET


def test_what_agents_at_work_at_once_have_overdrawn_is_told_as_nothing() -> None:
    seen = set()
    for limit in range(4, 30):

        def rule(text: str) -> str:
            organizer = f" <FORK-1> a </FORK-1> <FORK-2> b </FORK-2>{' w' * 4} <STATUS>"
            return " w" * 30 if "Subtask" in text else organizer

        episode, _ = played(ASKED, rule, max_episode_tokens=limit, tokens=99)
        seen |= {left["tokens"] for _, _, left in told(episode.root)}
    assert seen >= {0, 1, 2}


def test_at_each_join_and_in_the_prompt_where_that_is_set() -> None:
    turns = [
        Turn(" <FORK-1> one </FORK-1> <JOIN-1>", when="Left of the budget: tokens 90, workers 2, seconds 40."),
        REPLY,
        Turn(" so <ANSWER> 5 </ANSWER>", when="</JOIN-1> (left: "),
    ]
    episode = scripted(JOINS, turns, max_tokens=90, episode_seconds=40.0)
    result, note = (span for span in episode.root.spans if span.origin is Origin.INJECTED)
    assert (result.text, result.source) == (" r1 </JOIN-1>", "organizer/1")
    at = episode.root.spans[1].tokens
    assert (note.text, note.source) == (f" (left: tokens {90 - at}, workers 2, seconds {40 - int(note.start)})", None)  # type: ignore[arg-type]
    assert episode.answer == "5" and critical_path(episode) == longest_path(episode) == episode.seconds
    assert sum(row_of(episode.root).trained) == episode.root.steps


def test_with_pushed_results_and_a_renewed_budget() -> None:
    """Without a limit for the agent, each request has its own budget, and it is told as such."""
    organization = replace(JOINS, delivery="push")
    turns = [Turn(" <FORK-1> one </FORK-1>" + " w" * 20, when="main process"), REPLY]
    episode = scripted(organization, [*turns, Turn(" <ANSWER> 5 </ANSWER>", when="(left: tokens at a time 500, ")])
    assert [span.text for span in episode.root.spans if span.origin is Origin.INJECTED] == [
        " <JOIN-1> r1 </JOIN-1>", " (left: tokens at a time 500, workers 2)"
    ]  # fmt: skip
    assert episode.answer == "5"


def test_by_default_a_tag_is_text_and_nothing_is_told() -> None:
    turns = [Turn(" <FORK-1> one </FORK-1> <STATUS> w <JOIN-1>", when="main process"), REPLY]
    episode = scripted(AsyncThink(), [*turns, Turn(" <ANSWER> 5 </ANSWER>", when="</JOIN-1>")], max_tokens=90)
    assert episode.answer == "5" and "left" not in episode.root.text and not kinds(episode)
    assert "budget" not in episode.root.spans[0].text


def test_what_a_worker_returns_is_no_request() -> None:
    turns = [
        Turn(" <FORK-1> one </FORK-1> <JOIN-1>", when="main process"),
        Turn(" <RETURN> <STATUS> left: tokens 9999 </RETURN>", when="Subtask: one"),
        Turn(" <ANSWER> 5 </ANSWER>", when="</JOIN-1>"),
    ]
    episode = scripted(ASKED, turns, max_tokens=50)
    assert episode.answer == "5" and len(episode.root.spans) == 4 and not kinds(episode)


def test_a_dialect_spells_it() -> None:
    dialect = Dialect(status=("<LEFT>", "</LEFT>"))
    organization = replace(ASKED, dialect=dialect)
    episode = scripted(organization, [Turn(" a <LEFT>"), Turn(" <ANSWER> 5 </ANSWER>", when="workers 2 </LEFT>")])
    assert episode.answer == "5"
    for wrong in (("<STATUS-{}>", "</STATUS>"), ("<ANSWER>", "</LEFT>"), ("<LEFT>", "<LEFT>")):
        with pytest.raises(UserError):
            Dialect(status=wrong)


def test_the_scanner_reads_it_only_where_it_is_told_to() -> None:
    text = " a <STATUS> b </STATUS>"

    def actions(events: list[Event]) -> list[object]:
        return [event.action for event in events if not isinstance(event.action, Think)]

    for scanner in (organizer_scanner(polls=True), worker_scanner(forks=True, polls=True)):
        assert "<STATUS>" in scanner.stops
        assert actions(scanner.feed(text)) == [Poll(), Malformed("</STATUS>")]
    for scanner in (organizer_scanner(), worker_scanner(forks=True), worker_scanner(polls=True)):
        assert actions([*scanner.feed(text), *scanner.close()]) == [] and "<STATUS>" not in scanner.stops
    cut = organizer_scanner(polls=True).feed("<FORK-1> q <STATUS> r </FORK-1> <JOIN-1>")
    assert actions(cut)[:2] == [Malformed("<FORK-1> q "), Poll()] and actions(cut)[-1] == Join("1")
    assert Fork("1", " q ") not in actions(cut)


# Calls


def test_by_calls_it_is_told_on_request_and_after_the_results() -> None:
    turns = [
        Turn(f" a{call('fork', task='one')}{call('status')}", when="main process"),
        Turn(" x r1", when="Subtask: one"),
        Turn(f" b{call('join', id=1)}", when="left: "),
        Turn(" <ANSWER> 5 </ANSWER>", when='r1"'),
    ]
    for organization in (AsyncThink(protocol="tools"), replace(JOINS, protocol="tools")):
        episode = scripted(organization, turns, max_tokens=80)
        first, last = (span.text for span in episode.root.spans if span.origin is Origin.INJECTED)
        used = episode.root.spans[1].tokens
        assert rf'"value": "1: at work\nleft: tokens {80 - used}, workers 1"' in first and episode.answer == "5"
        used += episode.root.spans[3].tokens
        assert last.endswith(f"left: tokens {80 - used}, workers 2\n") == (organization.budget == "join")
        assert first.count("left:") == 1 and not kinds(episode)
        assert sum(row_of(episode.root).trained) == episode.root.steps
        context = Context((Message("user", episode.root.spans[0].text),), list(episode.root.spans[:-1]))
        roles = [one["role"] for one in native(context.turns)]
        assert roles[:4] == ["user", "assistant", "tool", "tool"] and roles[4:6] == ["assistant", "tool"]


# Prompts


@pytest.mark.parametrize("style", ["paper", "demonstrated"])
@pytest.mark.parametrize("protocol", ["tags", "tools"])
def test_the_prompts_tell_of_it_only_where_it_is_on(style: str, protocol: str) -> None:
    seen = {}
    for name, own in {"call": {}, "status": {"budget": "status"}, "join": {"budget": "join"},
                        "prices": {"path_price": 0.25, "token_price": 0.0}}.items():  # fmt: skip
        organization = AsyncThink(prompts=style, protocol=protocol, **own)  # type: ignore[arg-type]
        _, engine = played(organization, lambda text: " <ANSWER> 5 </ANSWER>", max_episode_tokens=77)
        seen[name] = engine.contexts[0]
    assert ["<STATUS>" in text for text in seen.values()] == [False, *[protocol == "tags"] * 2, False]
    assert ["tokens 77, tokens at a time 60, workers 3." in text for text in seen.values()] == [
        False,
        False,
        True,
        False,
    ]
    assert ["cost 0.25 points" in text and "together 0." in text for text in seen.values()] == [False] * 3 + [True]
    assert all("\n\n\n" not in text for text in seen.values())


@pytest.mark.parametrize("setting", ["path_price", "token_price"])
def test_a_price_below_zero_is_refused(setting: str) -> None:
    with pytest.raises(ValueError, match=setting):
        AsyncThink(**{setting: -1.0})


def test_a_style_without_the_texts_is_refused_before_it_is_needed(tmp_path: Any) -> None:
    (tmp_path / "mine.toml").write_text('organizer = "{query}"\nworker = "{query}"\n')
    style = str(tmp_path / "mine.toml")
    AsyncThink(prompts=style)
    for own in ({"budget": "join"}, {"budget": "status"}, {"token_price": 1.0}):
        with pytest.raises(UserError, match="has no template"):
            AsyncThink(prompts=style, **own)  # type: ignore[arg-type]


# An organization that works in the place of a worker


def test_a_nested_organizer_is_told_what_is_left_for_it() -> None:
    """Of the same budget, in its own prompt as well."""

    def rule(text: str) -> str:
        if "Subtask: inner" in text:
            return " <RETURN> r </RETURN>"
        query, answer = ("outer", "5") if "2 + 3?" in text else ("inner", "7")
        return f" <ANSWER> {answer} </ANSWER>" if "</JOIN-1>" in text else f" w <FORK-1> {query} </FORK-1> <JOIN-1>"

    limits = {"max_episode_tokens": 60, "episode_seconds": 50.0, "tokens": 500}
    episode, engine = played(AsyncThink(worker=JOINS), rule, capacity=3, **limits)  # type: ignore[arg-type]
    nested = episode.traces[1]
    (_, note, left), *_ = told(nested)
    for found, at in (
        (amounts(nested.spans[0].text.replace("Left of the budget", "left")), nested.start),
        (left, note.start),
    ):
        spent = sum(when <= at for when, _ in engine.sampled)  # type: ignore[operator]
        assert found == {"tokens": 60 - spent, "workers": 2, "seconds": ceil(50 - at)}  # type: ignore[operator]
    assert episode.answer == "5" and not told(episode.root)
