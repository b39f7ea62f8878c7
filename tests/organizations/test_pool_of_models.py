"""A Fork that names a member of a pool: another model, an endpoint or an organization (`pool`, `organizations`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from longest_path import longest_path
from rules import PROBLEM, Speaker, organizing, played
from speaker import call

from orgthink.engines import EngineSpec
from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.evaluation.specs import OrganizationSpec, RoleSpec
from orgthink.grammar.actions import Fork, Join, Malformed, Think
from orgthink.grammar.asyncthink import Dialect, Keys, organizer_scanner, worker_scanner
from orgthink.grammar.fork_calls import ForkCalls
from orgthink.grammar.toolcall import ToolCall
from orgthink.measure.latency import concurrency, critical_path
from orgthink.measure.orchestration import cost
from orgthink.measure.usage import Price, sampled_tokens, spent, usage
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.organizations.sequential import Sequential
from orgthink.organizations.verifier_corrector import VerifierCorrector
from orgthink.organizations.votes import MajorityVote
from orgthink.record.episode import Episode, FormatError, Sampling, Status, StopReason
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_virtual
from orgthink.training.rollout import Rollout
from orgthink.training.rows import policy_rows
from orgthink.util.errors import UserError

POOL = {"small": "quick", "large": "careful"}
PICKS = AsyncThink(pool=POOL, prices={"large": 4})
LENIENT = replace(PICKS, tolerant=True)
BOTH = pytest.mark.parametrize("protocol", ["tags", "tools"])
ANSWER = " <ANSWER> 5 </ANSWER>"


def fork(protocol: str, task: str, model: str = "", key: int = 1) -> str:
    if protocol == "tools":
        return call("fork", task=task, **({"model": model} if model else {}))
    return f" <FORK-{key}{f' model={model}' if model else ''}> {task} </FORK-{key}>"


def one_of(*forks: str, protocol: str = "tags", end: str = ANSWER) -> Callable[[str], str]:
    """An organizer that forks, joins the first worker, and answers."""

    def rule(text: str) -> str:
        if "</JOIN-1>" in text or "tool_response" in text or "not done" in text:
            return end
        return "".join(forks) + (call("join", id=1) if protocol == "tools" else " <JOIN-1>")

    return rule


def picked(
    organization: AsyncThink, rule: Callable[[str], str], says: str = " x <RETURN> r </RETURN>", **limits: Any
) -> tuple[Episode, dict[str, Speaker]]:
    """An episode, and the engines of the members."""
    members = {name: Speaker(lambda text: says, model=f"the {name} one") for name in organization.pool}
    return played(organization, rule, members=members, **{"turns": 40, **limits})[0], members


def kinds(episode: Episode) -> list[FormatError]:
    return [fault.kind for fault in episode.format_faults]


# Which model works


@BOTH
@pytest.mark.parametrize(("named", "works"), [("", "small"), ("small", "small"), ("large", "large")])
def test_the_named_member_works_and_the_first_one_without_a_name(protocol: str, named: str, works: str) -> None:
    organization = replace(PICKS, protocol=protocol)
    says = " x r" if protocol == "tools" else " x <RETURN> r </RETURN>"
    episode, members = picked(organization, one_of(fork(protocol, "one", named), protocol=protocol), says)
    _, worker = episode.traces
    assert (episode.answer, kinds(episode)) == ("5", [])
    assert (worker.role, worker.model, worker.status) == (works, f"the {works} one", Status.OK)
    assert [name for name, engine in members.items() if engine.contexts] == [works]
    assert critical_path(episode) == longest_path(episode) == episode.seconds


@BOTH
def test_an_unknown_name_is_a_format_error_or_a_line_that_names_the_members(protocol: str) -> None:
    rule = one_of(fork(protocol, "one", "huge"), protocol=protocol)
    strict, _ = picked(replace(PICKS, protocol=protocol), rule)
    assert kinds(strict) == [FormatError.UNKNOWN_MODEL] and strict.stop is StopReason.FORMAT and len(strict.traces) == 1
    lenient, members = picked(replace(LENIENT, protocol=protocol), rule)
    assert kinds(lenient)[0] is FormatError.UNKNOWN_MODEL and lenient.answer == "5" and len(lenient.traces) == 1
    assert "not done: there is no model 'huge': it is one of small, large" in lenient.root.text
    assert not any(engine.contexts for engine in members.values())


@BOTH
def test_the_members_are_named_as_they_are(protocol: str) -> None:
    organization = AsyncThink(pool={"Big_One": ""}, tolerant=True, protocol=protocol)
    episode, _ = picked(organization, one_of(fork(protocol, "one", "Big_Two"), protocol=protocol))
    assert "there is no model 'Big_Two': it is one of Big_One" in episode.root.text


def test_a_refused_name_leaves_its_key_free() -> None:
    def rule(text: str) -> str:
        if "</JOIN-1>" in text:
            return ANSWER
        return " <FORK-1 model=large> one </FORK-1> <JOIN-1>" if "no model" in text else fork("tags", "one", "huge")

    episode, _ = picked(LENIENT, rule)
    assert (episode.answer, kinds(episode), episode.traces[1].role) == ("5", [FormatError.UNKNOWN_MODEL], "large")


def test_a_member_may_fork_members() -> None:
    def small(text: str) -> str:
        if "Subtask: inner" in text:
            return " z <RETURN> i </RETURN>"
        inner = " <FORK-1 model=small> inner </FORK-1> <JOIN-1>"
        return " y <RETURN> r </RETURN>" if "</JOIN-1>" in text.partition("Subtask: one")[2] else inner

    members = {name: Speaker(small, model=name) for name in POOL}
    episode, _ = played(PICKS, one_of(fork("tags", "one", "large")), members=members)
    assert [(trace.agent, trace.role) for trace in episode.traces[1:]] == [
        ("organizer/1", "large"), ("organizer/1/1", "small"),
    ]  # fmt: skip
    assert "small: quick (price 1)\nlarge: careful (price 4)" in members["large"].contexts[0]
    assert "model=" not in members["small"].contexts[0], "it may not fork"
    assert critical_path(episode) == longest_path(episode) == episode.seconds


def test_an_organization_is_a_member() -> None:
    team = VerifierCorrector(passes=1)
    organization = AsyncThink(organizations={"team": team, "alone": Sequential()}, pool={"small": "quick"})
    assert organization.roles == ("organizer", "small", "solver", "verifier", "corrector", "thinker")

    def rule(text: str) -> str:
        if "main process" in text[:30]:
            return one_of(fork("tags", "one", "team"))(text)
        return "**Correctness**: correct" if "examiner" in text else r" so \boxed{7}"

    episode, engine = played(organization, rule)
    assert [trace.role for trace in episode.traces] == ["organizer", "controller", "solver", "verifier"]
    assert "<JOIN-1> 7 </JOIN-1>" in episode.root.text and episode.answer == "5"
    assert "team: A solver" in engine.contexts[0] and "alone: " in engine.contexts[0]
    assert [trace.cost for trace in episode.traces] == [0.0, 0.0, 1.0, 1.0], (
        "its price is 0 besides what its agents cost"
    )
    dear, _ = played(replace(organization, prices={"team": 3}), rule)
    assert dear.traces[1].cost == 3.0 and cost(dear) == 5.0
    assert critical_path(dear) == longest_path(dear)


def test_what_organizations_need_is_needed_above() -> None:
    deep = AsyncThink(organizations={"deep": AsyncThink(), "vote": MajorityVote(samples=5)})
    assert deep.least_depth == 2 and PICKS.least_depth == 1
    assert deep.identical_agents(2) == {"thinker": 5} and PICKS.identical_agents(2) == {}


# Costs


def test_each_member_has_a_price_and_its_model_another_one_in_dollars() -> None:
    second = fork("tags", "two", "large", 2) + " <JOIN-2>"
    episode, _ = picked(PICKS, one_of(fork("tags", "one", "small"), second))
    assert [trace.cost for trace in episode.traces] == [0.0, 1.0, 4.0] and cost(episode) == 5.0
    assert {row.role: row.cost for row in usage([episode])} == {"organizer": 0.0, "small": 1.0, "large": 4.0}
    prices = {"scripted": Price(0, 0), "the small one": Price(0, 1e6), "the large one": Price(0, 2e6)}
    small, large = (trace.steps for trace in episode.traces[1:])
    assert spent(episode, prices) == small + 2 * large


@BOTH
def test_a_fork_that_the_cost_forbids_is_refused_and_the_organizer_goes_on(protocol: str) -> None:
    def rule(text: str) -> str:
        done = text.count("</JOIN-") + text.count("tool_response>\n{") // 2 + 3 * text.count("(not done")
        if protocol == "tools":
            return (call("fork", task="one", model="small") + call("join", id=done + 1)) if done < 3 else ANSWER
        return f" <FORK-{done + 1}> one </FORK-{done + 1}> <JOIN-{done + 1}>" if done < 3 else ANSWER

    organization = replace(LENIENT, protocol=protocol)
    says = " x r" if protocol == "tools" else " x <RETURN> r </RETURN>"
    episode, _ = picked(organization, rule, says, cost=2.0)
    assert episode.answer == "5" and [trace.cost for trace in episode.traces] == [0.0, 1.0, 1.0]
    assert "budget exhausted: cost" in episode.root.text
    strict, _ = picked(replace(PICKS, protocol=protocol), rule, says, cost=2.0)
    assert strict.stop is StopReason.BUDGET and strict.answer is None


def test_a_follow_up_is_paid_again_and_goes_to_the_same_model() -> None:
    def rule(text: str) -> str:
        joined = text.count("</JOIN-1>")
        return [" <FORK-1 model=large> one </FORK-1> <JOIN-1>", " <TELL-1> two </TELL-1> <JOIN-1>", ANSWER][joined]

    episode, _ = picked(replace(PICKS, workers="persistent"), rule)
    assert [(trace.role, trace.cost) for trace in episode.traces[1:]] == [("large", 4.0)] * 2
    assert {trace.model for trace in episode.traces[1:]} == {"the large one"}


def test_a_member_that_never_starts_costs_nothing() -> None:
    asked: list[str] = []

    async def approve(pending: Any) -> bool:
        asked.append(pending.name)
        return False

    episode, members = picked(LENIENT, one_of(fork("tags", "one", "large")), approve=approve)
    assert asked == ["large"] and (episode.traces[1].status, episode.traces[1].cost) == (Status.DENIED, 0.0)
    assert not members["large"].contexts


# Ends


@pytest.mark.parametrize(
    ("limits", "status"), [({"agent_seconds": 5.0}, Status.TIMEOUT), ({"max_tokens": 12}, Status.NO_RETURN)]
)
def test_a_member_keeps_its_deadline_and_its_budget(limits: dict[str, Any], status: Status) -> None:
    episode, _ = picked(LENIENT, one_of(fork("tags", "one", "large")), " w" * 12, **limits)
    assert (episode.answer, episode.traces[1].status) == ("5", status)


def test_a_failure_of_a_member_is_a_result() -> None:
    members = {name: Speaker(lambda text: " x", fails=1.1, model=name) for name in POOL}
    episode, _ = played(LENIENT, one_of(fork("tags", "one", "large")), members=members)
    assert (episode.answer, episode.traces[1].status, episode.traces[1].error) == ("5", Status.ERROR, "boom")


def test_a_cancelled_member_and_one_that_the_end_finds_stop() -> None:
    async def run(second: str) -> tuple[Episode, ScriptedEngine]:
        leads = [Turn(call("fork", task="one", model="large") + call("status")), Turn(second), Turn(ANSWER)]
        large = ScriptedEngine([Turn(" w" * 99)], model="large")
        backing = {"large": Backing(large, Sampling(500))}
        organization = replace(PICKS, protocol="tools")
        organizer = Backing(ScriptedEngine(leads[: 3 if "cancel" in second else 2]), Sampling(500))
        episode = await attempt(organization, PROBLEM, organizer, roles=backing, limits=Limits(2))
        sampled = len(large.sampled)
        await asyncio.sleep(1000)
        assert len(large.sampled) == sampled < 99
        return episode, large

    for second in (call("cancel", id=1), ANSWER):
        episode, _ = run_virtual(run(second))
        assert (episode.answer, episode.traces[1].status) == ("5", Status.CANCELLED)


# With other settings


def test_a_member_with_another_model_reads_an_inherited_context_as_text() -> None:
    organization = replace(PICKS, worker_context="inherit")
    own = Speaker(lambda text: " x <RETURN> r </RETURN>", model="scripted")
    other = Speaker(lambda text: " y <RETURN> s </RETURN>", model="other")
    rule = one_of(" a", fork("tags", "one", "small"), fork("tags", "two", "large", 2) + " <JOIN-2>")
    episode, engine = played(organization, rule, members={"small": own, "large": other})
    _, small, large = episode.traces
    assert "this subtask: one" in own.contexts[0] and "this subtask: two" in other.contexts[0]
    for text in (own.contexts[0], other.contexts[0]):
        assert text.startswith(engine.contexts[0]) and " a <FORK-1 model=small> one </FORK-1>" in text
    assert [len(trace.spans) for trace in (small, large)] == [4, 2], "tokens for the same model, a prompt for another"
    rows = policy_rows(episode, 1.0)
    assert sum(sum(row.trained) for row in rows) == sampled_tokens(episode)


def test_a_result_of_a_member_is_pushed() -> None:
    organization = replace(PICKS, delivery="push")

    def rule(text: str) -> str:
        return ANSWER if "</JOIN1>" in text else " <FORK1 model=large> one </FORK1>" + " w" * 20

    episode, _ = picked(organization, rule)
    assert episode.answer == "5" and " <JOIN1> r </JOIN1>" in episode.root.text, "spelled as its Fork"
    assert critical_path(episode) == longest_path(episode) == episode.seconds


def test_steps_are_seconds_with_a_pool() -> None:
    forked = set()
    for seed in range(60):
        organization = replace(LENIENT, workers="persistent", delivery="push" if seed % 2 else "join")
        rule = organizing(seed, tell=True, models=[*POOL])
        members = {"large": Speaker(rule, model="another")}
        episode, _ = played(organization, rule, capacity=99, turns=80, members=members)
        if episode.answer is None:
            continue
        assert critical_path(episode) == longest_path(episode) == episode.seconds
        assert concurrency(episode) == pytest.approx(sampled_tokens(episode) / episode.seconds)
        forked |= {trace.role for trace in episode.traces[1:]}
    assert forked == {*POOL}


def test_a_member_with_a_model_of_its_own_is_not_trained() -> None:
    spec = OrganizationSpec("asyncthink", {"pool": POOL})
    frozen = {"large": RoleSpec(EngineSpec("frozen"), Sampling(10))}
    for plan in (Rollout("t", spec, models=frozen), Rollout("t", spec, models=frozen, roles=("organizer", "small"))):
        second = fork("tags", "two", "large", 2) + " <JOIN-2>"
        episode, members = picked(PICKS, one_of(fork("tags", "one", "small"), second))
        rows = policy_rows(episode, 1.0, plan.trains)
        assert [row.role for row in rows] == ["organizer", "small"] and plan.trained == ("organizer", "small")
        trained = sum(sum(row.trained) for row in rows)
        assert trained == sampled_tokens(episode) - len(members["large"].sampled)


# Prompts and grammar


@pytest.mark.parametrize("style", ["paper", "demonstrated"])
@BOTH
def test_the_prompts_tell_of_the_members_only_where_there_are_some(style: str, protocol: str) -> None:
    seen = {}
    for pool in ({}, POOL):
        organization = AsyncThink(pool=pool, prompts=style, protocol=protocol, prices={"large": 2.5} if pool else {})
        seen[bool(pool)] = played(organization, lambda text: ANSWER)[1].contexts[0]
    lines = "small: quick (price 1)\nlarge: careful (price 2.5)"
    (told,) = (part for part in seen[True].split("\n\n") if lines in part)
    assert "small" in told.removesuffix(lines), "the default"
    schema = ', "model": {"type": "string", "enum": ["small", "large"], "description": "Who works on it."}'
    assert (schema in seen[True]) == (protocol == "tools")
    assert seen[True].replace(f"{told}\n\n", "").replace(schema, "") == seen[False]


@BOTH
def test_without_a_pool_a_model_is_not_read(protocol: str) -> None:
    rule = one_of(fork(protocol, "one", "small"), protocol=protocol, end=ANSWER)
    episode, _ = played(AsyncThink(protocol=protocol, tolerant=True), rule)
    assert len(episode.traces) == 1 and FormatError.UNKNOWN_MODEL not in kinds(episode)
    text = " <FORK-1 model=small> q "
    off = organizer_scanner()
    assert [e.action for e in (*off.feed(text), *off.close())] == [Think(text)]
    with pytest.raises(ValueError, match=r'the arguments of fork are \{"task": …\}'):
        ForkCalls().command(ToolCall("fork", {"task": "q", "model": "small"}), "1")


@pytest.mark.parametrize(
    ("tag", "model"),
    [
        ("<FORK-1>", ""),
        ("<FORK-1 model=a>", "a"),
        ('<FORK1 model="a b">', "a b"),
        ("<FORK-1  model = 'a' >", "a"),
        ("<FORK-1\nmodel=org/a-1.5:x>", "org/a-1.5:x"),
    ],
)
def test_a_name_may_be_quoted(tag: str, model: str) -> None:
    for scanner in (organizer_scanner(models=True), worker_scanner(forks=True, models=True)):
        assert [e.action for e in scanner.feed(f"{tag} q </FORK-1>")] == [Fork("1", " q ", model)]


@given(
    st.lists(st.sampled_from(["<FORK-1 model=", "<FORK-1", " model=", ">", '"a"', "b" * 30, " q ", "</FORK-1>", "<"])),
    st.data(),
)
def test_events_do_not_depend_on_how_a_text_is_cut(parts: list[str], data: st.DataObject) -> None:
    text = "".join(parts)
    whole, cut = organizer_scanner(models=True), organizer_scanner(models=True)
    at = sorted(data.draw(st.lists(st.integers(0, len(text)))))
    pieces = [text[a:b] for a, b in zip([0, *at], [*at, len(text)], strict=True)]
    events = [event for piece in pieces for event in cut.feed(piece)] + cut.close()
    assert events == [*whole.feed(text), *whole.close()]


def test_the_longest_tag_may_come_in_pieces() -> None:
    text = f"<FORK-999999999  model = '{'b' * 64}' > q </FORK-999999999>"
    scanner = organizer_scanner(models=True)
    events = [event for character in text for event in scanner.feed(character)]
    assert [event.action for event in events] == [Fork("999999999", " q ", "b" * 64)]


@given(st.text("ab.:/@-_1", min_size=1, max_size=64), st.sampled_from([Dialect(), Dialect(fork=("<GO{}>", "</GO{}>"))]))
def test_what_is_written_is_read(model: str, dialect: Dialect) -> None:
    action = Fork("7", " q ", model)
    assert [e.action for e in organizer_scanner(dialect, models=True).feed(dialect.render(action))] == [action]


def test_a_name_that_is_too_long_is_no_tag() -> None:
    text = f"<FORK-1 model={'a' * 65}> q </FORK-1>"
    assert [type(e.action) for e in organizer_scanner(models=True).feed(text)] == [Think, Malformed]


def test_a_key_is_not_taken_by_an_unknown_name() -> None:
    keys = Keys(2, models=("a",))
    assert keys.check(Fork("1", "q", "b")) is FormatError.UNKNOWN_MODEL and not keys.taken
    assert (
        keys.check(Fork("1", "q", "a")) is None and keys.check(Join("1")) is None and keys.check(Fork("1", "q")) is None
    )


@pytest.mark.parametrize(
    ("value", "said"), [(3, "not a number"), (["a"], "not an array"), ({}, "not an object"), (True, "not a")]
)
def test_a_model_that_is_no_text_is_named(value: object, said: str) -> None:
    with pytest.raises(ValueError, match=f'"model" is the name of a model, {said}'):
        ForkCalls(models=("a",)).command(ToolCall("fork", {"task": "q", "model": value}), "1")


@pytest.mark.parametrize("model", [None, "", " "])
def test_null_names_no_model(model: object) -> None:
    assert ForkCalls(models=("a",)).command(ToolCall("fork", {"task": "q", "model": model}), "1") == Fork("1", "q")


# What cannot be


def test_what_cannot_be_is_said_at_once(tmp_path: Path) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"pool": {"a b": ""}}, "a Fork cannot name 'a b'"),
        ({"pool": {"worker": ""}}, "there is a role, model or organization 'worker' already"),
        ({"pool": {"a": ""}, "organizations": {"a": Sequential()}}, "organization 'a' already"),
        ({"pool": {"small": ""}, "prices": {"smal": 1}}, "did you mean small"),
        ({"pool": {"small": ""}, "prices": {"small": -1}}, "the price of small is -1"),
        ({"pool": {"small": ""}, "prices": {"small": float("nan")}}, "the price of small is nan"),
        ({"prices": {"small": 1}}, "small"),
        ({"pool": {"small": ""}, "worker": Sequential()}, "leave one of them out"),
        ({"organizations": {"a": Sequential()}, "workers": "persistent"}, "leave out worker and organizations"),
        ({"organizations": {"a": Sequential()}, "worker_context": "inherit"}, "leave out worker, organizations"),
    ]
    for settings, message in wrong:
        with pytest.raises(ValueError, match=message):
            AsyncThink(**settings)
    file = tmp_path / "mine.toml"
    file.write_text('organizer = "{question}"\nworker = "{query}"')
    with pytest.raises(UserError, match="has no template 'pool'"):
        AsyncThink(prompts=str(file), pool=POOL)
