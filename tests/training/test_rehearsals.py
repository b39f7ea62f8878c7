"""Rehearsals: what a manager's teacher does is well formed, grounded in what it was told, and never gives up early."""

from __future__ import annotations

import asyncio
import random
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orgthink.engines.engine import Context
from orgthink.engines.tokenizer import Tokenizer
from orgthink.episode import Message, Origin, Status, Trace
from orgthink.grammar.solution import read_proposal
from orgthink.grammar.toolcall import CallStatus, Reply, Response, ToolCall, read_reply, read_responses
from orgthink.organizations.paramanager import ParaManager
from orgthink.organizations.tool_use import ToolUse
from orgthink.tasks import COUNTDOWN_MINI, COUNTDOWN_MINI_SINGLE
from orgthink.tasks.expression import ExpressionError, parse
from orgthink.tasks.ledger import PRICE, entries, named
from orgthink.tools.faults import INJECTED
from orgthink.tools.toolbox import FINAL
from orgthink.training import pocket_tools
from orgthink.training.players import BETTER, FAILED, SKILL, OnPaper, helping
from orgthink.training.pocket_tools import vocabulary
from orgthink.training.rehearsals import FAULTS, GOOD_AT, SHARES, lessons
from orgthink.training.rows import row_of
from orgthink.training.teachers import helpers, manager
from orgthink.training.teachers.manager import CALCULATORS, Seen, reply

N = 192
"""Episodes that are looked at: three batches, which differ in pool and calls a round."""
SILENT = {
    "code_reasoner": "no <code> in the reply",
    "knowledge_searcher": "no <query> in the reply",
    "critical_reviewer": "no answer in the reply",
}
"""What is told of agents who are not good at code; managers only have to learn that it is a failure."""
PRICES = {entry.name: str(entry.coins) for entry in entries()}


@dataclass(frozen=True)
class Rehearsed:
    """A manager's trace as its reader sees it."""

    trace: Trace

    @cached_property
    def head(self) -> list[str]:
        """`manager`, the calls of a round at most, `left`, the rounds, …"""
        return self.trace.spans[0].text.partition(" ; ")[0].split()

    @cached_property
    def question(self) -> str:
        return self.trace.spans[0].text.partition(" ; ")[2]

    @cached_property
    def kind(self) -> str:
        return self.question.split()[0]

    @cached_property
    def replies(self) -> list[Reply]:
        """Of the rounds, the last with `final_answer`, if rounds were left for it."""
        return [read_reply(span.text) for span in self.trace.spans if span.origin is Origin.SAMPLED][:-1]

    @cached_property
    def told(self) -> list[tuple[Response, ...]]:
        """What came back, round by round."""
        shown = [span.text for span in self.trace.spans if span.origin is Origin.INJECTED]
        return [read_responses(text) for text in shown if "<tool_response>" in text]

    @cached_property
    def left(self) -> list[int]:
        """Rounds that are left, before the first and after each."""
        shown = [span.text for span in self.trace.spans if span.origin is Origin.INJECTED]
        return [int(self.head[3]), *(int(text.split()[-1]) for text in shown if "<tool_response>" in text)]

    @cached_property
    def answer(self) -> str | None:
        return read_proposal(self.trace.spans[-1].text, ended=True).answer

    @cached_property
    def rounds(self) -> list[list[tuple[ToolCall, Response]]]:
        """Calls with what came of them."""
        calls = [[call for call in reply.calls if isinstance(call, ToolCall)] for reply in self.replies]
        return [list(zip(made, told, strict=True)) for made, told in zip(calls, self.told, strict=False)]

    @property
    def target(self) -> int:
        """What a right answer is worth."""
        if self.kind == "countdown":
            return int(self.question.split()[-1])
        return int(parse(_priced(self.question.partition(" ")[2], PRICES)).value)


def _priced(expression: str, prices: dict[str, str]) -> str:
    return re.sub(r"[a-z]+ [a-z]+", lambda name: prices.get(name[0], name[0]), expression)


