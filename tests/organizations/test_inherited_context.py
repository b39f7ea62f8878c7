"""Workers that begin with the context of the agent that forks them (`worker_context=inherit`)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from longest_path import longest_path
from rules import PROBLEM, organizing, played, scripted
from speaker import call

from orgthink.engines.endpoint.tool_calls import messages as native
from orgthink.engines.engine import Chunk, FinishReason, Tools
from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.measure.latency import concurrency, critical_path
from orgthink.measure.usage import sampled_tokens
from orgthink.models.context import Context
from orgthink.organizations.agent_forms import WorkerTools
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.organizations.sequential import Sequential
from orgthink.record.episode import Billed, Episode, Message, Origin, Problem, Sampling, Span, Status, Trace
from orgthink.record.episode_json import dump, load
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_virtual
from orgthink.runtime.organization import Organization
from orgthink.runtime.session import Session
from orgthink.training.rows import policy_rows, row_of
from orgthink.util.errors import UserError
from orgthink.view import render

INHERIT = AsyncThink(worker_context="inherit", tolerant=True, overflow="queue")
ALIKE = settings(max_examples=30, deadline=None)


def own(trace: Trace) -> list[int]:
    """Places of the spans that its agent sampled."""
    return [i for i, span in enumerate(trace.spans) if span.origin is Origin.SAMPLED]


def begins(trace: Trace, parent: Trace) -> None:
    """A worker's context is its parent's up to the token that ends the Fork, then what it was told."""
    (fork,) = (edge for edge in parent.forks if edge.child == trace.agent)
    steps, seen = 0, list[int]()
    for span in parent.spans:
        ids = list(span.token_ids or ())
        if steps >= fork.at:
            break
        if span.origin is Origin.SAMPLED:
            ids = ids[: fork.at - steps]
            steps += len(ids)
        seen += ids
    read = [i for span in trace.spans for i in span.token_ids or ()]
    assert read[: len(seen)] == seen
    sampled = [span for span in trace.spans if span.decoded and span.origin is Origin.INJECTED]
    assert all(span.logprobs is None and span.source for span in sampled)


@ALIKE
@given(st.integers(0, 10**6), st.sampled_from(["tags", "tools"]), st.sampled_from([0.0, 0.1]))
def test_laws(seed: int, protocol: str, fails: float) -> None:
    organization = AsyncThink(protocol=protocol, tolerant=True, overflow="queue", worker_context="inherit")  # type: ignore[arg-type]
    episode, engine = played(organization, organizing(seed, tools=protocol == "tools"), fails=fails, turns=60)
    agents = {trace.agent: trace for trace in episode.traces}
    for trace in episode.traces[1:]:
        if trace.spans[-1].origin is not Origin.PROMPT:
            begins(trace, agents[trace.parent or ""])
    assert critical_path(episode) == longest_path(episode)
    assert load(dump(episode)) == episode
    rows = policy_rows(episode, 1.0)
    assert sum(sum(row.trained) for row in rows) == sampled_tokens(episode) == len(engine.sampled)
    assert render([episode])
    every = Counter(trace.agent for trace in episode.traces)
    assert max(every.values()) == 1


def test_steps_are_seconds_where_workers_inherit() -> None:
    """A place for each, and nothing fails: virtual time is the critical path, whatever a worker has read."""
    nested = 0
    for seed in range(60):
        organization = AsyncThink(worker_context="inherit", tolerant=True)
        episode, _ = played(organization, organizing(seed), capacity=99, turns=80)
        if episode.answer is None:
            continue
        assert critical_path(episode) == longest_path(episode) == episode.seconds
        assert concurrency(episode) == pytest.approx(sampled_tokens(episode) / episode.seconds)
        nested += any(trace.parent and trace.joins for trace in episode.traces)
    assert nested


def two() -> Episode:
    """The second worker has read of the first one's result."""
    return scripted(
        INHERIT,
        [
            Turn(" a b <FORK-1> one </FORK-1> c <JOIN-1>", when="main process"),
            Turn(" d <FORK-2> two </FORK-2> e <JOIN-2>", when="<JOIN-1> r1 </JOIN-1>"),
            Turn(" x <RETURN> r1 </RETURN>", when="this subtask: one"),
            Turn(" y <RETURN> r2 </RETURN>", when="this subtask: two"),
            Turn(" <ANSWER> 5 </ANSWER>", when="<JOIN-2> r2 </JOIN-2>"),
        ],
    )


