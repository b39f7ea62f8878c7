"""RAO's credit: each agent by its own subtask, relative to agents of its depth in the other attempts."""

from __future__ import annotations

from statistics import fmean

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from orgthink.credit import AgentWork
from orgthink.credit.recursive import RecursiveCredit
from orgthink.credit.shared import SharedCredit
from orgthink.record.episode import Episode, Grade, Origin, Problem, Sampling, Span, Status, Trace
from orgthink.rewards.subtasks import SubtaskReward
from orgthink.training.episodes import credited, grouped
from orgthink.training.rows import policy_rows

REWARD = st.floats(-5, 5).map(lambda value: round(value, 3))


@st.composite
def trees(draw: st.DrawFn) -> dict[str, AgentWork]:
    """The agents of an attempt: a root, and others below any that is there already."""
    works = {"root": AgentWork(None, draw(REWARD))}
    for i in range(draw(st.integers(0, 5))):
        works[f"a{i}"] = AgentWork(draw(st.sampled_from(list(works))), draw(REWARD))
    return works


GROUPS = st.lists(trees(), min_size=2, max_size=4).map(lambda found: {f"e{i}": one for i, one in enumerate(found)})
PLAIN = RecursiveCredit(balance=0.0)


def of(credit: RecursiveCredit, works: dict[str, dict[str, AgentWork]]) -> dict[str, dict[str, float]]:
    return credit.of_agents({"g": works})


def depth(agent: str, works: dict[str, AgentWork]) -> int:
    parent = works[agent].parent
    return 0 if parent is None else 1 + depth(parent, works)


def changed(works: dict[str, AgentWork], agent: str, by: float) -> dict[str, AgentWork]:
    return {**works, agent: works[agent]._replace(reward=works[agent].reward + by)}


def test_by_hand() -> None:
    """A child that is right in an attempt that fails, and one that fails in an attempt that is right."""
    good, bad = {"root": AgentWork(None, 1.0)}, {"root": AgentWork(None, 0.0)}
    works = {"e": {**good, "c": AgentWork("root", 0.0)}, "f": {**bad, "c": AgentWork("root", 1.0)}}
    assert of(PLAIN, works) == {"e": {"root": 1.0, "c": -1.0}, "f": {"root": -1.0, "c": 1.0}}
    both = {"e": {**works["e"], "d": AgentWork("root", 0.0)}, "f": works["f"]}
    assert of(RecursiveCredit(), both)["f"]["c"] == pytest.approx(2 / 3)
    assert of(RecursiveCredit(delegation=0.5, balance=0.0), works)["f"]["root"] == pytest.approx(-0.5)


@given(st.lists(REWARD, min_size=2, max_size=6))
def test_roots_alone_have_the_leave_one_out_baseline(rewards: list[float]) -> None:
    assume(max(rewards) - min(rewards) > 1e-3)
    group = {f"e{i}": reward for i, reward in enumerate(rewards)}
    found = RecursiveCredit()({"g": group})
    n, shared = len(rewards), SharedCredit("none")({"g": group})
    assert found == pytest.approx({name: n / (n - 1) * value for name, value in shared.items()}, abs=1e-9)
    assert sum(found.values()) == pytest.approx(0, abs=1e-6)


@given(GROUPS, st.floats(0, 2))
def test_without_a_bonus_an_agent_is_not_touched_by_others_of_its_attempt(
    works: dict[str, dict[str, AgentWork]], by: float
) -> None:
    before = of(PLAIN, works).get("e0", {})
    for other in works["e0"]:
        after = of(PLAIN, {**works, "e0": changed(works["e0"], other, by + 1)}).get("e0", {})
        for agent in works["e0"]:
            if agent != other and agent in before and agent in after:
                assert after[agent] == pytest.approx(before[agent])
        if other in before and other in after:
            assert after[other] == pytest.approx(before[other] + by + 1)


