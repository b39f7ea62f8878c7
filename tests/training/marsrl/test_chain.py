"""Random chains: groups never mix inputs, and rewards never reach another role."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mars_words import Habits
from terse import TERSE

from orgthink.grammar.solution import after_thinking
from orgthink.record.episode import CONTROLLER, Edge, EdgeKind, Episode, Origin, Span, Status, StopReason, Trace
from orgthink.rewards.marsrl import MarsReward
from orgthink.tasks.math import MATH
from orgthink.training.marsrl.chain import (
    GroupInput,
    OutputGroup,
    Rules,
    groups_of,
    last_groups,
    outputs_of,
    part_of,
    source_of,
)
from orgthink.training.marsrl.rollout import ROLES, STREAMS, MarsRollout, role_of

PROBLEM = MATH.problem("7", "7")
PLAN = MarsRollout("math", TERSE, group=8, take=2)
RULES = Rules(PLAN, MATH, MarsReward(), seed=0)

RATE = st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0])
HABITS = st.builds(Habits, solves=RATE, accuses=RATE, rambles=RATE, spellings=st.sampled_from([1, 3, 1000]))


def ruled(seed: int = 0, **changes: Any) -> Rules:
    return replace(RULES, plan=replace(PLAN, **changes), seed=seed, graded={})


ANY_RULES = st.builds(
    lambda group, half, strategy, seed: ruled(seed, group=group, take=2 * half, strategy=strategy),
    st.sampled_from([2, 3, 8]),
    st.integers(1, 2),
    st.sampled_from(["random", "balanced", "adaptive"]),
    st.integers(0, 9),
)
trees = settings(deadline=None)

Write = Callable[[str, Random], str]


def output(place: str, role: str, asked: str, text: str, *, cut: bool = False) -> Trace:
    """The trace of an output that came to its end, or was cut off there."""
    spans = Span(Origin.PROMPT, asked, 1, (0,)), Span(Origin.SAMPLED, text, 1, (1,), (-0.5,), "0")
    returned = after_thinking(text, ended=not cut) or None
    status = Status.TRUNCATED if cut else Status.NO_RETURN if returned is None else Status.OK
    stop = StopReason.BUDGET if cut else StopReason.DONE
    name = f"{CONTROLLER}/{place}"
    return Trace(name, role, CONTROLLER, spans, stop=stop, status=status, returned=returned)


def stage(rules: Rules, inputs: list[GroupInput], write: Write, cut: float = 0.0, number: int = 0) -> list[Trace]:
    """The outputs for these inputs; a part of them is cut off."""
    traces = []
    for asked in inputs:
        (message,) = asked.messages(PROBLEM, TERSE)
        seeds = rules.seeds(rules.group_id(PROBLEM, number, asked))
        for place, seed in zip(asked.places(len(seeds)), seeds, strict=True):
            luck = Random(seed)
            text = write(message.content, luck)
            traces.append(output(place, role_of(asked.stream), message.content, text, cut=luck.random() < cut))
    return traces


def grown(rules: Rules, write: Write, cut: float = 0.0, fits: Callable[[str], bool] = lambda asked: True) -> Episode:
    """A chain that came to its end."""
    traces: list[Trace] = []
    inputs = [GroupInput("solver")]
    while inputs:
        traces += stage(rules, inputs, write, cut)
        inputs = rules.following(PROBLEM, 0, traces, lambda messages: fits(messages[0].content))
    return chain_of(traces)


def chain_of(traces: list[Trace], number: int = 0) -> Episode:
    edges = tuple(Edge(EdgeKind.FORK, place, t.agent, 0) for place, t in outputs_of(traces).items())
    root = Trace(CONTROLLER, CONTROLLER, None, (), edges)
    return Episode("e", PROBLEM, "marsrl", 8, (root, *traces), sample=number)


def stages(chain: Episode) -> list[list[OutputGroup]]:
    """The groups of each stream that was reached."""
    by_stream: dict[str, list[OutputGroup]] = {}
    for group in groups_of(chain.traces):
        by_stream.setdefault(group.stream, []).append(group)
    return list(by_stream.values())


def asked_of(rules: Rules, chain: Episode, group: OutputGroup) -> GroupInput:
    asked = rules.input(PROBLEM, outputs_of(chain.traces), group.source)
    assert asked is not None
    return asked


def prompt_of(group: OutputGroup) -> str:
    (text,) = {trace.spans[0].text for trace in group.outputs}
    return text


# A second implementation of the rewards, with regular expressions


def visible(trace: Trace) -> str:
    """Text after the thinking; empty if the output was cut off before."""
    _, thought, after = trace.text.rpartition("</think>")
    return after.strip() if thought or trace.stop is StopReason.DONE else ""


def whole(trace: Trace) -> bool:
    """Whether it has visible text and was not cut off."""
    return bool(visible(trace)) and trace.stop is StopReason.DONE


def is_right(solution: str) -> bool:
    return re.findall(r"<ANSWER> (\d+) </ANSWER>", solution)[-1:] == ["7"]


def accusation(trace: Trace) -> str | None:
    """The findings of a report that names an error."""
    found = re.fullmatch(r"(.*) correctness : wrong", visible(trace))
    return found[1] if found and trace.stop is StopReason.DONE else None


def deserved(chain: Episode, place: str) -> float:
    outputs = outputs_of(chain.traces)
    trace = outputs[place]
    if trace.role != "verifier":
        return float(trace.stop is StopReason.DONE and is_right(visible(trace)))
    verdict = re.search(r"correctness : (\w+)$", visible(trace))
    if verdict is None or trace.stop is not StopReason.DONE:
        return 0.0
    return float((verdict[1] == "correct") == is_right(visible(outputs[source_of(place)])))


# Groups


@given(ANY_RULES, HABITS, RATE)
@trees
def test_groups_differ_exactly_where_their_inputs_do(rules, habits, cut):
    chain = grown(rules, habits, cut)
    for groups in stages(chain):
        assert len({prompt_of(group) for group in groups}) == len(groups)
    finished = rules.judged(chain, groups_of(chain.traces))
    assert len({one.id for one in finished}) == len(finished)
    seeds = [seed for one in finished for seed in rules.seeds(one.id)]
    assert len(set(seeds)) == len(seeds), "no two outputs share their luck"
    for one in finished:
        assert len(one.group.outputs) == len(one.outcomes) == rules.plan.group
        (message,) = asked_of(rules, chain, one.group).messages(PROBLEM, TERSE)
        assert message.content == prompt_of(one.group), "the record tells the input"
        assert {trace.role for trace in one.group.outputs} == {role_of(one.group.stream)}


@given(ANY_RULES, HABITS, RATE)
@trees
def test_inputs_are_outputs_of_the_stage_before_and_correctors_see_only_errors(rules, habits, cut):
    chain = grown(rules, habits, cut)
    outputs, reached = outputs_of(chain.traces), stages(chain)
    assert [groups[0].stream for groups in reached] == list(STREAMS[: len(reached)])
    for before, groups in pairwise(reached):
        handed_on: set[tuple[str, str]] = set()
        for place in (place for group in before for place in group.places):
            trace = outputs[place]
            if trace.role != "verifier":
                if whole(trace):
                    handed_on.add((visible(trace), ""))
            elif (findings := accusation(trace)) is not None:
                handed_on.add((visible(outputs[source_of(place)]), findings))
        asked = [asked_of(rules, chain, group) for group in groups]
        assert {(one.solution, one.report) for one in asked} <= handed_on
        shown = {(solution or "none", report) for solution, report in handed_on}
        assert len(asked) == min(rules.plan.take, len(shown))
        assert all(one.right == is_right(one.solution) for one in asked)
        assert {group.source for group in groups} <= {place for group in before for place in group.places}
    last = [trace for group in reached[-1] for trace in group.outputs]
    if len(reached) < len(STREAMS):
        if last[0].role == "verifier":
            assert not [trace for trace in last if accusation(trace) is not None]
        else:
            assert not [trace for trace in last if whole(trace)]


BUSIEST = Habits(solves=0, accuses=1, rambles=0, spellings=10**9)
"""All solutions are wrong, and all verifiers find an error."""


def test_a_problem_gives_at_most_72_outputs():
    groups = groups_of(grown(RULES, BUSIEST).traces)
    assert Counter(group.stream for group in groups) == dict(zip(STREAMS, (1, 2, 2, 2, 2), strict=True))
    assert sum(len(group.outputs) for group in groups) == 72


@pytest.mark.parametrize(
    ("roles", "streams"),
    [(ROLES, 5), (("solver",), 1), (("verifier", "corrector"), 5), (("verifier",), 4), (("solver", "verifier"), 4)],
)
def test_a_chain_ends_after_the_last_role_that_is_trained(roles, streams):
    assert len(stages(grown(ruled(roles=roles), BUSIEST))) == streams


@given(ANY_RULES, HABITS, RATE, st.data())
@trees
def test_a_part_of_a_chain_gives_the_same_outcomes(rules, habits, cut, data):
    chain = grown(rules, habits, cut)
    groups = groups_of(chain.traces)
    wanted = data.draw(st.lists(st.sampled_from(groups), unique_by=lambda group: group.source))
    less = part_of(chain, wanted)
    assert rules.judged(less, wanted) == rules.judged(chain, wanted)
    kept = set(outputs_of(less.traces))
    assert kept == {place for group in wanted for place in group.places} | {
        source for group in wanted for source in above(group.source)
    }
    assert [edge.key for edge in less.root.edges] == [place for place in outputs_of(chain.traces) if place in kept]
    last = last_groups(chain.traces)
    assert rules.following(PROBLEM, 0, part_of(chain, last).traces, lambda messages: True) == []
    assert part_of(chain, groups) == chain


def above(place: str) -> list[str]:
    """A place and those that its input comes from."""
    return [place, *above(source_of(place))] if place else []


# Choice


# Rewards


@given(ANY_RULES, HABITS, RATE)
@trees
def test_rewards_match_a_second_implementation(rules, habits, cut):
    chain = grown(rules, habits, cut)
    for one in rules.judged(chain, groups_of(chain.traces)):
        assert [o.reward for o in one.outcomes] == [deserved(chain, place) for place in one.group.places]


@pytest.mark.parametrize("ends_right", [True, False])
@pytest.mark.parametrize("solved", [True, False])
def test_a_verdict_is_rewarded_independently_of_its_correction(solved, ends_right):
    """The solver's reward does not depend on corrections either."""

    def write(asked: str, luck: Random) -> str:
        role, text = asked.split()[0], f" </think> {luck.random()}"
        if role == "verifier":
            return f"{text} correctness : wrong"
        right = solved if role == "sequential" else ends_right
        return f"{text} <ANSWER> {7 if right else 8} </ANSWER>"

    earned = {stream: set() for stream in STREAMS}
    chain = grown(RULES, write)
    for one in RULES.judged(chain, groups_of(chain.traces)):
        earned[one.group.stream] |= {outcome.reward for outcome in one.outcomes}
    assert earned == {
        "solver": {float(solved)},
        "verifier-1": {float(not solved)},
        "corrector-1": {float(ends_right)},
        "verifier-2": {float(not ends_right)},
        "corrector-2": {float(ends_right)},
    }