def _asked(call: ToolCall) -> list[str]:
    """The expressions that a call names."""
    if call.name == "python":
        return [part.strip() for part in call.arguments["code"].removeprefix("print(")[:-1].split(",")]
    subtask = call.arguments.get("subtask")
    return [subtask.strip().removeprefix("arithmetic ")] if subtask else []


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("calls")
    pocket_tools.write_folder(folder)
    return Tokenizer(folder)


@pytest.fixture(scope="module")
def managers(tokenizer) -> Sequence[Rehearsed]:
    return [Rehearsed(trace) for trace in islice(lessons(0, 1, tokenizer), N)]


@pytest.fixture(scope="module")
def users(tokenizer) -> Sequence[Rehearsed]:
    return [Rehearsed(trace) for trace in islice(lessons(0, 1, tokenizer, alone=True), 96)]


@pytest.fixture(scope="module")
def everybody(managers, users) -> Sequence[Rehearsed]:
    return [*managers, *users]


# The stream


def test_lessons_are_the_same_for_the_same_pool_only(tokenizer, managers):
    def first(seed, pool, alone=False):
        return [row_of(trace) for trace in islice(lessons(seed, pool, tokenizer, alone=alone), 4)]

    assert first(0, 1) == [row_of(one.trace) for one in managers[:4]]
    assert first(0, 1) != first(0, 2) and first(0, 1) != first(1, 1) and first(0, 1) != first(0, 1, alone=True)


def test_all_tasks_are_rehearsed_and_all_numbers_of_calls(managers, users):
    for rehearsed in (managers, users):
        kinds = [one.kind for one in rehearsed]
        for task, share in SHARES.items():
            assert kinds.count(task.partition("-")[0]) / len(kinds) == pytest.approx(share, abs=0.15)
    called = {len(reply.calls) for one in managers for reply in one.replies}
    assert called == {1, 2, 3, 4}
    tools = {call.name for one in managers for reply in one.replies for call in reply.calls}
    assert tools == {*ParaManager.tools, FINAL}
    assert {c.name for one in users for r in one.replies for c in r.calls} == {*ToolUse.tools, FINAL}


def test_no_price_and_no_target_that_is_held_out_is_rehearsed(everybody):
    held_out = {name for name in PRICES if zlib.crc32(name.encode()) % 5 == 0}
    for one in everybody:
        if one.kind == "countdown":
            assert one.target not in COUNTDOWN_MINI.test_targets
        assert not held_out & set(named(one.question.partition(" ")[2]))


def test_only_words_of_failures_are_unknown_to_the_model_and_everything_fits(everybody):
    unknown = vocabulary().index("<unk>")
    for one in everybody:
        for span in one.trace.spans:
            if unknown in (span.token_ids or ()):
                assert span.origin is Origin.INJECTED
                assert any(response.value in SILENT.values() for response in read_responses(span.text))
        assert len(row_of(one.trace)) <= pocket_tools.CONFIG.max_position_embeddings


def test_only_replies_are_trained_to_their_ends(everybody, tokenizer):
    (eos,) = tokenizer.eos_ids
    opening, told = (vocabulary().index(piece) for piece in (pocket_tools.PIECES[0], '<tool_response>\n{"name": "'))
    for one in everybody:
        row = row_of(one.trace)
        trained = [i for i, train in zip(row.token_ids, row.trained, strict=True) if train]
        shown = [i for i, train in zip(row.token_ids, row.trained, strict=True) if not train]
        assert eos not in shown and opening not in shown and told not in trained
        assert trained.count(eos) == len(one.replies) + 1 and trained[-1] == eos
        assert trained.count(opening) == sum(len(reply.calls) for reply in one.replies)
        sampled = [span.text for span in one.trace.spans if span.origin is Origin.SAMPLED]
        assert tuple(trained) == tuple(i for text in sampled for i in (*tokenizer.encode(text), eos))


