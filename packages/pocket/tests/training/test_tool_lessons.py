"""Lessons of coders, searchers and reviewers: programs print the value, queries find the prices, verdicts are true."""

from __future__ import annotations

import asyncio
import random
import re
import zlib
from collections import Counter
from collections.abc import Sequence
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orgthink_pocket import model as pocket
from orgthink_pocket import tool_model as pocket_tools
from orgthink_pocket.lessons import roles as role_lessons
from orgthink_pocket.lessons.players import OnPaper
from orgthink_pocket.lessons.rehearsals import ALONE
from orgthink_pocket.lessons.tools import SHARES, lesson, lessons
from orgthink_pocket.shipped import LEDGER
from orgthink_pocket.style import terse
from orgthink_pocket.tasks.countdown import COUNTDOWN_MINI
from orgthink_pocket.tasks.ledger import PRICE, entries, named
from orgthink_pocket.teachers import helpers

from orgthink.grammar.solution import read_proposal
from orgthink.models.tokenizer import Tokenizer
from orgthink.record.episode import Problem, Status, Trace
from orgthink.tasks import TASKS
from orgthink.tasks.expression import parse
from orgthink.tools.corpus import corpus
from orgthink.training.rows import Row

N = 600
IDS = {word: i for i, word in enumerate(pocket_tools.vocabulary())}
FIRST = {"coder": "coder", "finder": "searcher", "reviewer": "reviewer", "manager": "user"}
"""Kinds of lessons by their first token; all others are of the roles."""
PRICES = {entry.name: entry.coins for entry in entries()}

_seeds = st.integers(0, 1 << 30)
_tasks = st.sampled_from(list(ALONE))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("calls")
    pocket_tools.write_folder(folder)
    return Tokenizer(folder)


@pytest.fixture(scope="module")
def rows(tokenizer) -> Sequence[Row]:
    return list(islice(lessons(0, 1, tokenizer), N))


def _kind(row: Row) -> str:
    return FIRST.get(pocket_tools.vocabulary()[row.token_ids[0]], "roles")


def _drawn(role: str, task: str, seed: int) -> tuple[Problem, str, str]:
    """A problem, what an agent is asked about it, and what it says."""
    problem = next(TASKS[task].problems("train", seed))
    trace: Trace = lesson(role, problem, random.Random(seed))
    asked, said = trace.spans
    return problem, asked.text, said.text


# The stream


def test_lessons_are_the_same_for_the_same_pool_only(tokenizer, rows):
    def first(seed, pool):
        return list(islice(lessons(seed, pool, tokenizer), 12))

    assert first(0, 1) == rows[:12] and first(0, 1) != first(0, 2) and first(0, 1) != first(1, 1)


def test_every_kind_and_every_role_is_taught(rows):
    assert set(map(_kind, rows)) == SHARES.keys()
    roles = [row.token_ids[0] for row in rows if _kind(row) == "roles"]
    assert {IDS["sequential"], IDS["verifier"], IDS["corrector"], IDS["facts"]} == set(roles)


def test_the_lessons_of_the_roles_are_those_of_the_form_course_in_their_order(tokenizer, rows):
    course = role_lessons.lessons("form", 0, 1)
    for row in rows:
        if _kind(row) == "roles":
            text = [tokenizer.encode(span.text) for span in next(course).spans]
            assert row.token_ids == (*text[0], *text[1], IDS[pocket.EOS])


def test_what_an_agent_says_is_trained_to_its_end_and_nothing_that_it_is_asked(rows):
    for row in rows:
        assert row.token_ids[-1] == IDS[pocket.EOS] and row.trained[-1] and not row.trained[0]
        if _kind(row) != "user":
            start = row.trained.index(True)
            assert all(row.trained[start:]) and row.token_ids.count(IDS[pocket.EOS]) == 1


def test_nothing_is_unknown_and_everything_fits(rows):
    for row in rows:
        assert IDS[pocket.UNK] not in row.token_ids
        assert len(row) <= pocket_tools.CONFIG.max_position_embeddings


def test_no_held_out_price_or_target_is_a_lesson(rows, tokenizer):
    held_out = {name for name in PRICES if zlib.crc32(name.encode()) % 5 == 0}
    for row in rows:
        text = " ".join(tokenizer.decode(row.token_ids).split())
        told = {f"{m[1]} {m[2]}" for m in PRICE.finditer(text)}
        assert not held_out & ({*told, *named(text)} & PRICES.keys()), text
        if _kind(row) != "user" and (target := re.search(r" countdown (?:\d+ )+= (\d+)", text)):
            assert int(target[1]) not in COUNTDOWN_MINI.test_targets


# Coders


@given(_tasks, _seeds)
def test_a_coders_program_prints_the_value_of_what_can_be_computed(task, seed):
    problem, asked, said = _drawn("coder", task, seed)
    match = re.fullmatch(r" <code> (.*) </code>", said)
    assert match is not None
    question = asked.removeprefix("coder ")
    result = asyncio.run(OnPaper().run(match[1]))
    if question.startswith("arithmetic "):
        assert (result.status, result.text) == (Status.OK, str(problem.data["value"]))
        assert str(eval(match[1].removeprefix("print "))) == result.text
    else:
        assert result.status is Status.ERROR and question == terse(problem)