@pytest.mark.parametrize("place", ["0", "0.0.0"])
def test_a_right_answer_in_a_cut_off_output_has_reward_0(place):
    """Otherwise text without end after the answer would be rewarded."""
    role = {"0": "solver", "0.0.0": "corrector"}[place]
    outcomes = [
        RULES.outcome(
            PROBLEM, outputs_of([output(place, role, "", " </think> <ANSWER> 7 </ANSWER> wait", cut=cut)]), place
        )
        for cut in (False, True)
    ]
    assert [(outcome.reward, outcome.positive) for outcome in outcomes] == [(1.0, True), (0.0, False)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("role", ["solver", "corrector"])
def test_a_cut_off_solution_is_not_passed_on(seed, role):
    """Seven whole solutions, and one that was cut off in its thinking or after it."""
    above = [output("0", "solver", "", "a"), output("0.0", "verifier", "", "b correctness : wrong")]
    before = [] if role == "solver" else above
    first = "0.0." if before else ""
    for cut in ("hm", "hm </think> <ANSWER> 8 </ANSWER>"):
        solved = [output(f"{first}{i}", role, "", f"x </think> <ANSWER> 7 </ANSWER> {i}") for i in range(7)]
        traces = [*before, *solved, output(f"{first}7", role, "", cut, cut=True)]
        assert ruled(seed).following(PROBLEM, 0, traces, lambda messages: True)
        for one in ruled(seed).following(PROBLEM, 0, traces, lambda messages: True):
            assert one.source != f"{first}7"
    assert not RULES.following(PROBLEM, 0, [output("0", "solver", "", "hm", cut=True)], lambda messages: True)