def test_each_token_is_trained_once_in_the_trace_that_sampled_it() -> None:
    episode = two()
    _, first, second = episode.traces
    assert first.text.startswith(" a b <FORK-1> one </FORK-1>You are now the subprocess") and " c " not in first.text
    assert second.text.startswith(" a b <FORK-1> one </FORK-1> c <JOIN-1> r1 </JOIN-1> d <FORK-2> two </FORK-2>You")
    assert [span.source for span in second.spans] == [
        None, "organizer", "organizer/1", "organizer", "organizer", None,
    ]  # fmt: skip
    assert first.steps == 4 and second.steps == 4, "what is inherited is no step"
    for trace, text in ((first, " x <RETURN> r1 </RETURN>"), (second, " y <RETURN> r2 </RETURN>")):
        row = row_of(trace)
        assert sum(row.trained) == trace.steps
        assert "".join(trace.spans[i].text for i in own(trace)) == text
    assert critical_path(episode) == longest_path(episode) == episode.seconds
    assert first.start == first.spans[1].start == 5.0, "it is read when the worker begins"


def test_a_turn_of_calls_is_answered_as_a_whole_and_natively() -> None:
    calls = call("fork", task="one") + call("status") + call("fork", task="two")
    join = call("join", id=1) + call("join", id=2)
    turns = [
        Turn(f" w{calls}", when="main process"),
        Turn(join, when="main process"),
        Turn(" r1", when="this subtask: one"),
        Turn(" r2", when="this subtask: two"),
        Turn(" <ANSWER> 5 </ANSWER>", when="r2"),
    ]
    organization = AsyncThink(worker_context="inherit", protocol="tools")
    episode = scripted(organization, [turns[i] for i in (0, 2, 3, 1, 4)])
    assert episode.answer == "5"
    for trace, query, own in zip(episode.traces[1:], ("one", "two"), (0, 2), strict=True):
        context = Context((Message("user", trace.spans[0].text),), list(trace.spans[:-1]))
        assert [turn.role for turn in context.turns] == ["user", "assistant", "user"]
        sent = native(context.turns)
        assert [one["role"] for one in sent] == ["user", "assistant", "tool", "tool", "tool"]
        told = [f"this subtask: {query}" in one["content"] for one in sent[2:]]
        assert told == [place == own for place in range(3)], "it is the response to the Fork of this worker"


def test_a_failure_of_an_heir_is_a_result() -> None:
    turns = [
        Turn(" <FORK-1> one </FORK-1> <JOIN-1>", when="main process"),
        Turn(" x", when="this subtask: one", fails="boom"),
        Turn(" <ANSWER> 5 </ANSWER>", when="</JOIN-1>"),
    ]
    episode = scripted(INHERIT, turns)
    assert (episode.answer, episode.traces[1].status, episode.traces[1].error) == ("5", Status.ERROR, "boom")


def test_budgets_and_the_deadline_count_what_an_heir_does_itself() -> None:
    turns = [
        Turn(" w w w w w w <FORK-1> one </FORK-1> <JOIN-1>", when="main process"),
        Turn(" x y z u v w", when="this subtask: one"),
        Turn(" <ANSWER> 5 </ANSWER>", when="</JOIN-1>"),
    ]
    tokens = scripted(
        INHERIT, [*turns[:1], Turn(" x y z u v w q r s t", when="this subtask: one"), turns[2]], max_tokens=13
    )
    assert (tokens.traces[1].steps, tokens.traces[1].status) == (10, Status.NO_RETURN)
    late = scripted(INHERIT, turns, agent_seconds=3.0)
    assert late.traces[1].status is Status.TIMEOUT and late.traces[1].steps <= 3
    whole = scripted(INHERIT, turns[:2], max_episode_tokens=13)
    assert sampled_tokens(whole) == 13


