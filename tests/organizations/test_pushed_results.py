"""Results that arrive without a Join as soon as they are there (`delivery=push`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from longest_path import longest_path
from rules import PROBLEM, organizing, played, scripted
from speaker import call

from orgthink.engines.endpoint.tool_calls import messages as native
from orgthink.engines.engine import Chunk, Context, FinishReason
from orgthink.engines.scripted import ScriptedEngine, Turn, pieces
from orgthink.grammar.actions import Deliver, Fork, Join, Think
from orgthink.grammar.asyncthink import Injected, Keys, organizer_scanner, read
from orgthink.measure.latency import concurrency, critical_path
from orgthink.measure.usage import sampled_tokens
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.record.episode import Episode, FormatError, Message, Origin, Problem, Sampling, Status, StopReason
from orgthink.record.episode_json import dump, load
from orgthink.rewards.asyncthink import AsyncThinkReward
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_virtual
from orgthink.runtime.organization import Organization
from orgthink.runtime.session import Session
from orgthink.training.rows import policy_rows, row_of
from orgthink.view import render

PUSH = AsyncThink(delivery="push")
SHORT = Turn(" x <RETURN> r1 </RETURN>", when="Subtask: one")
"""Four tokens and one for the closing tag: done five seconds after its Fork."""


def injected(episode: Episode) -> list[str]:
    return [span.text for span in episode.root.spans if span.origin is Origin.INJECTED]


def kinds(episode: Episode) -> list[FormatError]:
    return [fault.kind for fault in episode.format_faults]


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from(["tags", "tools"]),
    st.sampled_from(["instruction", "inherit"]),
    st.sampled_from([0.0, 0.1]),
)
def test_laws(seed: int, protocol: str, context: str, fails: float) -> None:
    """Of the record, the path, the masks and the picture, with nested workers and engines that fail."""
    organization = AsyncThink(
        delivery="push", protocol=protocol, worker_context=context, tolerant=True, overflow="queue"  # type: ignore[arg-type]
    )  # fmt: skip
    episode, engine = played(organization, organizing(seed, tools=protocol == "tools"), fails=fails, turns=60)
    assert critical_path(episode) == longest_path(episode)
    assert load(dump(episode)) == episode and render([episode])
    rows = policy_rows(episode, 1.0)
    assert sum(sum(row.trained) for row in rows) == sampled_tokens(episode) == len(engine.sampled)
    for trace in episode.traces:
        children = [join.child for join in trace.joins]
        assert len(children) == len(set(children)), "each result arrives once"


def test_steps_are_seconds_where_results_are_pushed() -> None:
    pushes = 0
    for seed in range(60):
        episode, _ = played(AsyncThink(delivery="push", tolerant=True), organizing(seed), capacity=99, turns=80)
        if episode.answer is None:
            continue
        assert critical_path(episode) == longest_path(episode) == episode.seconds
        assert concurrency(episode) == pytest.approx(sampled_tokens(episode) / episode.seconds)
        said = "".join(span.text for span in episode.root.spans if span.origin is Origin.SAMPLED)
        pushes += len(episode.root.joins) - said.count("<JOIN") > 0
    assert pushes > 5


def pushed(*organizer: str, organization: AsyncThink = PUSH, worker: Turn = SHORT, **limits: int) -> Episode:
    first, *then = (Turn(text, when="main process") for text in organizer)
    return scripted(organization, [first, worker, *then], **limits)


def test_a_result_arrives_before_the_next_token_and_is_not_trained() -> None:
    episode = pushed(" a <FORK-1> one </FORK-1>" + " w" * 20, " so <ANSWER> 5 </ANSWER>")
    assert (episode.answer, episode.format_faults) == ("5", ())
    root, worker = episode.traces
    assert injected(episode) == [" <JOIN-1> r1 </JOIN-1>"] and root.spans[2].source == worker.agent
    (join,) = root.joins
    waited = root.spans[2].start - worker.end  # type: ignore[operator]
    assert 0 <= waited <= 1 and join.at == root.spans[1].tokens == root.spans[2].start
    row = row_of(root)
    assert sum(row.trained) == root.steps
    assert not any(row.trained[root.spans[0].tokens + root.spans[1].tokens :][: root.spans[2].tokens])
    assert critical_path(episode) == longest_path(episode) == episode.seconds
    assert AsyncThinkReward().weight and concurrency(episode, "joined") == concurrency(episode)
    parts = [part for part in read(root.text) if isinstance(part, Fork | Join | Injected)]
    assert parts == [Fork("1", " one "), Join("1"), Injected(" r1 </JOIN-1>")], "a text is read as one with Joins"


def test_its_tag_is_spelled_as_the_fork() -> None:
    bare = pushed(" <FORK1> one </FORK1>" + " w" * 20, " <ANSWER> 5 </ANSWER>")
    assert injected(bare) == [" <JOIN1> r1 </JOIN1>"]


def test_it_does_not_cut_an_element_or_a_tag() -> None:
    words = " ".join("w" * 9)
    first = f" <FORK-1> one </FORK-1> <FORK-2> {words} two </FORK-2>"
    turns = [
        Turn(f"{first} v v", when="main process"),
        SHORT,
        Turn(" y" * 99, when="two"),
        Turn(" so <ANSWER> 5 </ANSWER>", when="<JOIN-1> r1"),
    ]
    episode = scripted(PUSH, turns)
    assert episode.root.text.startswith(f"{first} <JOIN-1> r1 </JOIN-1> so")
    assert episode.traces[2].spans[0].text.count("w") >= 9


def test_a_text_that_has_ended_does_not_go_on_for_a_result() -> None:
    """Neither if the result comes with its last token, nor after an earlier one."""
    for words in range(12):

        def rule(text: str) -> str:
            if "Subtask: one" in text:
                return SHORT.says
            return " so" if "</JOIN-1>" in text else " <FORK-1> one </FORK-1>" + " w" * words  # noqa: B023

        episode, engine = played(PUSH, rule)
        told = injected(episode)
        assert (episode.answer, episode.root.stop, len(engine.contexts)) == (None, StopReason.DONE, 2 + len(told))
        assert not (told and episode.root.text.count(" w") == words)


def test_what_is_due_waits_for_the_end_of_an_element_that_began_before() -> None:
    seen = list[object]()

    class Begun(Organization):
        async def run(self, problem: Problem, session: Session) -> str | None:
            agent, scanner, due = (
                session.agent("organizer", (Message("user", "q"),)),
                organizer_scanner(),
                [Deliver("9")],
            )
            scanner.feed(" <FORK-1> one")
            async for command in agent.act(scanner, lambda: due[0] if due else None):
                seen.append(command)
                if isinstance(command, Deliver):
                    agent.inject("x", None)
                    due.clear()
            return "5"

    engine = ScriptedEngine([Turn(" more </FORK-1> w w"), Turn(" w")])
    run_virtual(attempt(Begun(), PROBLEM, Backing(engine, Sampling(50))))
    assert seen == [Fork("1", " one more "), Deliver("9")]


def test_a_join_waits_and_what_came_meanwhile_follows_it() -> None:
    turns = [
        Turn(" <FORK-1> one </FORK-1> <FORK-2> two </FORK-2> <JOIN-2>", when="main process"),
        SHORT,
        Turn(" y" * 9 + " <RETURN> r2 </RETURN>", when="Subtask: two"),
        Turn(" <ANSWER> 5 </ANSWER>", when="</JOIN-1>"),
    ]
    episode = scripted(PUSH, turns)
    assert injected(episode) == [" r2 </JOIN-2>", " <JOIN-1> r1 </JOIN-1>"]
    assert critical_path(episode) == longest_path(episode) == episode.seconds


def test_results_that_came_meanwhile_are_shown_in_the_order_of_their_forks() -> None:
    forks = "".join(f" <FORK-{key}> {query} </FORK-{key}>" for key, query in ((3, "two"), (1, "one"), (2, "wait")))
    turns = [
        Turn(f"{forks} <JOIN-2>", when="main process"),
        Turn(" x" * 9 + " <RETURN> r3 </RETURN>", when="Subtask: two"),
        SHORT,
        Turn(" y" * 40 + " <RETURN> r2 </RETURN>", when="Subtask: wait"),
        Turn(" <ANSWER> 5 </ANSWER>", when="</JOIN-1>"),
    ]
    episode = scripted(PUSH, turns, capacity=4)
    assert injected(episode) == [" r2 </JOIN-2>", " <JOIN-3> r3 </JOIN-3>", " <JOIN-1> r1 </JOIN-1>"]


def test_a_second_delivery_is_not_asked_for() -> None:
    """The organizer has seen the result, so its Join is a format error, which costs the place of nobody."""
    episode = pushed(" <FORK-1> one </FORK-1>" + " w" * 20, " <JOIN-1>")
    assert kinds(episode) == [FormatError.UNKNOWN_JOIN]
    turns = [
        Turn(" <FORK-1> one </FORK-1>" + " w" * 20, when="main process"),
        SHORT,
        Turn(" <FORK-1> two </FORK-1> <JOIN-1>", when="</JOIN-1>"),
        Turn(" <RETURN> r2 </RETURN>", when="Subtask: two"),
        Turn(" <ANSWER> 5 </ANSWER>", when=" r2 </JOIN-1>"),
    ]
    again = scripted(PUSH, turns, capacity=2)
    assert again.answer == "5" and not again.format_faults, "the key and the place are free"


def test_what_comes_after_the_answer_is_not_delivered() -> None:
    for words in (" w", ""):
        episode = scripted(
            PUSH,
            [Turn(f" <FORK-1> one </FORK-1>{words} <ANSWER> 5 </ANSWER>", when="main process"), SHORT],
        )
        assert (episode.answer, injected(episode), episode.root.joins) == ("5", [], ())
        assert episode.traces[1].status is Status.CANCELLED
        assert critical_path(episode) == longest_path(episode) == episode.seconds


@pytest.mark.parametrize("tolerant", [False, True])
def test_a_failure_is_delivered_as_well(tolerant: bool) -> None:
    failing = Turn(" x", when="Subtask: one", fails="boom")
    organization = AsyncThink(delivery="push", tolerant=tolerant)
    episode = pushed(
        " <FORK-1> one </FORK-1>" + " w" * 9, " <ANSWER> 5 </ANSWER>", organization=organization, worker=failing
    )
    assert injected(episode) == [f" <JOIN-1> {'(no result: the worker failed)' if tolerant else ''} </JOIN-1>"]
    assert (episode.answer, episode.traces[1].status) == ("5", Status.ERROR)


def test_a_delivery_takes_a_turn_and_budgets_hold() -> None:
    last = pushed(" <FORK-1> one </FORK-1>" + " w" * 20, turns=2)
    assert last.stop is StopReason.BUDGET and injected(last) == [" <JOIN-1> r1 </JOIN-1>"]
    tokens = pushed(" <FORK-1> one </FORK-1>" + " w" * 20, " v" * 99, max_episode_tokens=25)
    assert tokens.stop is StopReason.BUDGET and sampled_tokens(tokens) == 25
    late = pushed(" <FORK-1> one </FORK-1>" + " w" * 20, " <ANSWER> 5 </ANSWER>", agent_seconds=2)
    assert late.traces[1].status is Status.TIMEOUT and injected(late) == [" <JOIN-1>  </JOIN-1>"]


def test_a_denied_worker_is_delivered_and_a_worker_of_workers_gets_results_too() -> None:
    async def deny(call: object) -> bool:
        return False

    def rule(text: str) -> str:
        return " <ANSWER> 5 </ANSWER>" if "</JOIN-1>" in text else " <FORK-1> one </FORK-1>" + " w" * 9

    episode, _ = played(PUSH, rule, approve=deny)
    assert episode.answer == "5" and episode.traces[1].status is Status.DENIED

    def nested(text: str) -> str:
        if "Subtask: inner" in text:
            return " <RETURN> r </RETURN>"
        end = " <RETURN> s </RETURN>" if "Subtask" in text else " <ANSWER> 5 </ANSWER>"
        query = "inner" if "Subtask" in text else "outer"
        return end if "</JOIN-1>" in text else f" <FORK-1> {query} </FORK-1>" + " w" * 40

    episode, _ = played(PUSH, nested, tokens=99)
    assert [len(trace.joins) for trace in episode.traces] == [1, 1, 0] and episode.answer == "5"
    assert critical_path(episode) == longest_path(episode) == episode.seconds


def test_a_token_that_ends_within_a_character_is_not_cut_off() -> None:
    """An injection between two bytes of a character would leave neither."""

    class Halves(ScriptedEngine):
        async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
            if "Subtask" in context.text or "</JOIN-1>" in context.text:
                async for chunk in super().stream(context, sampling):
                    yield chunk
                return
            for piece in (*pieces(" <FORK-1> one </FORK-1>"), *[""] * 20, " ä", " w"):
                await asyncio.sleep(1)
                yield Chunk((piece,), (0,), (0.0,), None, "script")
            yield Chunk((), (), (), FinishReason.EOS, "script")

    engine = Halves([SHORT, Turn(" <ANSWER> 5 </ANSWER>", when="</JOIN-1>")])
    episode = run_virtual(attempt(PUSH, PROBLEM, Backing(engine, Sampling(500)), limits=Limits(2)))
    assert " ä <JOIN-1> r1" in episode.root.text


# Calls


def test_by_calls_results_follow_the_responses_of_the_next_turn() -> None:
    organization = AsyncThink(delivery="push", protocol="tools")
    turns = [
        Turn(f" a{call('fork', task='one')}", when="main process"),
        Turn(" x r1", when="Subtask: one"),
        Turn(f"{' w' * 9}{call('status')}", when="main process"),
        Turn(" <ANSWER> 5 </ANSWER>", when="Worker 1 is done"),
    ]
    episode = scripted(organization, turns)
    assert (episode.answer, episode.format_faults) == ("5", ())
    last = injected(episode)[-1]
    assert last.endswith('Worker 1 is done: {"status": "OK", "value": "x r1"}\n')
    assert [span.source for span in episode.root.spans if span.origin is Origin.INJECTED] == [None, "organizer/1"]
    assert critical_path(episode) == longest_path(episode) == episode.seconds
    context = Context((Message("user", episode.root.spans[0].text),), list(episode.root.spans[:-1]))
    sent = native(context.turns)
    assert [one["role"] for one in sent] == ["user", "assistant", "tool", "assistant", "tool", "user"]
    assert sent[-1]["content"].startswith("Worker 1 is done")


def test_by_calls_all_results_that_are_there_follow_one_turn() -> None:
    turns = [
        Turn(f" a{call('fork', task='one')}{call('fork', task='two')}", when="main process"),
        Turn(" x r1", when="Subtask: one"),
        Turn(" y r2", when="Subtask: two"),
        Turn(f"{' w' * 9}{call('status')}", when="main process"),
        Turn(f" v{call('status')}", when="Worker 2 is done"),
        Turn(" <ANSWER> 5 </ANSWER>", when="Worker 2 is done"),
    ]
    episode = scripted(AsyncThink(delivery="push", protocol="tools"), turns)
    told = episode.root.spans[-4]
    assert episode.answer == "5" and "Worker 1 is done" in told.text and "Worker 2 is done" in told.text
    assert told.source is None and episode.root.text.count("is done") == 2
    assert [join.key for join in episode.root.joins] == ["1", "2"]


def test_by_calls_a_cancelled_worker_is_not_delivered() -> None:
    turns = [
        Turn(f" a{call('fork', task='one')}", when="main process"),
        Turn(f" w{call('cancel', id=1)}", when="main process"),
        Turn(" x" * 99, when="Subtask: one"),
        Turn(f" w{call('status')}", when="main process"),
        Turn(" <ANSWER> 5 </ANSWER>", when="main process"),
    ]
    episode = scripted(AsyncThink(delivery="push", protocol="tools"), [turns[i] for i in (0, 2, 1, 3, 4)])
    assert episode.answer == "5" and not episode.root.joins and "is done" not in episode.root.text


# Grammar


@given(st.lists(st.sampled_from([" w", " <FORK-1>", " </FORK-1>", " <JOIN-1>", " <ANSWER>", " </", "FORK-1>", " <"])))
def test_a_scanner_knows_whether_a_text_may_be_injected(parts: list[str]) -> None:
    """Where nothing is incomplete, the end of the text cuts nothing off."""
    scanner = organizer_scanner()
    for part in parts:
        scanner.feed(part)
    if not scanner.incomplete:
        assert all(isinstance(event.action, Think) for event in scanner.close())


def test_a_delivery_frees_the_key_as_a_join_does() -> None:
    keys = Keys(3)
    assert keys.check(Fork("1", "")) is None and keys.check(Deliver("1")) is None
    assert keys.check(Deliver("1")) is keys.check(Join("1")) is FormatError.UNKNOWN_JOIN
    assert keys.check(Fork("1", "")) is None


@pytest.mark.parametrize("style", ["paper", "demonstrated"])
@pytest.mark.parametrize("protocol", ["tags", "tools"])
def test_the_prompts_tell_of_it_only_where_it_is_on(style: str, protocol: str) -> None:
    seen = {}
    for delivery in ("join", "push"):
        organization = AsyncThink(delivery=delivery, prompts=style, protocol=protocol)  # type: ignore[arg-type]
        _, engine = played(organization, lambda text: " <ANSWER> 5 </ANSWER>")
        seen[delivery] = engine.contexts[0]
    assert ("<JOIN" in seen["push"]) == (protocol == "tags")
    assert "need not wait" in seen["push"] and "need not wait" not in seen["join"]
    assert "\n\n\n" not in seen["push"] + seen["join"]
