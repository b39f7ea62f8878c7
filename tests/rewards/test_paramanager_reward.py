"""The reward of ParaManager: each equation by hand, its laws, and what the ways to cheat earn."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from manager_episodes import (
    ENDS,
    FINAL,
    RIGHT,
    WRONG,
    Call,
    End,
    Rounds,
    episode_of,
    injected,
    led,
    random_rounds,
    sampled,
    tool,
)

from orgthink.grammar.toolcall import CallStatus, Response, ToolCall, render_reply, render_responses
from orgthink.record.episode import Episode, Grade
from orgthink.rewards.paramanager import ParaManagerReward, ParaManagerScore

PAPER = ParaManagerReward()
EXECUTED = ParaManagerReward(count="executed")
REFUSED = Call("telephone", CallStatus.PARSE_ERR)
THREE = [Call("python"), Call("search"), Call("standard_reasoner", cost=1.0, model="large")]


def sized(tokens: int, spent: float, grade: Grade = RIGHT) -> Episode:
    """A tidy episode of one round of one call, this long and this dear."""
    asked, told = render_reply("try", [ToolCall("python", {})]), render_responses([Response("python", "OK", "5")])
    spans = (sampled(asked, tokens - 13), injected(told, 1), sampled(render_reply("done", [FINAL]), 2))
    return led(*spans, calls=[("1.1", tool("1.1", Call(cost=spent)))], grade=grade)


# Eq. 11 and 12


@pytest.mark.parametrize(("grade", "worth"), [(RIGHT, 1), (WRONG, 0), (Grade(3, 4), 0), (Grade(4, 4), 1)])
def test_the_task_is_done_or_not(grade: Grade, worth: float) -> None:
    assert PAPER(episode_of([THREE], grade=grade)).task == worth


TIDY = render_reply("try", [ToolCall("python", {})])
TOLD = injected(render_responses([Response("python", CallStatus.PARSE_ERR, "")]))
DONE = sampled(render_reply("done", [FINAL]))
UNTIDY = {
    "no reasoning": render_reply(None, [ToolCall("python", {})]),
    "text outside": f"Let me see. {TIDY}",
    "reasoning twice": f"<reasoning>\na\n</reasoning>\n{TIDY}",
    "reasoning after the call": f"{render_reply(None, [ToolCall('python', {})])}<reasoning>\na\n</reasoning>\n",
    "an empty call": f"{TIDY}<tool_call>\n</tool_call>\n",
    "broken JSON": '<reasoning>\na\n</reasoning>\n<tool_call>\n{"name": "python"\n</tool_call>\n',
    "cut off": TIDY[:-9],
}


@pytest.mark.parametrize("reply", UNTIDY.values(), ids=UNTIDY)
def test_format_is_the_share_of_tidy_rounds(reply: str) -> None:
    """Of four: two tidy ones, an untidy one, `final_answer`. What follows is the answer and no round."""
    tail = (injected("write"), sampled("5"))
    spans = [part for text in (TIDY, reply, TIDY) for part in (sampled(text), TOLD)]
    assert PAPER(led(*spans, DONE, *tail)).format == pytest.approx(3 / 4)
    assert PAPER(led(sampled(reply), TOLD, DONE)).format == pytest.approx(1 / 2)


def test_an_answer_instead_of_a_reply_is_an_untidy_round() -> None:
    assert PAPER(episode_of([THREE] * 3, "direct")).format == pytest.approx(3 / 4)
    assert PAPER(episode_of([], "direct")).format == 0
    assert PAPER(episode_of([THREE] * 3, "final")).format == 1
    assert PAPER(episode_of([THREE] * 3, "used up")).format == 1


def test_nothing_said_is_not_tidy() -> None:
    silent = PAPER(led(grade=WRONG))
    assert (silent.format, silent.diversity, silent.efficiency) == (0, 0, 1)


# Eq. 13 to 15

DIVERSITY: dict[str, tuple[Rounds, End, float, float]] = {
    "one call a round": ([[Call()]] * 4, "final", 0, 0),
    "(2 + 1 + 1 + 1) / 4 = 1.25": ([[Call()] * 2, [Call()], [Call()]], "final", 1, 0),
    "(2 + 1 + 1 + 1 + 1) / 5 = 1.2": ([[Call()] * 2, [Call()], [Call()], [Call()]], "final", 0, 0),
    "three tools": ([THREE], "final", 1, 1),
    "three tools, one after the other": ([[call] for call in THREE], "final", 0, 1),
    "two tools and final_answer": ([THREE[:2]], "final", 1, 0),
    "a tool many times": ([[Call()] * 4] * 3, "final", 1, 0),
    "a failed call is executed": ([[replace(call, status=CallStatus.EXEC_ERR) for call in THREE]], "final", 1, 1),
    "refused": ([[*THREE[:2], REFUSED]], "final", 1, 0),
}


@pytest.mark.parametrize(("made", "end", "parallel", "tools"), DIVERSITY.values(), ids=DIVERSITY)
def test_diversity_by_hand(made: Rounds, end: End, parallel: float, tools: float) -> None:
    earned = PAPER(episode_of(made, end))
    assert (earned.parallel, earned.tools) == (parallel, tools)
    assert earned.diversity == (parallel + tools) / 2


def test_thresholds() -> None:
    episode = episode_of([THREE], "final")  # (3 + 1) / 2 = 2 calls a round, three tools
    assert ParaManagerReward(theta_par=2.0, theta_tool=3)(episode).diversity == 1
    assert ParaManagerReward(theta_par=2.01, theta_tool=4)(episode).diversity == 0


# Eq. 16 to 18


@pytest.mark.parametrize(
    ("tokens", "spent", "length", "cheap"),
    [
        (12288, 8, 1, 1),
        (13, 0, 1, 1),
        (12289, 9, 12287 / 12288, 7 / 8),
        (18432, 12, 1 / 2, 1 / 2),
        (21504, 14, 1 / 4, 1 / 4),
        (24575, 15.5, 1 / 12288, 1 / 16),
        (24576, 16, 0, 0),
        (99999, 99, 0, 0),
    ],
)
def test_efficiency_by_hand(tokens: int, spent: float, length: float, cheap: float) -> None:
    earned = PAPER(sized(tokens, spent))
    assert (earned.length, earned.cost) == (pytest.approx(length, abs=1e-12), pytest.approx(cheap, abs=1e-12))
    assert earned.efficiency == pytest.approx((length + cheap) / 2)


@pytest.mark.parametrize("target", [4.0, 8.0, 12.0, 16.0])
def test_cost_targets(target: float) -> None:
    """Table 6's."""
    reward = ParaManagerReward(cost_target=target)
    earned = [reward(sized(100, target * tenths / 10)).cost for tenths in range(0, 31)]
    assert earned == pytest.approx([1.0] * 10 + [(20 - tenths) / 10 for tenths in range(10, 20)] + [0.0] * 11)


