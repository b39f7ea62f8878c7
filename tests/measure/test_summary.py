"""The form and the numbers of `summary.json`."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from manager_episodes import WRONG, Call
from manager_episodes import episode_of as managed_episode
from random_episodes import Fork, Join, Think, episode_of
from small import TASK_OF_SUMS

from orgthink.grammar.toolcall import CallStatus
from orgthink.measure.latency import critical_path
from orgthink.measure.summary import compare, has_format_error, summarise, was_truncated
from orgthink.record.episode import Episode, FormatError, FormatFault, Grade, Problem, StopReason
from orgthink.tasks import task_named

BASE = {
    "asyncthink": episode_of((Think(2), Fork("1", (Think(9),)), Think(5), Join("1"), Think(1))),
    "sequential": episode_of((Think(20),)),
}


SUMS = task_named(TASK_OF_SUMS)
SHARES = ("tool_shares", "model_shares", "call_statuses")


def attempt(organization: str, problem: int, correct: int | None = 4, faults: tuple[FormatError, ...] = ()) -> Episode:
    return replace(
        BASE[organization],
        id=f"{problem}|{organization}|0",
        organization=organization,
        problem=Problem(str(problem), "countdown", "", required=4),
        grade=None if correct is None else Grade(correct, 4),
        seconds=float(problem),
        format_faults=tuple(FormatFault(kind, "organizer", 0) for kind in faults),
    )


EPISODES = [
    attempt("asyncthink", 1),
    attempt("asyncthink", 2, 2),
    attempt("asyncthink", 3, 0, (FormatError.POOL_OVERFLOW, FormatError.POOL_OVERFLOW, FormatError.NO_ANSWER)),
    attempt("asyncthink", 4, None),
    attempt("sequential", 1, 1),
    attempt("sequential", 2, 3),
]
CUT_OFF = replace(
    attempt("sequential", 1, 0, (FormatError.TRUNCATED,)),
    traces=(replace(BASE["sequential"].root, stop=StopReason.LENGTH),),
)


def test_means() -> None:
    summary = summarise(EPISODES)
    assert list(summary) == ["asyncthink", "sequential"]
    ours = summary["asyncthink"]
    assert (ours["n"], ours["problems"], ours["ungraded"]) == (4, 4, 1)
    assert ours["all_correct"]["mean"] == pytest.approx(1 / 3)
    assert ours["all_correct"]["n"] == 3
    assert [share["mean"] for share in ours["at_least"]] == pytest.approx([2 / 3, 2 / 3, 1 / 3, 1 / 3])
    assert (ours["critical_path_steps"]["mean"], ours["sampled_tokens"]["mean"], ours["seconds"]["mean"]) == (
        12,
        17,
        2.5,
    )
    assert ours["concurrency_pool"]["mean"] == pytest.approx(17 / 12)
    assert ours["concurrency_workers"]["mean"] == pytest.approx(9 / 12)
    assert ours["format_error_rate"]["mean"] == 0.25
    rates = {kind: share["mean"] for kind, share in ours["format_errors"].items() if share["mean"]}
    assert rates == {"POOL_OVERFLOW": 0.25, "NO_ANSWER": 0.25}
    assert summary["sequential"]["critical_path_steps"] == {"mean": 20, "low": 20, "high": 20, "n": 2}


def test_samples_of_a_problem_are_averaged_and_one_of_them_may_pass() -> None:
    """Of three samples each, two, one and none are right; the fourth problem has but two that are graded."""
    grades = {1: (4, 4, 0), 2: (0, 4, 3), 3: (0, 0, 0), 4: (4, None, 4)}
    sampled = [attempt("sequential", problem, correct) for problem, of_one in grades.items() for correct in of_one]
    ours = json.loads(json.dumps(summarise(sampled), allow_nan=False))["sequential"]
    assert ours["k"] == 3
    assert ours["avg_at_k"]["mean"] == pytest.approx((2 / 3 + 1 / 3 + 0 + 1) / 4)
    assert ours["avg_at_k"] == ours["all_correct"], "one number has one interval"
    assert (ours["pass_at_k"]["mean"], ours["pass_at_k"]["n"]) == (pytest.approx(2 / 3), 3)
    assert 0 < ours["pass_at_k"]["low"] < 2 / 3 < ours["pass_at_k"]["high"] < 1
    assert ours["maj_at_k"] == {"mean": None, "low": None, "high": None, "n": 0}, "they ask for several solutions"
    assert not {"k", "avg_at_k", "pass_at_k", "maj_at_k"} & summarise(EPISODES)["asyncthink"].keys()


def test_every_measure_has_a_mean_an_interval_and_n() -> None:
    ours = json.loads(json.dumps(summarise(EPISODES), allow_nan=False))["asyncthink"]
    names = ("all_correct", "critical_path_steps", "seconds", "sampled_tokens", "concurrency_pool", "format_error_rate")
    for measure in (
        *(ours[name] for name in (*names, "errors", "truncated_rate")),
        *ours["at_least"],
        *ours["format_errors"].values(),
    ):
        assert set(measure) == {"mean", "low", "high", "n"}
        assert measure["low"] <= measure["mean"] <= measure["high"]
    assert len(ours["at_least"]) == 4


def test_to_be_cut_off_is_a_rate_of_its_own_and_no_format_error() -> None:
    summary = summarise([CUT_OFF, attempt("sequential", 2, 0, (FormatError.NO_ANSWER,)), *EPISODES[:2]])
    assert (summary["sequential"]["format_error_rate"]["mean"], summary["sequential"]["truncated_rate"]["mean"]) == (
        0.5,
        0.5,
    )
    assert summary["sequential"]["format_errors"]["TRUNCATED"]["mean"] == 0.5
    assert summary["asyncthink"]["truncated_rate"]["mean"] == 0


@pytest.mark.parametrize("kind", FormatError)
def test_every_other_kind_is_a_format_error(kind: FormatError) -> None:
    made = attempt("asyncthink", 1, 0, (kind,))
    assert has_format_error(made) == (kind is not FormatError.TRUNCATED)
    assert has_format_error(attempt("asyncthink", 1, 0, (FormatError.TRUNCATED, kind))) == has_format_error(made)


@pytest.mark.parametrize("stop", [StopReason.LENGTH, StopReason.BUDGET])
def test_a_worker_that_is_cut_off_counts(stop: StopReason) -> None:
    whole = attempt("asyncthink", 1)
    cut = replace(whole, traces=(whole.root, replace(whole.traces[1], stop=stop)))
    assert (was_truncated(whole), was_truncated(cut)) == (False, True)


def test_usage_is_a_mean_by_role() -> None:
    organizer, worker = BASE["asyncthink"].traces
    forking = (replace(organizer, role="organizer"), replace(worker, role="worker"))
    alone = (replace(BASE["sequential"].root, role="organizer"),)
    attempts = zip(EPISODES[:3], (forking, forking, alone), strict=True)
    ours = summarise(replace(episode, traces=traces) for episode, traces in attempts)["asyncthink"]["usage"]
    assert list(ours) == ["organizer", "worker"]
    worker = ours["worker"]
    assert worker["agents"] == pytest.approx(2 / 3)
    assert worker["sampled_tokens"] == pytest.approx(2 * 9 / 3)
    assert worker["critical_steps"] == pytest.approx(2 * 9 / 3)
    assert worker["share"] == pytest.approx(18 / 44)
    assert worker["cost"] is None


def test_the_solvers_own_answer_is_a_share_beside_the_systems() -> None:
    """One of three solvers was right, whatever became of its answer; nobody knows of the ungraded one."""

    def solved(problem: int, said: str, answer: str, correct: int | None) -> Episode:
        solver = replace(BASE["sequential"].root, agent="controller/solution", role="solver", returned=said)
        grade = None if correct is None else Grade(correct, 1)
        task = replace(SUMS.problem("2 + 3", 5), id=str(problem))
        return replace(attempt("sequential", problem), problem=task, answer=answer, grade=grade, traces=(solver,))

    right, wrong = "<ANSWER> 5 </ANSWER>", "<ANSWER> 6 </ANSWER>"
    system = [solved(1, right, "6", 0), solved(2, wrong, "5", 1), solved(3, "", "5", 1), solved(4, right, "5", None)]
    ours = summarise(system)["sequential"]
    assert (ours["solver_correct"]["mean"], ours["solver_correct"]["n"]) == (pytest.approx(1 / 3), 3)
    assert ours["all_correct"]["mean"] == pytest.approx(2 / 3)
    assert 0 < ours["solver_correct"]["low"] < 1 / 3 < ours["solver_correct"]["high"] < 1
    assert summarise(system[3:])["sequential"]["solver_correct"]["mean"] is None
    assert not any("solver_correct" in numbers for numbers in summarise(EPISODES).values())


MANAGED = [
    managed_episode([[Call(), Call("reasoner", cost=1.0, model="large")], [Call(status=CallStatus.EXEC_ERR)]]),
    managed_episode([[Call(), Call(), Call("reasoner", CallStatus.PARSE_ERR)]], "direct", WRONG),
    managed_episode([[Call("reasoner", cost=1.0, model="small")]], "cut off", None),
]
"""Rounds, calls, cost: 3, 4, 1; 2, 3, 0; 1, 1, 1."""
MANAGED = [replace(one, problem=replace(one.problem, id=str(i))) for i, one in enumerate(MANAGED)]


def test_what_managers_did_stands_beside_the_rest() -> None:
    ours = json.loads(json.dumps(summarise([*MANAGED, *EPISODES]), allow_nan=False))["paramanager"]
    means = {name: ours[name]["mean"] for name in ("rounds", "calls_per_round", "calls", "cost_units")}
    assert means == pytest.approx(
        {"rounds": 2, "calls_per_round": (4 / 3 + 1 + 1) / 3, "calls": 8 / 3, "cost_units": 2 / 3}
    )
    lengths = [sum(span.tokens for span in episode.root.spans) for episode in MANAGED]
    assert ours["manager_tokens"]["mean"] == pytest.approx(sum(lengths) / 3)
    assert ours["rounds"]["low"] < 2 < ours["rounds"]["high"]


def test_shares_of_calls_are_of_each_problem_and_add_up_to_one() -> None:
    """Two thirds and all of the calls of two problems are python's, and none of the third's."""
    ours = summarise(MANAGED)["paramanager"]
    means = {name: {of: share["mean"] for of, share in ours[name].items()} for name in SHARES}
    assert means["tool_shares"] == pytest.approx({"python": 5 / 9, "reasoner": 4 / 9})
    assert means["model_shares"] == pytest.approx({"large": 1 / 2, "small": 1 / 2})
    assert means["call_statuses"] == pytest.approx({"OK": 7 / 9, "PARSE_ERR": 1 / 9, "EXEC_ERR": 1 / 9, "TIMEOUT": 0})
    assert list(means["tool_shares"]) == ["python", "reasoner"]
    assert list(means["call_statuses"]) == list(CallStatus)
    assert {of: share["n"] for of, share in ours["tool_shares"].items()} == {"python": 6, "reasoner": 6}
    assert all(share["low"] <= share["mean"] <= share["high"] for name in SHARES for share in ours[name].values())


def test_a_manager_without_calls_has_no_shares() -> None:
    ours = summarise([managed_episode([], "direct")])["paramanager"]
    assert (ours["tool_shares"], ours["model_shares"]) == ({}, {})
    assert [share["mean"] for share in ours["call_statuses"].values()] == [None] * 4
    assert (ours["rounds"]["mean"], ours["calls_per_round"]["mean"], ours["cost_units"]["mean"]) == (1, 0, 0)


def test_others_have_none_of_it_but_a_cost_if_it_is_known() -> None:
    names = {"rounds", "calls_per_round", "calls", "manager_tokens", "cost_units", *SHARES}
    assert not any(names & set(numbers) for numbers in summarise(EPISODES).values())
    spent = replace(EPISODES[4], traces=(replace(EPISODES[4].root, cost=8.0),))
    ours = summarise([spent, *EPISODES[5:]])["sequential"]
    assert names & set(ours) == {"cost_units"}
    assert ours["cost_units"] == {"mean": 8.0, "low": None, "high": None, "n": 1}


def test_errors_are_shown() -> None:
    child = replace(EPISODES[1].traces[1], stop=StopReason.ERROR, error="boom")
    failed = [replace(EPISODES[0], stop=StopReason.ERROR), replace(EPISODES[1], traces=(EPISODES[1].root, child))]
    assert summarise([*failed, *EPISODES[2:4]])["asyncthink"]["errors"]["mean"] == 0.5


def test_one_episode_has_no_interval_for_quantities() -> None:
    seconds = summarise(EPISODES[:1])["asyncthink"]["seconds"]
    assert seconds == {"mean": 1.0, "low": None, "high": None, "n": 1}
    assert summarise([]) == {}


def test_compare_pairs_problems() -> None:
    ours = [episode for episode in EPISODES if episode.organization == "asyncthink"]
    theirs = [episode for episode in EPISODES if episode.organization == "sequential"]
    steps = compare(ours, theirs, critical_path)
    assert (steps.mean, steps.low, steps.high, steps.n) == (-8, -8, -8, 2)
    correct = compare(ours, theirs)
    assert (correct.mean, correct.n) == (0.5, 2)
