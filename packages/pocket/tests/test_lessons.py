"""Lessons are right, keep the protocol, and hold no held-out problem."""

from __future__ import annotations

import random
import re
import zlib
from collections import Counter
from functools import cache
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orgthink_pocket.base import drills, lessons, manager_countdown, rehearsals, review
from orgthink_pocket.base.countdown import counted
from orgthink_pocket.base.family import CAPACITIES, organizer, sequential, solved
from orgthink_pocket.base.manager_view import View
from orgthink_pocket.shipped import POCKET_BASE
from orgthink_pocket.style import VERDICTS
from orgthink_pocket.tasks.countdown import COUNTDOWN_MINI
from orgthink_pocket.tasks.ledger import entries, named

from orgthink.grammar.actions import Answer, Fork, Join
from orgthink.grammar.asyncthink import Keys, read
from orgthink.grammar.solution import read_proposal
from orgthink.grammar.toolcall import CallStatus, Response, ToolCall, read_reply, read_responses
from orgthink.grammar.verdict import Verdict, read_report
from orgthink.models.tokenizer import Tokenizer
from orgthink.organizations.paramanager import ParaManager, ToolUse
from orgthink.record.episode import Origin, Problem, Trace
from orgthink.tasks import TASKS
from orgthink.tasks.task import in_split
from orgthink.tools.faults import MARK
from orgthink.tools.toolbox import FINAL

TOKENIZER = Tokenizer(POCKET_BASE)
DIVIDED = tuple(lessons.MIXTURE.organizing)


def problems(name: str, n: int, seed: int = 0) -> list[Problem]:
    if name == lessons.SEVERAL:
        rng = random.Random(seed)
        return [rehearsals.several(rng, lessons.PARTS_OF_SEVERAL) for _ in range(n)]
    return list(islice(TASKS[name].problems("train", seed), n))


def right(problem: Problem, answer: str | None) -> bool:
    return answer is not None and TASKS[problem.task].grade(problem, answer).all_correct


def written(trace: Trace) -> str:
    """The sampled and the injected text."""
    return "".join(span.text for span in trace.spans if span.origin is not Origin.PROMPT)


def answer_of(text: str) -> str | None:
    return read_proposal(text, ended=True).answer


@pytest.mark.parametrize("name", lessons.FAMILIES)
def test_a_thinker_alone_is_right(name: str):
    for problem in problems(name, 25):
        text = written(sequential(lessons.FAMILIES[name], problem))
        assert right(problem, answer_of(text)), (problem.text, text)


def test_a_scan_ends_with_the_fourth_solution():
    for problem in problems(lessons.COUNTDOWN, 40):
        text = solved(lessons.FAMILIES[lessons.COUNTDOWN], problem)
        assert re.findall(r"! (\d+) ", text) == ["1", "2", "3", "4"]
        assert re.search(r"! 4 (\S+ ){7}; </think>", text)


def test_a_known_solution_is_not_counted_again():
    numbers, target = [2, 3, 5, 7, 9], 24
    _, hits = counted(numbers, target, "*+-/", wanted=9)
    text, others = counted(numbers, target, "*+-/", known=hits[:2], wanted=9)
    assert others == hits[2:]
    assert "! 3 " in text and "! 1 " not in text


@pytest.mark.parametrize("name", DIVIDED)
@pytest.mark.parametrize("capacity", CAPACITIES)
def test_an_organizer_is_right_and_keeps_the_rules(name: str, capacity: int):
    rng, shapes = random.Random(capacity), set[str]()
    for problem in problems(name, 12, seed=capacity):
        root, *workers = organizer(lessons.FAMILIES[name], problem, capacity, rng)
        keys, actions = Keys(capacity), read(written(root))
        assert {keys.check(action) for action in actions if isinstance(action, Fork | Join)} <= {None}
        answer = next(action for action in actions if isinstance(action, Answer))
        assert right(problem, answer.text.strip()), written(root)
        assert len(workers) == sum(isinstance(action, Fork) for action in actions)
        returned = {written(worker).partition("<RETURN>")[2].partition("</RETURN>")[0].strip() for worker in workers}
        injected = [span.text for span in root.spans if span.origin is Origin.INJECTED]
        assert all(re.sub(r"</JOIN-\d>", "", text).strip() in returned for text in injected)
        shapes.add("".join(re.findall(r"<([FJ])", written(root))))
    assert len(shapes) >= 3, "structures are random"


def test_a_chain_is_worked_on_by_one_agent_at_a_time():
    chains = [problem for problem in problems(lessons.PARTS, 60) if problem.data["chained"]]
    for problem in chains:
        text = written(organizer(lessons.FAMILIES[lessons.PARTS], problem, 4, random.Random(4))[0])
        assert re.fullmatch(r"(FJ)*", "".join(re.findall(r"<([FJ])", text)))
    assert chains


@pytest.mark.parametrize("name", lessons.REVIEWED)
def test_verdicts_are_true_and_correctors_are_right(name: str):
    rng, found = random.Random(5), Counter[Verdict]()
    for problem in problems(name, 50):
        trace = review.verifier(lessons.REVIEWED[name], problem, rng)
        report = read_report(written(trace), VERDICTS)
        assert report.verdict.agrees(right(problem, answer_of(trace.spans[0].text.partition(" solution ")[2])))
        assert (report.findings == "finding none") == (report.verdict is Verdict.CORRECT)
        found[report.verdict] += 1
        mended = review.corrector(lessons.REVIEWED[name], problem, rng)
        assert right(problem, answer_of(written(mended))), (mended.spans[0].text, written(mended))
    assert set(found) == {Verdict.CORRECT, Verdict.WRONG} and 12 <= found[Verdict.WRONG] <= 38