# The form


def test_replies_are_well_formed_and_the_rounds_are_ended(everybody):
    for one in everybody:
        *working, last = one.replies
        assert all(reply.well_formed for reply in one.replies)
        assert all(len(reply.calls) <= int(one.head[1]) for reply in one.replies)
        assert [call.name for call in last.calls] == [FINAL] and one.trace.spans[-2].text == "final"
        assert not any(call.name == FINAL for reply in working for call in reply.calls)
        assert len(working) == len(one.told) and one.answer
        assert one.left == list(range(int(one.head[3]), 0, -1))[: len(one.left)] and one.left[-1] >= 1


def test_no_call_fails_but_by_a_fault_or_for_want_of_skill(everybody):
    responses = [response for one in everybody for told in one.told for response in told]
    for response in responses:
        if response.status is not CallStatus.OK:
            assert response.value in (INJECTED, SILENT.get(response.name)), response


def test_faults_occur_at_the_set_rate(everybody):
    responses = [response for one in everybody for told in one.told for response in told]
    failed = [response for response in responses if response.value == INJECTED]
    assert len(responses) > 600
    assert len(failed) / len(responses) == pytest.approx(FAULTS, abs=0.05)
    assert {response.status for response in failed} == set(CallStatus) - {CallStatus.OK}


# What it does


def test_nobody_gives_up_while_rounds_are_left(everybody):
    gone_on = 0
    for one in everybody:
        for n, left in enumerate(one.left):
            seen = [response for told in one.told[:n] for response in told]
            if seen and all(response.status is not CallStatus.OK for response in seen):
                ended = one.replies[n].calls[0].name == FINAL
                assert ended is (left == 1)
                gone_on += not ended
        assert one.answer != "none" or one.left[-1] == 1
    assert gone_on > 10


def test_an_answer_is_right_if_a_check_said_so(managers, users):
    checked = 0
    for one in [*managers, *users]:
        worth = [
            (offer, value.removesuffix(".0"))
            for pairs in one.rounds
            for call, response in pairs
            if call.name == "python" and response.status is CallStatus.OK
            for offer, value in zip(_asked(call), response.value.split(), strict=True)
        ]
        if one.kind == "countdown":
            if any(value == str(one.target) for _, value in worth):
                assert (one.answer, str(one.target)) in worth
                checked += 1
            continue
        found = {
            r.value.strip() for pairs in one.rounds for c, r in pairs if c.name in CALCULATORS and r.status == "OK"
        }
        assert all(int(value) == one.target for _, value in worth), "programs are right"
        if worth and len(found) == 1:
            assert one.answer == str(one.target)
            checked += 1
    assert checked > 100
    assert all(_solves(one) for one in users if one.answer != "none"), "alone, it computes all that it answers"


def _solves(one: Rehearsed) -> bool:
    if one.kind != "countdown":
        return one.answer == str(one.target)
    *numbers, _, target = one.question.split()[1:]
    problem = COUNTDOWN_MINI_SINGLE.problem([int(n) for n in numbers], int(target))
    return COUNTDOWN_MINI_SINGLE.grade(problem, one.answer or "").all_correct


def test_what_was_checked_is_written_down_with_the_right_judgement(managers):
    judged = re.compile(r"(?P<offer>[^;]+) = (?P<worth>\d+(?:\.\d+)?) (?P<target>\d+) (?P<word>ok|bad)")
    seen = []
    for one in managers:
        if one.kind != "countdown":
            continue
        for n, said in enumerate(one.replies):
            lines = [judged.fullmatch(part.strip()) for part in (said.reasoning or "").split(";")]
            lines = [line for line in lines if line]
            assert all(line["target"] == str(one.target) for line in lines)
            assert all((line["worth"] == line["target"]) is (line["word"] == "ok") for line in lines)
            assert all(parse(line["offer"]).value == float(line["worth"]) for line in lines)
            told = {offer for call, _ in one.rounds[n - 1] for offer in _asked(call)} if n else set()
            assert {line["offer"].strip() for line in lines} <= told, "of the last round"
            seen += [line["word"] for line in lines]
    assert seen.count("ok") > 10 and seen.count("bad") > 10