# Eq. 10


def test_the_sum_by_hand() -> None:
    """Three rounds of which one is no reply, 4 calls in 3 rounds, three tools, 9 units of 8, short."""
    made = [[Call("python"), Call("search")], [Call("code_reasoner", cost=5.0), Call("python", cost=4.0)]]
    parts = ParaManagerScore(1 + 2 / 3 + 1 + (1 + 7 / 8) / 2, 1, 2 / 3, 1, 1, 1, 7 / 8)
    earned = PAPER(episode_of(made, "direct"))
    assert earned == replace(parts, total=pytest.approx(parts.total), format=pytest.approx(2 / 3))
    wrong = PAPER(episode_of(made, "direct", WRONG))
    assert wrong.total == pytest.approx(parts.total - 1)
    weighed = ParaManagerReward(task=2.0, format=0.5, diversity=0.0, efficiency=0.1)(episode_of(made, "direct"))
    assert weighed.total == pytest.approx(2 + 0.5 * 2 / 3 + 0.1 * 15 / 16)


def test_a_wrong_but_tidy_episode_earns_three_of_four_without_the_gate() -> None:
    tidy = episode_of([THREE], grade=WRONG)
    assert PAPER(tidy).total == 3
    assert ParaManagerReward(gate="correct")(tidy).total == 0
    assert ParaManagerReward(gate="correct")(tidy).parts() == PAPER(tidy).parts()
    right = replace(tidy, grade=RIGHT)
    assert ParaManagerReward(gate="correct")(right) == PAPER(right)
    assert PAPER(right).total == 4


def test_parts_are_metrics() -> None:
    earned = PAPER(episode_of([THREE]))
    assert earned.parts() == {
        "task_reward": 1,
        "format_reward": 1,
        "diversity_reward": 1,
        "efficiency_reward": 1,
        "parallel_reward": 1,
        "tools_reward": 1,
        "length_reward": 1,
        "cost_reward": 1,
    }
    assert json.loads(json.dumps(earned.parts())) == earned.parts()