def test_an_approver_is_asked_about_an_heir() -> None:
    asked: list[object] = []

    async def approve(call: object) -> bool:
        asked.append(call)
        return False

    def rule(text: str) -> str:
        return " <ANSWER> 5 </ANSWER>" if "</JOIN-1>" in text else " <FORK-1> one </FORK-1> <JOIN-1>"

    episode, engine = played(INHERIT, rule, approve=approve)
    assert len(asked) == 1 and episode.traces[1].status is Status.DENIED and not episode.traces[1].steps
    assert not any("You are now" in text for text in engine.contexts)


def test_the_end_of_an_episode_ends_its_heirs() -> None:
    async def run() -> tuple[Episode, ScriptedEngine]:
        engine = ScriptedEngine([
            Turn(" <FORK-1> one </FORK-1> w <ANSWER> 5 </ANSWER>", when="main process"),
            Turn(" x" * 99, when="this subtask: one"),
        ])  # fmt: skip
        episode = await attempt(INHERIT, PROBLEM, Backing(engine, Sampling(500)), limits=Limits(2))
        sampled = len(engine.sampled)
        await asyncio.sleep(1000)
        assert len(engine.sampled) == sampled
        return episode, engine

    episode, _ = run_virtual(run())
    assert (episode.answer, episode.traces[1].status) == ("5", Status.CANCELLED)


# Prompts


@pytest.mark.parametrize("style", ["paper", "demonstrated"])
@pytest.mark.parametrize("protocol", ["tags", "tools"])
def test_the_prompts_tell_of_it_only_where_it_is_on(style: str, protocol: str) -> None:
    seen = {}
    for context in ("instruction", "inherit"):
        organization = AsyncThink(worker_context=context, prompts=style, protocol=protocol)  # type: ignore[arg-type]
        _, engine = played(organization, lambda text: " <ANSWER> 5 </ANSWER>")
        seen[context] = engine.contexts[0]
    assert "all that you have read and written" in seen["inherit"] and "sees nothing" not in seen["inherit"]
    assert "read and written" not in seen["instruction"] and "\n\n\n" not in seen["instruction"] + seen["inherit"]
    assert ("sees nothing" in seen["instruction"]) == ((style, protocol) != ("paper", "tags"))


@pytest.mark.parametrize("protocol", ["tags", "tools"])
@pytest.mark.parametrize("depth", [1, 2])
def test_an_heir_is_told_how_to_return_and_whether_it_may_delegate(protocol: str, depth: int) -> None:
    fork = call("fork", task="one") if protocol == "tools" else " <FORK-1> one </FORK-1>" + " w" * 9

    def rule(text: str) -> str:
        return " x" if "this subtask: one" in text else " <ANSWER> 5 </ANSWER>" if "tool_resp" in text else fork

    organization = AsyncThink(worker_context="inherit", protocol=protocol)  # type: ignore[arg-type]
    _, engine = played(organization, rule, depth=depth)
    (note,) = (text.partition("this subtask: one")[2] for text in engine.contexts if "this subtask: one" in text)
    assert ("RETURN" in note) == (protocol == "tags"), "by calls its last reply is handed back"
    assert ("Do not delegate it." in note, "You may delegate" in note) == (depth == 1, depth == 2)


def test_a_style_without_the_sentence_is_refused(tmp_path: Path) -> None:
    templates = {name: f'{name} = "{{query}}"' for name in ("organizer", "worker", "inherit", "inherited")}
    templates |= {name: f'{name} = "so"' for name in ("delegate", "alone")}
    for missing in ("inherit", "inherited", "delegate", "alone"):
        file = tmp_path / f"without_{missing}.toml"
        file.write_text("\n".join(text for name, text in templates.items() if name != missing))
        with pytest.raises(UserError, match=f"has no template '{missing}'"):
            AsyncThink(prompts=str(file), worker_context="inherit")