def test_prices_stand_in_the_history_before_they_are_used_and_nothing_known_is_looked_up(everybody):
    computed = looked_up = 0
    for one in everybody:
        if one.kind != "ledger":
            continue
        expression = one.question.partition(" ")[2]
        for n, said in enumerate(one.replies):
            values = [response.value for told in one.told[:n] for response in told if response.status is CallStatus.OK]
            known = {f"{m[1]} {m[2]}": m[3] for value in values for m in PRICE.finditer(value)}
            assert known.items() <= PRICES.items()
            for call in said.calls:
                if call.name == "search":
                    assert not known.keys() & set(call.arguments["query_list"])
                    looked_up += 1
                if call.name == "knowledge_searcher":
                    assert not known.keys() >= set(named(expression))
                for asked in _asked(call):
                    assert asked == _priced(expression, known) and not named(asked)
                    computed += 1
    assert computed > 40 and looked_up > 20


def test_what_is_asked_of_arithmetic_is_the_question(everybody):
    for one in everybody:
        if one.kind == "arithmetic":
            asked = {part for reply in one.replies for call in reply.calls for part in _asked(call)}
            assert asked <= {one.question.partition(" ")[2]}


_kinds = st.sampled_from(["arithmetic 3 * 17 + 2", "ledger 3 * silk riga - tea lyon", "countdown 2 3 9 11 14 = 29"])
_texts = st.text(max_size=40) | st.sampled_from(["53", "53 ok ; 41 bad", "( 2 * 9 ) + 11", "none", "7.0 29", FAILED])
_made = st.one_of(
    st.just(ToolCall("python", {"code": "print( ( 2 * 9 ) + 11 , 2 * 3)"})),
    st.sampled_from(ParaManager.tools).filter(lambda tool: tool != "python").map(lambda tool: ToolCall(tool, {})),
)
_pairs = st.lists(st.tuples(_made, st.sampled_from(CallStatus), _texts), max_size=4)
_rounds = st.lists(_pairs, max_size=4).map(
    lambda rounds: tuple(
        (tuple(call for call, *_ in pairs), tuple(Response(call.name, status, text) for call, status, text in pairs))
        for pairs in rounds
    )
)
_tools = st.sampled_from([ParaManager.tools, ToolUse.tools]).map(frozenset)


@given(_kinds, _tools, _rounds, st.integers(1, 5), st.integers(1, 4), st.integers(0, 1 << 30))
def test_whatever_came_back_the_next_reply_has_the_form(question, tools, rounds, left, most, seed):
    models = {"m1": "code review", "m2": "countdown"} if "standard_reasoner" in tools else {}
    said = reply(Seen(question, models, tools, rounds, left, most), random.Random(seed))
    read = read_reply(said)
    assert read.well_formed and 1 <= len(read.calls) <= most
    names = {call.name for call in read.calls}
    assert names == {FINAL} or names <= tools
    assert names == {FINAL} or left > 1, "the last round is for ending"
    assert read_proposal(manager.answer(said), ended=True).answer


def test_an_answer_is_what_was_in_mind_last():
    assert manager.answer("<reasoning> final ( 2 * 9 ) + 11 </reasoning>") == " <ANSWER> ( 2 * 9 ) + 11 </ANSWER>"
    assert manager.answer("<reasoning> 9 = 9 9 ok ; final 9 </reasoning>") == " <ANSWER> 9 </ANSWER>"
    assert manager.answer("") == manager.answer("<reasoning> ask 9 </reasoning>") == " <ANSWER> none </ANSWER>"


# Its agents, and python


