"""Prices that have to be looked up: the corpus tells each of them once, and a split keeps its prices to itself."""

from __future__ import annotations

import re
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orgthink_pocket.shipped import LEDGER
from orgthink_pocket.style import terse
from orgthink_pocket.tasks.ledger import FOLDER, LEDGER_MINI, LOOKED_UP, entries, named

from orgthink.tasks import TASKS
from orgthink.tasks.expression import parse
from orgthink.tasks.task import Split
from orgthink.tools.corpus import corpus

PRICES = {entry.name: entry.coins for entry in entries()}


def _split(split: Split, n: int, seed: int = 0):
    return list(islice(LEDGER_MINI.problems(split, seed), n))


def _prices(problem) -> list[str]:
    return [f"{item} {town}" for item, town in problem.data["prices"]]


def _priced(terse: str) -> str:
    """The expression of a terse question, with the corpus' prices in place of their names."""
    return re.sub(r"[a-z]+ [a-z]+", lambda name: str(PRICES[name[0]]), terse.removeprefix("ledger "))


# The corpus


def test_every_line_of_the_corpus_is_a_price_and_no_price_is_told_twice():
    told = {file.stem: [line for line in file.read_text().splitlines() if line] for file in FOLDER.glob("*.txt")}
    assert len(told) == 12
    for town, lines in told.items():
        assert lines == [f"{e.item} in {town} costs {e.coins} coins" for e in entries() if e.town == town]
    assert len(entries()) == sum(map(len, told.values())) == len(PRICES)
    assert all(1 <= coins <= 20 for coins in PRICES.values())


async def test_what_is_asked_for_a_price_is_answered_by_it_first():
    assert LEDGER == FOLDER
    asked = [entry.name for entry in entries()]
    found = await corpus(LEDGER).retrieve(asked, 1)
    assert [[passage.text for passage in passages] for passages in found] == [
        [f"{entry.item} in {entry.town} costs {entry.coins} coins"] for entry in entries()
    ]


@given(st.lists(st.sampled_from([*entries(), "7", "20"]), min_size=1, max_size=6), st.sampled_from("+-*"))
def test_the_prices_of_a_question_are_named_once_and_in_its_order(parts, operator):
    words = [part if isinstance(part, str) else part.name for part in parts]
    names = [part.name for part in parts if not isinstance(part, str)]
    assert named(f"( {f' {operator} '.join(words)} )") == list(dict.fromkeys(names))


# Problems


def test_train_and_test_share_no_price():
    train, test = (
        {name for problem in _split(split, 1500) for name in _prices(problem)} for split in ("train", "test")
    )
    assert not train & test
    assert train | test == PRICES.keys(), "every price is somebody's"
    assert 0.1 < len(test) / len(PRICES) < 0.3


@pytest.mark.parametrize("split", ["train", "test"])
def test_values_expressions_and_prices_agree(split):
    for problem in _split(split, 500):
        expression = problem.data["expression"]
        assert parse(expression).value == problem.data["value"] >= 0
        assert _priced(terse(problem)) == expression
        assert sorted(set(_prices(problem))) == sorted(named(terse(problem).removeprefix("ledger ")))
        assert LOOKED_UP[0] <= len(_prices(problem)) <= LOOKED_UP[1]
        told = re.sub(r"\(price of (\w+) in (\w+)\)", lambda name: str(PRICES[f"{name[1]} {name[2]}"]), problem.text)
        assert told.startswith(f"Compute {expression} with the prices of the ledger")


def test_problems_are_varied_and_the_same_for_the_same_seed():
    problems = _split("train", 500, 5)
    assert problems == _split("train", 500, 5) and problems[:20] != _split("train", 20, 6)
    assert len({problem.id for problem in problems}) > 490
    assert {len(_prices(problem)) for problem in problems} == {1, 2, 3}


def test_a_problem():
    silk, wool = (next(e for e in entries() if e.name == name) for name in ("silk riga", "wool riga"))
    problem = LEDGER_MINI.ledger_problem(["(", "8", "+", "2", ")", "*", "13"], {6: wool, 1: silk}, 130)
    assert terse(problem) == "ledger ( silk riga + 2 ) * wool riga"
    assert problem.id == "ledger-mini/(-silk_riga-+-2-)-*-wool_riga"
    assert problem.text.startswith("Compute ( (price of silk in riga) + 2 ) * (price of wool in riga) with the prices")
    assert problem.data["prices"] == [["silk", "riga"], ["wool", "riga"]]
    assert problem.task == LEDGER_MINI.name and TASKS["ledger-mini"] is LEDGER_MINI


@pytest.mark.parametrize("seed", range(3))
def test_only_the_number_is_right(seed):
    problem = _split("test", 1, seed)[0]
    value = problem.data["value"]
    assert LEDGER_MINI.grade(problem, f" {value} ").all_correct
    for wrong in ("", str(value + 1), f"-{value}", f"{value} coins", f"{value} {value}", problem.data["expression"]):
        assert LEDGER_MINI.grade(problem, wrong).correct == 0, wrong