def test_a_coder_is_given_the_prices_or_not():
    problems = TASKS["ledger-mini"].problems("train", 0)
    rng = random.Random(0)
    asked = [lesson("coder", problem, rng).spans[0].text.split()[1] for problem in islice(problems, 100)]
    assert set(asked) == {"arithmetic", "ledger"}


# Searchers


@given(_seeds)
def test_a_searchers_queries_find_the_prices_of_the_question_each_once(seed):
    problem, asked, said = _drawn("searcher", "ledger-mini", seed)
    assert asked == f"finder {terse(problem)}"
    match = re.fullmatch(r" <query> (.*) </query>", said)
    assert match is not None
    queries = match[1].split(helpers.SEPARATOR)
    found = asyncio.run(corpus(LEDGER).retrieve(queries, 1))
    prices = list(dict.fromkeys(f"{item} {town}" for item, town in problem.data["prices"]))
    told = [PRICE.fullmatch(passage.text) for passages in found for passage in passages]
    assert [(f"{m[1]} {m[2]}", int(m[3])) for m in told if m] == [(name, PRICES[name]) for name in prices]


def test_a_question_without_prices_is_its_own_query():
    assert helpers.queried("3 * 17") == " <query> 3 * 17 </query>"


# Reviewers


def _verdicts(said: str) -> dict[str, bool]:
    answer = read_proposal(said, ended=True).answer
    assert answer is not None
    if answer == "none":
        return {}
    return {offer: word == "ok" for offer, _, word in (part.rpartition(" ") for part in answer.split(" ; "))}


def _worth(offer: str, countdown: bool) -> int | None:
    """What an answer to such a question is worth; `None` of what is none."""
    if not countdown:
        return int(offer) if offer.isdigit() else None
    try:
        expression = parse(offer)
    except ValueError:
        return None
    return int(expression.value) if len(expression.numbers) == 3 else None


@given(_tasks, _seeds)
def test_a_reviewer_judges_every_answer_by_what_it_is_worth(task, seed):
    problem, asked, said = _drawn("reviewer", task, seed)
    question, _, answers = asked.removeprefix("reviewer ").partition(" answers ")
    countdown = task.startswith("countdown")
    right = problem.data["target"] if countdown else problem.data["value"]
    worths = {offer: _worth(offer, countdown) for offer in answers.split(" ; ")}
    assert _verdicts(said) == {offer: worth == right for offer, worth in worths.items() if worth is not None}
    assert question == (terse(problem) if countdown else f"arithmetic {problem.data['expression']}")


@given(_tasks, _seeds)
def test_the_work_of_a_reviewer_is_right(task, seed):
    _, _, said = _drawn("reviewer", task, seed)
    work = said.partition(" </think>")[0]
    sums = [line.split(" = ") for line in work.split(" ; ") if " = " in line]
    assert all(parse(left).value == int(value) for left, value in sums)
    if task.startswith("countdown"):
        assert len(sums) == 2 * len(_verdicts(said))


def test_right_and_wrong_answers_are_shown_and_some_that_are_none():
    judged, shown = Counter(), 0
    rng = random.Random(0)
    for problem in islice(TASKS["countdown-mini-single"].problems("train", 0), 100):
        asked, said = (span.text for span in lesson("reviewer", problem, rng).spans)
        shown += len(asked.partition(" answers ")[2].split(" ; "))
        judged.update(_verdicts(said).values())
    assert set(judged) == {True, False} and judged.total() < shown


def test_a_reviewer_who_may_slip_is_mostly_right_and_shows_no_work():
    rng, right = random.Random(0), 0
    for _ in range(200):
        said = helpers.reviewed("arithmetic", "3 * 17", ["51", "41", "none"], slip=rng)
        assert said.startswith(" <ANSWER> ")
        right += sum(ok is (offer == "51") for offer, ok in _verdicts(said).items())
    assert 200 < right < 400


def test_what_a_reviewer_says():
    assert helpers.reviewed("arithmetic", "3 * 17", ["51", "41", "none"]) == (
        " 3 * 17 = 51 </think> <ANSWER> 51 ok ; 41 bad </ANSWER>"
    )
    assert helpers.reviewed("countdown", "2 3 9 11 14 = 29", ["( 2 * 9 ) + 11", "none", "14 + 14"]) == (
        " 2 * 9 = 18 ; 18 + 11 = 29 </think> <ANSWER> ( 2 * 9 ) + 11 ok </ANSWER>"
    )
    assert helpers.reviewed("countdown", "2 3 9 11 14 = 29", ["none"]) == "  </think> <ANSWER> none </ANSWER>"
    assert helpers.reviewed("ledger", "3 * silk riga", ["51"]) == "  </think> <ANSWER> none </ANSWER>"