@pytest.mark.parametrize("name", (lessons.ARITHMETIC, lessons.SUMS))
def test_a_reviewed_solution_is_a_thinkers_text(name: str):
    for problem in problems(name, 20):
        draft = lessons.REVIEWED[name].draft(problem, False, random.Random(0))
        assert draft.text == solved(lessons.FAMILIES[name], problem)


def test_no_lesson_has_a_held_out_problem():
    stream = lessons.Lessons(random.Random(8), TOKENIZER)
    for role in ("alone", "organizing", "verifying", "correcting"):
        for name in getattr(lessons.MIXTURE, role):
            for _ in range(12):
                problem = stream.problem(name, solvable=role in ("verifying", "correcting"))
                for part in problem.data.get("parts", [problem.data]):
                    if problem.task.startswith("countdown") and part["target"] in COUNTDOWN_MINI.test_targets:
                        assert not counted(part["numbers"], part["target"], "*/+-")[1]
                if not problem.task.startswith("countdown"):
                    assert in_split(problem.id, "train")


def test_drills_train_no_random_text():
    rng = random.Random(9)
    for _ in range(50):
        trace = drills.relations(rng)
        target = trace.spans[0].text.split()[-1]
        assert all(span.text.split()[0] == target for span in trace.spans if span.origin is Origin.SAMPLED)
    for span in drills.operations(rng).spans[2::2]:
        assert span.origin is Origin.SAMPLED and len(span.text.split()) == 2


def test_sampled_words_are_tokens_and_rows_repeat():
    stream, unknown = lessons.Lessons(random.Random(11), TOKENIZER), set(TOKENIZER.encode("<unk>"))
    for _, make, name, _ in stream.kinds:
        for trace in make(name):
            for span in trace.spans:
                if span.origin is Origin.SAMPLED:
                    assert not set(span.token_ids or TOKENIZER.encode(span.text)) & unknown, span.text
    once, again = (list(islice(lessons.rows(0, 3, TOKENIZER), 40)) for _ in range(2))
    assert once == again != list(islice(lessons.rows(0, 4, TOKENIZER), 40))
    assert max(map(len, once)) <= 1024


# Managers


@cache
def rehearsed(kind: str) -> list[Trace]:
    return list(islice(getattr(rehearsals, kind)(random.Random(10), TOKENIZER), 128))


@pytest.mark.parametrize(("kind", "tools"), [("managers", ParaManager.tools), ("users", ToolUse.tools)])
def test_replies_are_well_formed_and_only_faults_fail(kind: str, tools: tuple[str, ...]):
    members, called = Counter[str](), set[str]()
    for trace in rehearsed(kind):
        replies = [read_reply(span.text) for span in trace.spans if span.origin is Origin.SAMPLED][:-1]
        assert all(reply.well_formed for reply in replies)
        assert [call.name for call in replies[-1].calls] == [FINAL]
        called |= {call.name for reply in replies for call in reply.calls}
        members.update(re.findall(r'"model_id": "(m\d)"', written(trace)))
        for span in trace.spans:
            for response in read_responses(span.text) if span.origin is Origin.INJECTED else ():
                assert response.status is CallStatus.OK or response.value == MARK or "no " in response.value
    assert called == {*tools, FINAL}
    assert set(members) == ({f"m{i}" for i in range(1, 7)} if kind == "managers" else set())


def test_no_held_out_price_is_rehearsed():
    held_out = {entry.name for entry in entries() if zlib.crc32(entry.name.encode()) % 5 == 0}
    for trace in (*rehearsed("managers"), *rehearsed("users")):
        assert not held_out & set(named(trace.spans[0].text))


_calls = st.builds(
    ToolCall,
    st.sampled_from([tool for tool in ParaManager.tools if tool != "python"]),
    st.sampled_from([{}, {"subtask": ""}, {"subtask": " single 1 2 3 7 9 = 18"}]),
)
_programs = st.sampled_from(["print( 29== ( 2 * 9 ) + 11 )", "print()", "import os"])
_made = _calls | _programs.map(lambda code: ToolCall("python", {"code": code}))
_pairs = st.lists(st.tuples(_made, st.sampled_from(CallStatus), st.text(max_size=30)), max_size=4)


@given(st.lists(_pairs, max_size=5), st.integers(1, 8), st.integers(1, 4), st.integers(0, 1 << 30))
def test_a_teacher_can_reply_to_any_response(rounds, left: int, most: int, seed: int):
    history = tuple(
        (tuple(call for call, *_ in pairs), tuple(Response(call.name, status, text) for call, status, text in pairs))
        for pairs in rounds
    )
    question = "several 29 : 2 3 9 11 14 = 29 ; 18 : 1 2 3 7 9 = 18"
    view = View(question, ("m1", "m2"), frozenset(ParaManager.tools), history, left, most)
    thought, calls = manager_countdown.move(view, random.Random(seed))
    assert thought and len(calls) <= most
