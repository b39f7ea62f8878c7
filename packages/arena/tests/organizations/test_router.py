"""A router asks the member that was best on similar problems."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from orgthink_arena.organizations.router import Router
from terse import TERSE

from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.evaluation.compatibility import require_sampling_noise
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
    with pytest.raises(UserError, match="3 agents"):
        require_sampling_noise(router, Sampling(9, temperature=0), 4)


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


def test_a_member_that_the_bank_does_not_know_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean hare"):
        routed(Router(TERSE, pool={"hares": ""}, bank=bank(tmp_path, known("x", 1, 0))), "x")