def test_workers_of_another_kind_do_not_inherit() -> None:
    for other in ({"worker": Sequential()}, {"worker_tools": WorkerTools(("python",))}):
        with pytest.raises(ValueError, match="worker_context=inherit is for workers that are agents without tools"):
            AsyncThink(worker_context="inherit", **other)  # type: ignore[arg-type]


def test_another_model_reads_the_text_again() -> None:
    leads = [Turn(" a <FORK-1> one </FORK-1> b <JOIN-1>"), Turn(" <ANSWER> 5 </ANSWER>")]
    works = ScriptedEngine([Turn(" x <RETURN> r1 </RETURN>", when="this subtask: one")], model="other")
    organizer, worker = Backing(ScriptedEngine(leads), Sampling(50)), Backing(works, Sampling(50))
    episode = run_virtual(attempt(INHERIT, PROBLEM, organizer, roles={"worker": worker}))
    root, heir = episode.traces
    prompt, sampled = heir.spans
    assert (episode.answer, prompt.origin, sampled.origin) == ("5", Origin.PROMPT, Origin.SAMPLED)
    before, _, note = prompt.text.partition(" a <FORK-1> one </FORK-1>")
    assert before.strip() == root.spans[0].text.strip() and note.strip().startswith("You are now the subprocess")
    assert sum(row_of(heir).trained) == heir.steps == 4 and critical_path(episode) == longest_path(episode)


def test_a_session_refuses_tokens_of_another_model() -> None:
    class Wills(Organization):
        async def run(self, problem: Problem, session: Session) -> str | None:
            root = session.agent("organizer", (Message("user", "q"),))
            session.agent("worker", (), inherits=root)

    engines = ScriptedEngine([]), ScriptedEngine([], model="other")
    organizer, worker = (Backing(engine, Sampling(50)) for engine in engines)
    with pytest.raises(UserError, match="only the same model inherits a context: organizer has scripted, worker other"):
        run_virtual(attempt(Wills(), PROBLEM, organizer, roles={"worker": worker}))


@pytest.mark.parametrize("alone", [True, False], ids=["no ids", "same model"])
def test_an_heir_has_the_messages_and_the_tools_of_its_context(alone: bool) -> None:
    """Another model inherits texts; and the model is that of the roles, not of the others."""
    contexts: list[Context] = []

    class Native(ScriptedEngine):
        native_calls = True

        def prompt(self, messages: tuple[Message, ...], tools: Tools = ()) -> Span:
            return replace(super().prompt(messages), token_ids=None if alone else (1,))

        async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
            contexts.append(context)
            async for chunk in super().stream(context, sampling):
                yield replace(chunk, finish=None, **({"token_ids": None, "logprobs": None} if alone else {}))
            yield Chunk((), None, None, FinishReason.EOS, "script", billed=Billed(7, output=3))

        def turn(self, context: Context, text: str) -> tuple[str, tuple[int, ...] | None]:  # type: ignore[override]
            return text, None if alone else (2,)

    leads = [Turn(call("fork", task="one")), Turn(call("join", id=1)), Turn("<ANSWER> 5 </ANSWER>")]
    works = [Turn("r", when="this subtask: one")]
    organizer = Native(leads if alone else [*works, *leads])
    worker = Native(works, model="other") if alone else organizer
    roles = {"organizer": Backing(organizer, Sampling(50)), "worker": Backing(worker, Sampling(50))}
    organization = AsyncThink(worker_context="inherit", protocol="tools")
    default = Backing(ScriptedEngine([], model="others"), Sampling(50))
    episode = run_virtual(attempt(organization, PROBLEM, default, roles=roles))
    (own,) = (one for one in contexts if "this subtask: one" in one.text)
    assert (episode.answer, len(contexts)) == ("5", 4)
    billed = [span.billed for trace in episode.traces for span in trace.spans if span.billed]
    assert len(billed) == 4, "each request is paid once"
    assert own.tools == contexts[0].tools and len(own.tools) == 4
    before, turns = len(contexts[0].messages), [turn.role for turn in own.turns]
    assert tuple(own.turns[:before]) == contexts[0].messages
    assert turns[before : before + 2] == ["assistant", "user"]
    assert len(own.messages) == before + 2 * alone, "another model is told it as messages"
