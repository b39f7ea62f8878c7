"""Chains as random trees of made-up outputs: groups never mix inputs, and rewards never leak between roles."""

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

from orgthink.credit.per_role import per_role
from orgthink.episode import Origin, Span, StopReason, Trace
from orgthink.rewards.marsrl import MarsReward
from orgthink.tasks.math import MATH
from orgthink.training.marsrl.chain import Asked, Chain, Group, Rules
from orgthink.training.marsrl.streams import ROLES, STREAMS, last_stage, role_of

PROBLEM = MATH.problem("7", "7")
RULES = Rules(MATH, TERSE, group=8, take=2, strategy="adaptive", last=4, reward=MarsReward(), seed=0)

RATE = st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0])
HABITS = st.builds(Habits, solves=RATE, accuses=RATE, rambles=RATE, spellings=st.sampled_from([1, 3, 1000]))
ANY_RULES = st.builds(
    lambda group, half, strategy, seed: replace(RULES, group=group, take=2 * half, strategy=strategy, seed=seed),
    st.sampled_from([2, 3, 8]),
    st.integers(1, 2),
    st.sampled_from(["random", "balanced", "adaptive"]),
    st.integers(0, 9),
)
trees = settings(max_examples=60, deadline=None)

Write = Callable[[str, Random], str]


def written(trace: Trace, asked: str, text: str, *, cut: bool = False) -> Trace:
    """The trace of an output that came to its end, or was cut off there."""
    spans = Span(Origin.PROMPT, asked, 1, (0,)), Span(Origin.SAMPLED, text, 1, (1,), (-0.5,), "0")
    return replace(trace, spans=spans, stop=StopReason.LENGTH if cut else StopReason.DONE)


def filled(chain: Chain, write: Write, cut: float = 0.0) -> Chain:
    """The chain with its stage over; a part of the outputs is cut off."""

    def of(group: Group) -> Group:
        asked = prompt_of(group)
        members = []
        for member in group.members:
            luck = Random(member.seed)
            trace = written(member.trace, asked, write(asked, luck), cut=luck.random() < cut)
            members.append(replace(member, trace=trace, finished=True))
        return replace(group, members=tuple(members))

    return replace(chain, groups=tuple(map(of, chain.groups)))


def grown(rules: Rules, write: Write, cut: float = 0.0, **limits: Any) -> list[Chain]:
    """The stages of a chain, each over."""
    stages = []
    after: Chain | None = rules.begin(0, PROBLEM)
    while after is not None:
        stages.append(filled(after, write, cut))
        after = rules.advance(stages[-1], **limits)
    return stages


def groups_of(stages: list[Chain]) -> list[Group]:
    return [group for chain in stages for group in chain.groups]


def prompt_of(group: Group) -> str:
    (message,) = group.asked.messages(PROBLEM, TERSE)
    return message.content


def rewards(rules: Rules, stages: list[Chain]) -> dict[str, list[float]]:
    return {g.id: [o.reward for o in rules.outcomes(chain, g)] for chain in stages for g in chain.groups}


# A second reading of the made-up outputs, in regular expressions


def said(trace: Trace) -> str:
    """What follows the thinking; an output that was cut off before that has said nothing."""
    _, thought, after = trace.text.rpartition("</think>")
    return after.strip() if thought or trace.stop is StopReason.DONE else ""


def is_right(solution: str) -> bool:
    return re.findall(r"<ANSWER> (\d+) </ANSWER>", solution)[-1:] == ["7"]


def accusation(trace: Trace) -> str | None:
    """The findings of a report that names an error."""
    found = re.fullmatch(r"(.*) correctness : wrong", said(trace))
    return found[1] if found and trace.stop is StopReason.DONE else None


def deserved(group: Group, trace: Trace) -> float:
    if role_of(group.asked.stream) != "verifier":
        return float(is_right(said(trace)))
    verdict = re.search(r"correctness : (\w+)$", said(trace))
    if verdict is None or trace.stop is not StopReason.DONE:
        return -0.5
    return float((verdict[1] == "correct") == is_right(group.asked.solution))


# Groups


@given(ANY_RULES, HABITS, RATE)
@trees
def test_groups_of_a_chain_differ_exactly_where_their_inputs_do(rules, habits, cut):
    stages = grown(rules, habits, cut)
    for chain in stages:
        assert len({group.id for group in chain.groups}) == len(chain.groups)
        assert len({prompt_of(group) for group in chain.groups}) == len(chain.groups)
    groups = groups_of(stages)
    assert len({group.id for group in groups}) == len(groups)
    seeds = [member.seed for group in groups for member in group.members]
    assert len(set(seeds)) == len(seeds), "no two outputs share their luck"
    for group in groups:
        assert len(group.members) == rules.group
        for member in group.members:
            assert member.trace.spans[0].text == prompt_of(group)
            assert member.trace.role == role_of(group.asked.stream)


