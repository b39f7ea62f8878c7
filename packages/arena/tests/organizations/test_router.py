"""A router asks the member that was best on similar problems."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orgthink_arena.organizations.router import Known, Router, best_member
from terse import TERSE

from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.evaluate.compatibility import require_sampling_noise
from orgthink.record.episode import Episode, Problem, Sampling
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.clock import run_virtual
from orgthink.util.errors import UserError

POOL = {"hare": "quick", "tortoise": "careful"}
ANSWER = Turn("so <ANSWER> 7 </ANSWER>")


def known(text: str, hare: float, tortoise: float, task: str = "sums", tokens: float = 5.0) -> dict[str, object]:
    scores, used = {"hare": hare, "tortoise": tortoise}, {"hare": tokens, "tortoise": 5.0}
    return {"text": text, "task": task, "scores": scores, "tokens": used}


def bank(folder: Path, *problems: dict[str, object]) -> str:
    file = folder / "bank.json"
    file.write_text(json.dumps({"members": list(POOL), "problems": problems}))
    return str(file)


def routed(router: Router, text: str, task: str = "sums", answers: int = 1) -> Episode:
    engines = {name: ScriptedEngine([ANSWER] * answers, model=name) for name in POOL}
    backings = {name: Backing(engine, Sampling(100)) for name, engine in engines.items()}
    problem = Problem("p", task, text)
    return run_virtual(attempt(router, problem, backings["hare"], roles=backings))


def test_the_most_similar_problems_decide(tmp_path: Path) -> None:
    file = bank(tmp_path, known("apples and pears", 1, 0), known("trains and tracks", 0, 1), known("pears", 1, 0))
    router = Router(TERSE, pool=POOL, bank=file, neighbours=2)
    assert [trace.model for trace in routed(router, "two pears").traces] == [None, "hare"]
    assert routed(router, "a train on tracks").traces[1].role == "tortoise"
    assert routed(router, "a train on tracks").answer == "7"


def test_without_a_common_word_the_whole_bank_decides_and_without_a_bank_the_first_member(tmp_path: Path) -> None:
    file = bank(tmp_path, known("apples", 0, 1), known("trains", 0, 1), known("pears", 1, 0))
    assert routed(Router(TERSE, pool=POOL, bank=file, neighbours=1), "nothing of these").traces[1].role == "tortoise"
    assert routed(Router(TERSE, pool=POOL), "nothing of these").traces[1].role == "hare"


def test_an_oracle_goes_by_the_task(tmp_path: Path) -> None:
    file = bank(tmp_path, known("pears", 1, 0, "fruit"), known("pears pears", 1, 0, "fruit"), known("x", 0, 1, "rail"))
    oracle = Router(TERSE, pool=POOL, bank=file, oracle=True)
    assert routed(oracle, "pears", "rail").traces[1].role == "tortoise"
    assert routed(oracle, "x", "fruit").traces[1].role == "hare"


def test_of_equals_the_cheaper_one(tmp_path: Path) -> None:
    file = bank(tmp_path, known("pears", 1, 1, tokens=9.0))
    assert routed(Router(TERSE, pool=POOL, bank=file), "pears").traces[1].role == "tortoise"


def test_several_samples_vote_and_are_not_greedy(tmp_path: Path) -> None:
    router = Router(TERSE, pool=POOL, bank=bank(tmp_path, known("pears", 1, 0)), samples=3)
    episode = routed(router, "pears", answers=3)
    assert [trace.role for trace in episode.traces[1:]] == ["hare"] * 3 and episode.answer == "7"
    with pytest.raises(UserError, match="3 thinkers"):
        require_sampling_noise(router, Sampling(9, temperature=0), 4)


SHARES = st.floats(0, 1)


@given(st.lists(st.tuples(SHARES, SHARES), min_size=1, max_size=6))
def test_nobody_has_a_better_mean_than_the_best(scores: list[tuple[float, float]]) -> None:
    problems = [Known("", "", {"a": a, "b": b}, {"a": 1.0, "b": 2.0}) for a, b in scores]
    best = best_member(("b", "a"), problems)
    other = "b" if best == "a" else "a"
    means = {name: sum(one.scores[name] for one in problems) for name in ("a", "b")}
    assert means[best] >= means[other] - 1e-9
    assert best == "a" or means["b"] > means["a"] - 1e-9


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"problems": []}', "without a problem"),
        ('{"problems": [{"text": "x"}]}', "not a router's bank"),
        ("[]", "no JSON object"),
        (None, "not a router's bank"),
    ],
)
def test_what_is_no_bank_is_refused_in_one_line(tmp_path: Path, text: str | None, message: str) -> None:
    file = tmp_path / "bank.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(UserError, match=message):
        routed(Router(TERSE, pool=POOL, bank=str(file)), "sum 3 + 4")


@pytest.mark.parametrize(
    ("spoiled", "message"),
    [
        ({"scores": {"hare": 1.0}}, "problem 2 has other members than the first"),
        ({"tokens": {"hare": 1.0}}, "problem 2 has other members than the first"),
        ({"text": "half \ud83d of it"}, "not a router's bank"),
        ({"scores": {"hare": float("nan"), "tortoise": 0.0}}, "problem 2 has a number that is not finite"),
        ({"tokens": {"hare": float("inf"), "tortoise": 0.0}}, "problem 2 has a number that is not finite"),
    ],
)
def test_every_problem_of_a_bank_is_looked_at(tmp_path: Path, spoiled: dict[str, object], message: str) -> None:
    file = bank(tmp_path, known("x", 1, 0), {**known("y", 1, 0), **spoiled})
    with pytest.raises(UserError, match=message) as error:
        routed(Router(TERSE, pool=POOL, bank=file), "x")
    assert "\n" not in str(error.value)


def test_a_member_that_the_bank_does_not_know_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean hare"):
        routed(Router(TERSE, pool={"hares": ""}, bank=bank(tmp_path, known("x", 1, 0))), "x")
