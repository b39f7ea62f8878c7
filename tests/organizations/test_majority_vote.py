"""Majority voting on a script: who votes, who waits for a place, what wins, what it costs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orgthink.engines import EngineSpec
from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.evaluation.compatibility import pool_warning, require_sampling_noise
from orgthink.evaluation.specs import OrganizationSpec, RoleSpec
from orgthink.measure.usage import usage
from orgthink.organizations import identical_below
from orgthink.organizations.paramanager import ParaManager, ToolUse
from orgthink.organizations.self_refine import SelfRefine
from orgthink.organizations.sequential import Sequential
from orgthink.organizations.votes import MajorityVote, Parallel
from orgthink.record.episode import Episode, Problem, Sampling, Status, StopReason
from orgthink.record.guard import engine_failed
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_virtual
from orgthink.runtime.organization import Organization
from orgthink.tasks.vote import vote
from orgthink.util.errors import UserError

PROBLEM = Problem("countdown/test", "countdown", "main question")
ROOMY = Limits(capacity=8)


def play(organization: Organization, turns: Sequence[Turn], limits: Limits = ROOMY, max_tokens: int = 1000) -> Episode:
    """One attempt in virtual time; exactly these turns are asked for."""
    engine = ScriptedEngine(turns)
    episode = run_virtual(attempt(organization, PROBLEM, Backing(engine, Sampling(max_tokens)), limits=limits))
    run_virtual(engine.aclose())
    return episode


def ballot(answer: str, words: int = 0) -> Turn:
    """A thinker that thinks so many words and votes: `words` + 3 tokens."""
    return Turn("o " * words + f"<ANSWER> {answer} </ANSWER>")


def test_eight_thinkers_over_four_places_take_two_turns():
    turns = [ballot("1+1", words=7)] * 8
    halved, whole = (play(MajorityVote(), turns, Limits(capacity=capacity)) for capacity in (4, 8))
    assert (halved.seconds, whole.seconds) == (20, 10)
    assert [trace.start for trace in halved.traces[1:]] == [0] * 4 + [10] * 4
    assert [trace.agent for trace in halved.traces[1:]] == [f"controller/{i}" for i in range(1, 9)]
    assert halved.answer == whole.answer == "1+1"


def test_an_answer_that_is_only_thought_about_is_none():
    """The engine stops at the tag all the same, and is then asked to go on."""
    thought, rest = Turn("<think> It stands between <ANSWER> and </ANSWER>"), Turn(". </think> <ANSWER> 1+1 </ANSWER>")
    for organization, thinkers in ((Sequential(), 1), (MajorityVote(samples=3), 3), (Parallel(), 3)):
        episode = play(organization, [*[thought] * thinkers, *[rest] * thinkers], Limits(capacity=3))
        assert episode.answer == "1+1" and not episode.format_faults
    assert play(Sequential(), [thought, Turn(". </think> I do not know.")]).answer == "I do not know."
    assert play(Sequential(), [thought, Turn(". It never ends")]).answer is None


def test_who_answers_nothing_does_not_vote():
    plain = Problem("asked", "", "How many?")
    for answers in (["", "", "42"], [" ", "\n", "42"]):
        assert vote(plain, answers) == "42"


def test_whoever_is_done_leaves_the_place_to_the_next_one():
    turns = [ballot("1+1", words) for words in (7, 0, 0, 0)]
    episode = play(MajorityVote(samples=4), turns, Limits(capacity=2))
    assert episode.seconds == 10
    assert [trace.start for trace in episode.traces[1:]] == [0, 0, 3, 6]


def test_parallel_is_a_vote_of_as_many_as_the_pool_holds():
    turns = [ballot("1+1"), ballot("2+2"), ballot("2+2")]
    voted, paralleled = (play(one, turns, Limits(capacity=3)) for one in (MajorityVote(samples=3), Parallel()))
    assert voted.traces == paralleled.traces and voted.answer == paralleled.answer == "2+2"
    assert (voted.organization, paralleled.organization) == ("majority-vote", "parallel")


@pytest.mark.parametrize(
    ("answers", "winner"),
    [
        (["1+1", "2+2", "2+2"], "2+2"),
        (["1+1", "2+2", "3+3"], "1+1"),  # among equals the one that was offered first
        (["3+3", "1+1", "1+1", "3+3"], "3+3"),
        (["1+2", "2+2", "2+1"], "1+2"),  # two spellings are one solution
        (["1+1"], "1+1"),
    ],
)
def test_the_most_frequent_answer_wins(answers: list[str], winner: str):
    turns = [ballot(answer) for answer in answers]
    assert play(MajorityVote(samples=len(answers)), turns).answer == winner


def test_the_first_offer_counts_by_the_order_of_thinkers_not_of_time():
    turns = [ballot("1+1", words=9), ballot("2+2")]
    assert play(MajorityVote(samples=2), turns).answer == "1+1"


def test_who_fails_or_is_cut_off_or_marks_no_answer_has_no_vote():
    turns = [
        Turn("it is 9", fails="gone"),
        Turn("o " * 20 + "<ANSWER> 9 </ANSWER>"),
        Turn("it is 9"),
        ballot("1+1"),
    ]
    episode = play(MajorityVote(samples=4), turns, max_tokens=20)
    assert episode.answer == "1+1" and episode.stop is StopReason.DONE and not engine_failed(episode)
    statuses = [Status.ERROR, Status.TRUNCATED, Status.OK, Status.OK]
    assert [trace.status for trace in episode.traces[1:]] == statuses
    assert [(fault.agent, fault.kind) for fault in episode.format_faults] == [
        ("controller/3", "NO_ANSWER"),
        ("controller/2", "TRUNCATED"),
    ]
    lost = play(MajorityVote(samples=2), turns[:2], max_tokens=20)
    assert lost.answer is None and engine_failed(lost)


@pytest.mark.parametrize(
    ("says", "answer"),
    [
        ("it is 9", "it is 9"),
        ("hm </think> it is 9 \n", "it is 9"),
        ("so <ANSWER> 9", "9"),  # the model ended within its tag
        ("so <ANSWER> </ANSWER>", ""),
        ("<think> it is 9", None),
        ("o " * 30, None),  # a limit cut it off
    ],
)
def test_the_text_of_one_that_thinks_alone_is_its_answer(says: str, answer: str | None) -> None:
    """A model that was not trained may not write the tags. That stays a format error, for whoever counts them."""
    for organization, thinkers in ((Sequential(), 1), (MajorityVote(samples=3), 3), (Parallel(), 2)):
        episode = play(organization, [Turn(says)] * thinkers, Limits(capacity=thinkers), max_tokens=20)
        assert episode.answer == (answer or None if thinkers > 1 else answer)
        assert len(episode.format_faults) == (0 if answer == "" else thinkers)


def test_a_text_has_a_vote_where_no_one_marks_an_answer() -> None:
    texts = [Turn("it is 9"), Turn("it is 8"), Turn("it is 8")]
    assert play(MajorityVote(samples=3), texts).answer == "it is 8"
    assert play(MajorityVote(samples=4), [*texts, ballot("1+1")]).answer == "1+1"


def test_every_call_costs_a_unit_also_one_that_failed():
    turns = [ballot("1+1"), Turn("o", fails="gone"), Turn("o " * 20)]
    episode = play(MajorityVote(samples=3), turns, max_tokens=10)
    assert [trace.cost for trace in episode.traces] == [None, 1, 1, 1]
    assert {row.role: row.cost for row in usage([episode])}["thinker"] == 3
    assert [trace.cost for trace in play(Sequential(), [ballot("1+1")]).traces] == [1]
    assert [trace.cost for trace in play(Parallel(), [ballot("1+1")] * 2, Limits(2)).traces] == [None, 1, 1]


@given(samples=st.integers(1, 8), capacity=st.integers(1, 8), budget=st.integers(1, 9))
def test_a_budget_of_cost_is_spent_and_not_overdrawn(samples: int, capacity: int, budget: int):
    """Also not by calls under way together; whoever finds nothing left makes no call."""
    calls = min(samples, budget)
    turns = [ballot("1+1")] * calls
    limits = Limits(capacity=capacity, cost=budget)
    episode = play(MajorityVote(samples=samples), turns, limits)
    assert [trace.cost for trace in episode.traces[1:]] == [1] * calls + [0] * (samples - calls)
    assert [trace.turns for trace in episode.traces[1:]] == [1] * calls + [0] * (samples - calls)
    assert episode.answer == "1+1"


def test_whoever_the_deadline_finds_waiting_has_cost_nothing():
    episode = play(MajorityVote(samples=3), [Turn("o", hangs=True)], Limits(1, episode_seconds=5))
    assert (episode.stop, episode.answer) == (StopReason.DEADLINE, None)
    assert [trace.cost for trace in episode.traces[1:]] == [1, 0, 0]


def test_one_sample_may_be_greedy_and_several_may_not():
    greedy, drawn = Sampling(100, 0.0), Sampling(100, 1.0)
    with pytest.raises(UserError, match="majority-vote: 8 agents at temperature 0"):
        require_sampling_noise(MajorityVote(), greedy, 1)
    with pytest.raises(UserError, match="parallel: 2 agents at temperature 0"):
        require_sampling_noise(Parallel(), greedy, 2)
    for allowed in (MajorityVote(samples=1), Sequential(), Parallel()):
        require_sampling_noise(allowed, greedy, 1)
    require_sampling_noise(MajorityVote(), drawn, 1)
    require_sampling_noise(SelfRefine(), greedy, 8)


def test_an_ensemble_at_temperature_0_is_refused_as_a_vote_is():
    greedy, drawn = Sampling(100, 0.0), Sampling(100, 1.0)
    pool = ParaManager(pool={"a": "", "b": ""})
    for manager, role in ((ParaManager(), "standard_reasoner"), (pool, "a")):
        with pytest.raises(UserError, match=f"paramanager: 4 agents at temperature 0 .* {role}.temperature=1"):
            require_sampling_noise(manager, greedy, 1)
        require_sampling_noise(manager, greedy, 1, {role: RoleSpec(EngineSpec(), drawn)})
        with pytest.raises(UserError, match="4 agents"):
            require_sampling_noise(manager, drawn, 1, {role: RoleSpec(EngineSpec(), greedy)})
    for allowed in (ParaManager(tools=("standard_reasoner",)), ToolUse()):
        require_sampling_noise(allowed, greedy, 1)
    require_sampling_noise(pool, greedy, 1, {"a": RoleSpec(EngineSpec(), drawn), "b": RoleSpec(EngineSpec(), greedy)})


@pytest.mark.parametrize("samples", [(1, 8), (8, 1)])
def test_the_largest_vote_below_counts_in_any_order(samples: tuple[int, ...]):
    votes = [MajorityVote(samples=count) for count in samples]
    assert identical_below(votes, 4) == {"thinker": 8}
    manager = ParaManager(tools=("standard_reasoner",), organizations={f"vote-{i}": v for i, v in enumerate(votes)})
    with pytest.raises(UserError, match="paramanager: 8 agents at temperature 0"):
        require_sampling_noise(manager, Sampling(100, 0.0), 1)


@pytest.mark.parametrize(("samples", "most"), [(1, 4), (8, 8)])
def test_an_ensemble_and_the_votes_below_of_one_model_count_by_the_largest(samples: int, most: int):
    below = MajorityVote(samples=samples)
    manager = ParaManager(pool={"thinker": ""}, tools=("ensemble_solver",), organizations={"vote": below})
    assert manager.identical_agents(4) == {"thinker": most}


def test_organizations_say_how_many_agents_they_call_at_once():
    said = [
        pool_warning(one, 1) for one in (ParaManager(calls=3), ParaManager(tools=("python",)), ToolUse(), Parallel())
    ]
    assert said[0] is not None and "call 3 agents" in said[0] and "--capacity 4" in said[0]
    assert said[1:] == [None] * 3 and pool_warning(ParaManager(calls=3), 4) is None


@pytest.mark.parametrize("samples", [0, -1])
def test_a_vote_without_voters_is_refused(samples: int):
    with pytest.raises(ValueError, match=f"samples is {samples}: it must be at least 1"):
        MajorityVote(samples=samples)
    with pytest.raises(UserError, match=f"samples is {samples}"):
        OrganizationSpec("majority-vote", {"samples": samples}).named("mine")