@given(GROUPS, st.integers(0, 3), st.floats(-5, 5))
def test_a_shift_of_a_depth_changes_nothing(works: dict[str, dict[str, AgentWork]], level: int, by: float) -> None:
    shifted = {
        e: {a: w._replace(reward=w.reward + by * (depth(a, own) == level)) for a, w in own.items()}
        for e, own in works.items()
    }
    before, after = of(PLAIN, works), of(PLAIN, shifted)
    for episode in before.keys() & after.keys():
        for agent in before[episode].keys() & after[episode].keys():
            assert after[episode][agent] == pytest.approx(before[episode][agent], abs=1e-6)


@given(GROUPS)
def test_balance_gives_every_depth_the_weight_of_the_roots(works: dict[str, dict[str, AgentWork]]) -> None:
    plain, balanced = of(PLAIN, works), of(RecursiveCredit(balance=1.0), works)
    counts = [depth(agent, own) for own in works.values() for agent in own]
    for episode, own in plain.items():
        for agent, advantage in own.items():
            weight = counts.count(0) / counts.count(depth(agent, works[episode]))
            assert balanced[episode][agent] == pytest.approx(weight * advantage)


@given(GROUPS, st.floats(0, 2))
def test_a_bonus_is_the_mean_of_the_children(works: dict[str, dict[str, AgentWork]], delegation: float) -> None:
    def earned(agent: str, own: dict[str, AgentWork]) -> float:
        children = [work.reward for work in own.values() if work.parent == agent]
        return own[agent].reward + delegation * (fmean(children) if children else 0)

    by_hand = {e: {a: AgentWork(w.parent, earned(a, own)) for a, w in own.items()} for e, own in works.items()}
    found, expected = of(RecursiveCredit(delegation, balance=0.0), works), of(PLAIN, by_hand)
    assert found.keys() == expected.keys()
    for episode, own in found.items():
        assert own == pytest.approx(expected[episode], abs=1e-9)


def test_a_reward_that_is_no_number_names_its_group() -> None:
    with pytest.raises(ValueError, match=r"group g.*root.*nan"):
        of(PLAIN, {"e": {"root": AgentWork(None, float("nan"))}, "f": {"root": AgentWork(None, 1.0)}})


def trace(agent: str, parent: str | None, returned: str | None, status: Status = Status.OK) -> Trace:
    span = Span(Origin.SAMPLED, "7", 1, (1,), (-0.5,), sampling=Sampling(9), policy_version="0")
    spans = (Span(Origin.PROMPT, "sum", 1, (0,)), span)
    return Trace(agent, "worker" if parent else "organizer", parent, spans, status=status, returned=returned, model="m")


def episode(sample: int, answer: str, *children: Trace) -> Episode:
    problem = Problem("p", "countdown-small-one", "?", data={"numbers": [3, 4, 5, 6, 7], "target": 12})
    grade = Grade(int(answer == "right"), 1)
    return Episode(f"p|o|{sample}", problem, "o", 2, (trace("r", None, answer), *children), sample, answer, grade=grade)


def test_rows_have_the_advantage_of_their_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the record to the rows, with a task that finds `right` right."""

    class Words:
        def grade(self, problem: Problem, answer: str) -> Grade:
            return Grade(int("right" in answer), 1)

    monkeypatch.setattr("orgthink.rewards.subtasks.task_of", lambda problem: Words())
    failed = episode(0, "no", trace("r/1", "r", "right"), trace("r/2", "r", "right", Status.TRUNCATED))
    solved = episode(1, "right", trace("r/1", "r", "none"))
    episodes = [failed, solved]
    rewards = {one.id: SubtaskReward()(one) for one in episodes}
    assert rewards[failed.id].own == {"r": 0.0, "r/1": 1.0, "r/2": 0.0}
    groups = grouped(episodes, rewards)
    own = credited(PLAIN, groups, episodes, rewards)
    rows = {(one.id, row.agent): row.advantage for one in episodes for row in policy_rows(one, own[one.id])}
    assert rows == {
        (failed.id, "r"): -1.0,
        (failed.id, "r/1"): 1.0,
        (failed.id, "r/2"): 0.0,
        (solved.id, "r"): 1.0,
        (solved.id, "r/1"): -0.5,
    }
    shared = credited(SharedCredit("none"), groups, episodes, rewards)
    assert shared == {failed.id: -0.5, solved.id: 0.5}
    assert [row.advantage for row in policy_rows(failed, shared[failed.id])] == [-0.5] * 3