def test_what_is_not_known_has_no_reward() -> None:
    episode = episode_of([[Call(cost=None)]])
    with pytest.raises(ValueError, match="call costs of episode"):
        PAPER(episode)
    with pytest.raises(ValueError, match=r"p\|paramanager\|0 is not graded"):
        PAPER(replace(episode, grade=None))
    with pytest.raises(ValueError, match="has no manager"):
        PAPER(replace(episode, traces=(replace(episode.root, role="organizer"),)))
    assert PAPER(episode_of([], "direct")).cost == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {name: value}
        for names, values in (
            (("task", "format", "diversity", "efficiency"), (-0.1, float("nan"), float("inf"))),
            (("theta_par", "theta_tool", "length_target", "cost_target"), (0, -1, float("nan"), float("inf"))),
        )
        for name in names
        for value in values
    ],
)
def test_settings_that_cannot_be_are_named(wrong: dict[str, float]) -> None:
    ((name, value),) = wrong.items()
    with pytest.raises(ValueError, match=rf"^{name} is {value}"):
        ParaManagerReward(**wrong)  # type: ignore[arg-type]


# Laws

WEIGHTS = st.floats(0, 2)
REWARDS = st.builds(
    ParaManagerReward,
    WEIGHTS,
    WEIGHTS,
    WEIGHTS,
    WEIGHTS,
    st.sampled_from(["none", "correct"]),
    st.floats(0.1, 4),
    st.sampled_from(["requested", "executed"]),
    st.integers(1, 5),
    st.integers(1, 200),
    st.floats(0.5, 20),
)
GRADES = st.sampled_from([RIGHT, WRONG])


@given(random_rounds(), st.sampled_from(ENDS), GRADES, REWARDS)
def test_the_equations_from_what_was_made(made: list[list[Call]], end: End, grade: Grade, reward: ParaManagerReward):
    """The episode is made from calls, and so are the terms, in fractions."""
    assume(made or end != "used up")
    episode = episode_of(made, end, grade)
    turns = len(made) + (end in ("final", "direct"))
    done = [call for one in made for call in one if call.executed]
    tidy = Fraction(len(made) + (end == "final"), turns) if turns else Fraction(0)
    counted = done if reward.count == "executed" else [call for one in made for call in one]
    mean = Fraction(len(counted) + (end == "final"), turns) if turns else Fraction(0)
    long = sum(span.tokens for span in episode.root.spans)
    dear = sum(int(call.cost or 0) for call in done)
    over = [
        Fraction(used) / Fraction(target) for used, target in ((long, reward.length_target), (dear, reward.cost_target))
    ]
    soft = [min(Fraction(1), max(Fraction(0), 2 - share)) for share in over]
    diverse = Fraction(
        (mean >= Fraction(reward.theta_par)) + (len({call.name for call in done}) >= reward.theta_tool), 2
    )
    rest = reward.format * tidy + reward.diversity * diverse + reward.efficiency * sum(soft) / 2
    total = reward.task * grade.all_correct + (rest if reward.gate == "none" or grade is RIGHT else 0)
    assert reward(episode).total == pytest.approx(float(total))


@given(random_rounds(), st.sampled_from(ENDS), GRADES)
def test_rewards_are_bounded(made: list[list[Call]], end: End, grade: Grade) -> None:
    earned, gated = (reward(episode_of(made, end, grade)) for reward in (PAPER, ParaManagerReward(gate="correct")))
    assert all(0 <= part <= 1 for part in earned.parts().values())
    assert 0 <= gated.total <= earned.total <= 4
    assert earned.total <= 3 + earned.task
    assert gated.total == (earned.total if grade is RIGHT else 0)


@given(st.integers(13, 30000), st.integers(13, 30000), st.floats(0, 20), st.floats(0, 20), GRADES)
def test_less_is_never_worse(tokens: int, more: int, spent: float, dearer: float, grade: Grade) -> None:
    tokens, more = sorted((tokens, more))
    spent, dearer = sorted((spent, dearer))
    first, longer, costlier = (
        PAPER(sized(*size, grade)) for size in ((tokens, spent), (more, spent), (tokens, dearer))
    )
    assert first.total >= longer.total
    assert first.total >= costlier.total
    assert (first.length > longer.length) == (tokens < more and more > 12288 and tokens < 24576)
    assert first.length == longer.length or first.cost == longer.cost