@given(ANY_RULES, HABITS, RATE)
@trees
def test_inputs_are_outputs_of_the_stage_before_and_correctors_see_only_errors(rules, habits, cut):
    stages = grown(rules, habits, cut)
    assert [chain.stage for chain in stages] == list(range(len(stages)))
    for before, chain in pairwise(stages):
        handed_on: set[tuple[str, str]] = set()
        for group in before.groups:
            for member in group.members:
                if role_of(group.asked.stream) != "verifier":
                    if said(member.trace) or role_of(group.asked.stream) == "solver":
                        handed_on.add((said(member.trace), ""))
                elif (findings := accusation(member.trace)) is not None:
                    handed_on.add((group.asked.solution, findings))
        asked = [(group.asked.solution, group.asked.report) for group in chain.groups]
        assert set(asked) <= handed_on
        shown = {(solution or "none", report) for solution, report in handed_on}
        assert len(asked) == min(rules.take, len(shown))
        assert all(group.asked.right == is_right(group.asked.solution) for group in chain.groups)
        assert all(group.asked.stream == STREAMS[chain.stage] for group in chain.groups)
    last = stages[-1]
    if len(stages) < len(STREAMS):
        members = [member for group in last.groups for member in group.members]
        if role_of(STREAMS[last.stage]) == "verifier":
            assert not [member for member in members if accusation(member.trace) is not None]
        else:
            assert role_of(STREAMS[last.stage]) == "corrector"
            assert not [member for member in members if said(member.trace)]


@given(HABITS, RATE, st.integers(0, 9))
@trees
def test_a_problem_gives_at_most_72_rows(habits, cut, seed):
    groups = groups_of(grown(replace(RULES, seed=seed), habits, cut))
    assert sum(len(group.members) for group in groups) <= 72


def test_a_problem_that_nobody_solves_and_everybody_accuses_gives_72_rows():
    groups = groups_of(grown(RULES, Habits(solves=0, accuses=1, rambles=0, spellings=10**9)))
    assert Counter(group.asked.stream for group in groups) == dict(zip(STREAMS, (1, 2, 2, 2, 2), strict=True))
    assert sum(len(group.members) for group in groups) == 72


def test_a_chain_ends_early_when_no_report_names_an_error():
    stages = grown(RULES, Habits(accuses=0))
    assert [chain.stage for chain in stages] == [0, 1]


@pytest.mark.parametrize(
    ("roles", "streams"),
    [(ROLES, 5), (("solver",), 1), (("verifier", "corrector"), 5), (("verifier",), 4), (("solver", "verifier"), 4)],
)
def test_a_chain_ends_after_the_last_role_that_is_trained(roles, streams):
    rules = replace(RULES, last=last_stage(roles))
    assert len(grown(rules, Habits(solves=0, accuses=1, rambles=0, spellings=10**9))) == streams


def test_an_input_is_asked_once_however_it_came_about():
    """Nothing is shown as `none`; and the marks of a template may stand in a text."""
    texts = ["x </think>", "y </think> none"] * 4
    stage = filled(RULES.begin(0, PROBLEM), lambda asked, luck: luck.choice(texts))
    assert len({m.trace.text for m in stage.groups[0].members}) == 2
    assert len((RULES.advance(stage) or stage).groups) == 1

    two = [Asked("verifier-1", "a", False), Asked("verifier-1", "a report b", False)]
    groups = tuple(RULES._group(0, PROBLEM, asked) for asked in two)
    reports = {"a": "b report c", "a report b": "c"}
    stage = replace(stage, stage=1, groups=groups)

    def accuse(asked: str, luck: Random) -> str:
        return f" {reports[asked.partition(' solution ')[2]]} correctness : wrong"

    after = RULES.advance(filled(stage, accuse))
    assert after is not None and len(after.groups) == 1
    assert prompt_of(after.groups[0]).endswith("solution a report b report c")


def test_inputs_that_do_not_fit_are_not_handed_on():
    talks = Habits(solves=0, accuses=1, rambles=0, spellings=10**9)
    assert len(grown(RULES, talks, fits=lambda asked: asked.stream != "corrector-1")) == 2
    fit = re.compile(r"step \d*[02468] ")
    stages = grown(RULES, talks, fits=lambda asked: bool(fit.search(asked.solution)))
    assert len(stages) > 1 and all(fit.search(group.asked.solution) for group in groups_of(stages[1:]))


def test_text_that_is_no_unicode_is_asked_all_the_same():
    assert RULES.begin(0, MATH.problem("half \ud800", "7")).groups[0].id.startswith("math/")


# Who is taken


