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

from orgthink.credit.shared import SharedCredit
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
trees = settings(max_examples=60, deadline=None)

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


def rewards(rules: Rules, chain: Episode) -> dict[str, list[float]]:
    return {one.id: [o.reward for o in one.outcomes] for one in rules.judged(chain, groups_of(chain.traces))}


def advantages(rules: Rules, chain: Episode) -> dict[str, dict[int, float]]:
    """By group and place in it; groups that teach nothing are left out."""
    found = {name: SharedCredit()({name: dict(enumerate(group))}) for name, group in rewards(rules, chain).items()}
    return {name: group for name, group in found.items() if group}


# A second reading of the made-up outputs, in regular expressions


def said(trace: Trace) -> str:
    """What follows the thinking; an output that was cut off before that has said nothing."""
    _, thought, after = trace.text.rpartition("</think>")
    return after.strip() if thought or trace.stop is StopReason.DONE else ""


def whole(trace: Trace) -> bool:
    """Whether it said something and was not cut off."""
    return bool(said(trace)) and trace.stop is StopReason.DONE


def is_right(solution: str) -> bool:
    return re.findall(r"<ANSWER> (\d+) </ANSWER>", solution)[-1:] == ["7"]


def accusation(trace: Trace) -> str | None:
    """The findings of a report that names an error."""
    found = re.fullmatch(r"(.*) correctness : wrong", said(trace))
    return found[1] if found and trace.stop is StopReason.DONE else None


def deserved(chain: Episode, place: str) -> float:
    outputs = outputs_of(chain.traces)
    trace = outputs[place]
    if trace.role != "verifier":
        return float(trace.stop is StopReason.DONE and is_right(said(trace)))
    verdict = re.search(r"correctness : (\w+)$", said(trace))
    if verdict is None or trace.stop is not StopReason.DONE:
        return 0.0
    return float((verdict[1] == "correct") == is_right(said(outputs[source_of(place)])))


# Groups


@given(ANY_RULES, HABITS, RATE)
@trees
def test_groups_of_a_chain_differ_exactly_where_their_inputs_do(rules, habits, cut):
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
                    handed_on.add((said(trace), ""))
            elif (findings := accusation(trace)) is not None:
                handed_on.add((said(outputs[source_of(place)]), findings))
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


@given(HABITS, RATE, st.integers(0, 9))
@trees
def test_a_problem_gives_at_most_72_rows(habits, cut, seed):
    assert len(grown(ruled(seed), habits, cut).traces) <= 1 + 72


BUSIEST = Habits(solves=0, accuses=1, rambles=0, spellings=10**9)
"""Nobody solves and everybody accuses."""


def test_a_problem_that_nobody_solves_and_everybody_accuses_gives_72_rows():
    groups = groups_of(grown(RULES, BUSIEST).traces)
    assert Counter(group.stream for group in groups) == dict(zip(STREAMS, (1, 2, 2, 2, 2), strict=True))
    assert sum(len(group.outputs) for group in groups) == 72


def test_a_chain_ends_early_when_no_report_names_an_error():
    assert len(stages(grown(RULES, Habits(accuses=0)))) == 2


@pytest.mark.parametrize(
    ("roles", "streams"),
    [(ROLES, 5), (("solver",), 1), (("verifier", "corrector"), 5), (("verifier",), 4), (("solver", "verifier"), 4)],
)
def test_a_chain_ends_after_the_last_role_that_is_trained(roles, streams):
    assert len(stages(grown(ruled(roles=roles), BUSIEST))) == streams


def test_an_input_is_asked_once_however_it_came_about():
    """Nothing is shown as `none`; and the marks of a template may stand in a text."""
    texts = ["x </think>", "y </think> none"] * 4
    solved = stage(RULES, [GroupInput("solver")], lambda asked, luck: luck.choice(texts))
    assert len({trace.text for trace in solved}) == 2
    assert len(RULES.following(PROBLEM, 0, solved, lambda messages: True)) == 1

    solutions = [
        output("0", "solver", "", "a </think> a"),
        output("1", "solver", "", "b </think> a report b"),
    ]
    reports = {"a": "b report c", "a report b": "c"}

    def accuse(asked: str, luck: Random) -> str:
        return f" {reports[asked.partition(' solution ')[2]]} correctness : wrong"

    inputs = [RULES.input(PROBLEM, outputs_of(solutions), place) for place in ("0", "1")]
    judged = [*solutions, *stage(RULES, [asked for asked in inputs if asked], accuse)]
    (after,) = RULES.following(PROBLEM, 0, judged, lambda messages: True)
    assert after.messages(PROBLEM, TERSE)[0].content.endswith("solution a report b report c")


def test_inputs_that_do_not_fit_are_not_handed_on():
    assert len(stages(grown(RULES, BUSIEST, fits=lambda asked: not asked.startswith("corrector")))) == 2
    fit = re.compile(r"step \d*[02468] ")
    chain = grown(RULES, BUSIEST, fits=lambda asked: bool(fit.search(asked)))
    assert len(stages(chain)) > 1
    assert all(fit.search(prompt_of(group)) for groups in stages(chain)[1:] for group in groups)


def test_text_that_is_no_unicode_is_asked_all_the_same():
    assert RULES.group_id(MATH.problem("half \ud800", "7"), 0, GroupInput("solver")).startswith("math/")