@pytest.mark.parametrize("told", GOOD_AT)
@pytest.mark.parametrize(("kind", "rest"), [("arithmetic", "3 * 17 + 2"), ("countdown", "2 3 9 11 14 = 29")])
def test_agents_are_right_as_often_as_is_set_and_more_often_at_what_is_told_of_them(kind, rest, told):
    right = 0
    for seed in range(600):
        offers = _helped(told, f"sequential {kind} {rest}", seed).split(helpers.SEPARATOR)
        right += offers == ["53"] if kind == "arithmetic" else _right(offers[0])
    assert right / 600 == pytest.approx(SKILL + (BETTER if told == kind else 0), abs=0.07)


@pytest.mark.parametrize("told", GOOD_AT)
def test_only_who_is_good_at_code_writes_programs_queries_and_reviews(told):
    coded = _helped(told, "coder arithmetic 3 * 17")
    reviewed = _helped(told, "reviewer arithmetic 3 * 17 answers 51")
    queried = _helped(told, "searcher ledger 3 * silk riga")
    if "code" in told:
        assert "<code> print ( 3 * 17 ) </code>" in coded and "51" in reviewed and "silk riga" in queried
    else:
        assert {coded, reviewed, queried} == {"none"}


def _helped(told: str, asked: str, seed: int = 0) -> str:
    """What an agent answers whose model the manager is told this of."""
    said = helping(told)(Context((Message("user", asked),)), random.Random(seed))
    return (read_proposal(said, ended=True).answer or said).strip()


def _right(offer: str) -> bool:
    problem = COUNTDOWN_MINI_SINGLE.problem([2, 3, 9, 11, 14], 29)
    return COUNTDOWN_MINI_SINGLE.grade(problem, offer).all_correct


def _run(code: str):
    async def once():
        return await OnPaper().run(code)

    return asyncio.run(once())


_sums = st.recursive(
    st.integers(0, 399).map(str),
    lambda part: st.tuples(part, st.sampled_from("+-*"), part).map(lambda sides: f"( {' '.join(sides)} )"),
    max_leaves=6,
)


@given(st.lists(_sums, min_size=1, max_size=4))
def test_programs_are_worked_out_as_python_would(expressions):
    result = _run(f" print ( {' , '.join(expressions)}) ")
    assert (result.status, result.text) == (Status.OK, " ".join(str(eval(each)) for each in expressions))


@given(st.integers(1, 20), st.integers(1, 20), st.sampled_from("+-*"), st.integers(1, 20))
def test_a_quotient_is_printed_with_its_point(one, other, operator, third):
    expression = f"( {one * other} / {other} ) {operator} {third}"
    assert _run(f"print({expression})").text == str(eval(expression))


@pytest.mark.parametrize(
    "code",
    ["", "print()", "print(", "print(1", "print(copper)", "print(3 * silk riga)", "1 + 1", "print(1)\nprint(2)",
     "print(1); print(2)", "print(9**9**9)", "print(1/0)", "print(-1)", "print('a'*10**9)", "print(" + "(" * 50_000,
     "print(__import__('pathlib').Path('owned').touch())", "print(open('owned', 'w'))", "exec('1')", "print(0x10)",
     "print(" + "9" * 5_000 + ")", "import os\nprint(1)", "print(1) if True else print(2)", "print(1_0)", "print(1,)"],
)  # fmt: skip
def test_other_programs_fail_and_nothing_is_evaluated(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = _run(code)
    assert (result.status, result.text) == (Status.ERROR, FAILED)
    assert not list(tmp_path.iterdir())


@given(st.text(max_size=60) | st.text(max_size=40).map("print({})".format))
def test_any_program_comes_to_something(code):
    result = _run(code)
    assert result.status is Status.OK or result.text == FAILED
    if result.status is Status.OK:
        for part in code.strip().removeprefix("print").strip()[1:-1].split(","):
            try:
                parse(part)
            except ExpressionError:
                pytest.fail(f"{part!r} was worked out")