@given(ANY_RULES, HABITS)
@trees
def test_the_seed_decides_who_is_taken(rules, habits):
    assert grown(rules, habits) == grown(rules, habits)


def test_another_seed_or_chain_takes_others():
    talks = Habits(rambles=0, spellings=10**9)
    stage = filled(RULES.begin(0, PROBLEM), talks)

    def taken(rules: Rules, number: int) -> frozenset[str]:
        after = rules.advance(replace(stage, number=number))
        return frozenset(group.asked.solution for group in after.groups) if after else frozenset()

    assert len({taken(replace(RULES, seed=seed), 0) for seed in range(20)}) > 1
    assert len({taken(RULES, number) for number in range(20)}) > 1


@given(HABITS, RATE, st.integers(0, 9))
@trees
def test_adaptive_gives_wrong_solutions_to_verifiers_and_right_findings_to_correctors(habits, cut, seed):
    stages = grown(replace(RULES, seed=seed), habits, cut)
    for before, chain in pairwise(stages):
        taken = [group.asked for group in chain.groups]
        outputs = [(group, member.trace) for group in before.groups for member in group.members]
        if chain.stage in (1, 3):
            handed_on = [said(trace) for _, trace in outputs if said(trace) or trace.role == "solver"]
            wrong = {solution or "none" for solution in handed_on if not is_right(solution)}
            assert sum(not asked.right for asked in taken) == min(2, len(wrong))
        else:
            found = {
                (group.asked.solution, accusation(trace))
                for group, trace in outputs
                if accusation(trace) is not None and not is_right(group.asked.solution)
            }
            assert sum(not asked.right for asked in taken) == min(2, len(found))


# Rewards


@given(ANY_RULES, HABITS, RATE)
@trees
def test_every_output_earns_what_it_deserves(rules, habits, cut):
    stages = grown(rules, habits, cut)
    expected = {g.id: [deserved(g, member.trace) for member in g.members] for g in groups_of(stages)}
    assert rewards(rules, stages) == expected


@given(ANY_RULES, HABITS, HABITS, st.data())
@trees
def test_what_a_group_writes_changes_no_other_groups_advantages(rules, habits, others, data):
    stages = grown(rules, habits)
    before = per_role(rewards(rules, stages))
    at = data.draw(st.integers(0, len(stages) - 1))
    changed = data.draw(st.sampled_from(stages[at].groups))
    (rewritten,) = filled(replace(stages[at], groups=(changed,)), others).groups
    after = per_role(rewards(rules, with_group(stages, at, rewritten)))
    assert {**before, changed.id: None} == {**after, changed.id: None}


def with_group(stages: list[Chain], at: int, group: Group) -> list[Chain]:
    """The stages with a group in the place of the one with its id."""
    groups = tuple(group if one.id == group.id else one for one in stages[at].groups)
    return [*stages[:at], replace(stages[at], groups=groups), *stages[at + 1 :]]


@pytest.mark.parametrize("ends_right", [True, False])
@pytest.mark.parametrize("solved", [True, False])
def test_a_verdict_is_not_paid_for_what_its_corrector_makes_of_it(solved, ends_right):
    """A right solution that is called wrong and then mended is a wrong verdict; a wrong one that is called wrong and
    not mended a right one. And the solver gets nothing for what others mended."""

    def write(asked: str, luck: Random) -> str:
        role, text = asked.split()[0], f" </think> {luck.random()}"
        if role == "verifier":
            return f"{text} correctness : wrong"
        right = solved if role == "sequential" else ends_right
        return f"{text} <ANSWER> {7 if right else 8} </ANSWER>"

    earned = {stream: set() for stream in STREAMS}
    stages = grown(RULES, write)
    for chain in stages:
        for group in chain.groups:
            earned[group.asked.stream] |= {outcome.reward for outcome in RULES.outcomes(chain, group)}
    assert earned == {
        "solver": {float(solved)},
        "verifier-1": {float(not solved)},
        "corrector-1": {float(ends_right)},
        "verifier-2": {float(not ends_right)},
        "corrector-2": {float(ends_right)},
    }


def test_a_report_that_was_cut_off_is_no_verdict():
    group = RULES._group(0, PROBLEM, Asked("verifier-1", "a", False))
    outcomes = [
        RULES.outcome(PROBLEM, group.asked, written(group.members[0].trace, "", "correctness : wrong", cut=cut))
        for cut in (False, True)
    ]
    assert [(outcome.reward, outcome.positive) for outcome in outcomes] == [(1.0, True), (-0.5, False)]


def test_problems_of_one_text_are_chains_of_their_own():
    twice = [RULES.begin(number, PROBLEM) for number in (0, 1)]
    assert twice[0].groups[0].id != twice[1].groups[0].id
    assert not {m.seed for m in twice[0].groups[0].members} & {m.seed for m in twice[1].groups[0].members}