@given(ANY_RULES, HABITS, RATE, st.data())
@trees
def test_a_part_of_a_chain_tells_of_its_groups_what_the_whole_tells(rules, habits, cut, data):
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


# Who is taken


@given(ANY_RULES, HABITS)
@trees
def test_the_seed_decides_who_is_taken(rules, habits):
    assert grown(rules, habits) == grown(rules, habits)


def test_another_seed_or_chain_takes_others():
    solved = stage(RULES, [GroupInput("solver")], Habits(rambles=0, spellings=10**9))

    def taken(rules: Rules, number: int) -> frozenset[str]:
        return frozenset(one.solution for one in rules.following(PROBLEM, number, solved, lambda messages: True))

    assert len({taken(ruled(seed), 0) for seed in range(20)}) > 1
    assert len({taken(RULES, number) for number in range(20)}) > 1


@given(HABITS, RATE, st.integers(0, 9))
@trees
def test_adaptive_gives_wrong_solutions_to_verifiers_and_right_findings_to_correctors(habits, cut, seed):
    rules = ruled(seed)
    chain = grown(rules, habits, cut)
    outputs = outputs_of(chain.traces)
    for before, groups in pairwise(stages(chain)):
        taken = [asked_of(rules, chain, group) for group in groups]
        places = [place for group in before for place in group.places]
        if role_of(groups[0].stream) == "verifier":
            texts = [said(outputs[p]) for p in places if whole(outputs[p])]
            wrong = {solution or "none" for solution in texts if not is_right(solution)}
            assert sum(not asked.right for asked in taken) == min(2, len(wrong))
        else:
            found = {
                (said(outputs[source_of(place)]), accusation(outputs[place]))
                for place in places
                if accusation(outputs[place]) is not None and not is_right(said(outputs[source_of(place)]))
            }
            assert sum(not asked.right for asked in taken) == min(2, len(found))


# Rewards


@given(ANY_RULES, HABITS, RATE)
@trees
def test_every_output_earns_what_it_deserves(rules, habits, cut):
    chain = grown(rules, habits, cut)
    for one in rules.judged(chain, groups_of(chain.traces)):
        assert [o.reward for o in one.outcomes] == [deserved(chain, place) for place in one.group.places]


@given(ANY_RULES, HABITS, HABITS, st.data())
@trees
def test_what_a_group_writes_changes_no_other_groups_advantages(rules, habits, others, data):
    """But for those that judge it: what they deserve depends on what they were shown, so the last groups write anew."""
    chain = grown(rules, habits)
    before = advantages(rules, chain)
    changed = data.draw(st.sampled_from(stages(chain)[-1]))
    name = rules.judged(chain, [changed])[0].id
    rewritten = outputs_of(stage(rules, [asked_of(rules, chain, changed)], others))
    traces = [rewritten.get(place, trace) for place, trace in outputs_of(chain.traces).items()]
    after = advantages(rules, chain_of(traces))
    assert {**before, name: None} == {**after, name: None}


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


def test_a_report_that_was_cut_off_is_no_verdict():
    solution = output("0", "solver", "", "a")
    outcomes = [
        RULES.outcome(PROBLEM, outputs_of([solution, output("0.0", "verifier", "", text, cut=cut)]), "0.0")
        for text, cut in (("correctness : wrong", False), ("correctness : wrong", True))
    ]
    assert [(outcome.reward, outcome.positive) for outcome in outcomes] == [(1.0, True), (0.0, False)]


@pytest.mark.parametrize("place", ["0", "0.0.0"])
def test_a_right_answer_in_an_output_that_was_cut_off_is_worth_nothing(place):
    """Else what rambles on after its answer, up to the limit, would be paid for it."""
    role = {"0": "solver", "0.0.0": "corrector"}[place]
    outcomes = [
        RULES.outcome(
            PROBLEM, outputs_of([output(place, role, "", " </think> <ANSWER> 7 </ANSWER> wait", cut=cut)]), place
        )
        for cut in (False, True)
    ]
    assert [(outcome.reward, outcome.positive) for outcome in outcomes] == [(1.0, True), (0.0, False)]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("role", ["solver", "corrector"])
def test_a_solution_that_was_cut_off_is_handed_on_to_nobody(seed, role):
    """Seven whole solutions, and one whose author was cut off, in its thoughts or after them."""
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


def test_problems_of_one_text_are_chains_of_their_own():
    names = [RULES.group_id(PROBLEM, number, GroupInput("solver")) for number in (0, 1)]
    assert names[0] != names[1]
    assert not {*RULES.seeds(names[0])} & {*RULES.seeds(names[1])}


def test_an_answer_is_graded_once_however_many_give_it():
    class Counting(type(MATH)):
        graded = 0

        def grade(self, problem: Any, answer: str) -> Any:
            Counting.graded += 1
            return super().grade(problem, answer)

    rules = replace(RULES, task=Counting(), graded={})
    chain = grown(rules, Habits(spellings=1))
    answers = {found for trace in chain.traces for found in re.findall(r"<ANSWER> (\d+)", trace.text)}
    assert rules.judged(chain, groups_of(chain.traces)) and Counting.graded <= len(answers) < len(chain.traces)