@given(st.integers(12288, 24576), st.integers(12288, 24576))
def test_efficiency_falls_in_a_straight_line(tokens: int, more: int) -> None:
    slopes = PAPER(sized(tokens, 0)).length - PAPER(sized(more, 0)).length
    assert slopes == pytest.approx((more - tokens) / 12288, abs=1e-9)


@given(random_rounds(), st.integers(0, 3))
def test_a_tool_again_is_no_other_tool(made: list[list[Call]], times: int) -> None:
    again = [one + [call for call in one for _ in range(times)] for one in made]
    assert PAPER(episode_of(again)).tools == PAPER(episode_of(made)).tools


# Ways to cheat: each earns no more than the honest episode beside it, at the same grade.


def pestered(reply: str, statuses: int, done: Rounds = ()) -> Episode:
    """Rounds, then one of a reply whose calls are all refused, then `final_answer`."""
    honest = episode_of(done, "cut off")
    told = render_responses([Response("x", CallStatus.PARSE_ERR, "no")] * statuses)
    forks = [(edge.key, honest.trace(edge.child)) for edge in honest.root.forks]
    return led(*honest.root.spans[1:], sampled(reply), injected(told), DONE, calls=forks)


def many(call: ToolCall, n: int) -> str:
    return render_reply("more", [call] * n)


LONE = episode_of([[Call()]])
CHEATS: dict[str, tuple[Episode, Episode]] = {
    "empty calls": (pestered("<tool_call></tool_call>" * 50, 50, [[Call()]]), LONE),
    "calls without a name": (pestered(many(ToolCall("", {}), 50), 50, [[Call()]]), LONE),
    "unknown tools": (
        pestered(render_reply("more", [ToolCall(f"tool{n}", {}) for n in range(4)]), 4, [[Call()]]), LONE,
    ),
    "calls past the round's limit": (pestered(many(ToolCall("python", {}), 50), 50, [[Call()]]), LONE),
    "reasoning twice": (
        led(sampled(UNTIDY["reasoning twice"]), TOLD, DONE, calls=[("1.1", tool("1.1", Call()))]), LONE,
    ),
    "final_answer many times": (led(sampled(many(FINAL, 4)), injected("write"), sampled("5")), episode_of([])),
    "final_answer beside tools": (
        led(sampled(render_reply("x", [ToolCall(call.name, {}) for call in THREE] + [FINAL])), *[DONE] * 3),
        episode_of([]),
    ),
    "final_answer in each round": (led(*[DONE, injected("write")] * 9, sampled("5")), episode_of([])),
    "calls in the answer": (led(DONE, injected("write"), sampled(many(ToolCall("python", {}), 4))), episode_of([])),
    "responses that it writes itself": (
        led(sampled(TIDY + render_responses([Response("search", CallStatus.OK, "5")] * 4)), TOLD, DONE),
        LONE,
    ),
    "a round inside its thoughts": (led(sampled(f"<reasoning>\n{TIDY}</reasoning>\n"), TOLD, DONE), LONE),
}  # fmt: skip


@pytest.mark.parametrize(("cheat", "honest"), CHEATS.values(), ids=CHEATS)
@given(reward=REWARDS)
def test_a_cheat_earns_no_more_than_an_honest_manager(cheat: Episode, honest: Episode, reward: ParaManagerReward):
    """If refused calls do not count, and without the price of being longer, which a cheat may be."""
    reward = replace(reward, length_target=12288, count="executed")
    assert reward(cheat).total <= reward(honest).total + 1e-12
    assert reward(cheat).diversity <= reward(honest).diversity


def test_refused_calls_earn_r_par_as_printed() -> None:
    """Four calls of unknown tools beside one that is made: 6 / 3 = 2 against 2 / 3 calls a round."""
    cheat = CHEATS["unknown tools"][0]
    assert (PAPER(cheat).parallel, EXECUTED(cheat).parallel) == (1, 0)


def test_more_parallel_calls_earn_more_only_from_the_threshold_on() -> None:
    earned = [PAPER(episode_of([[Call()] * n, [Call()]])).parallel for n in range(1, 5)]
    assert earned == [0, 1, 1, 1]
    assert all(less <= more for less, more in pairwise(earned))
