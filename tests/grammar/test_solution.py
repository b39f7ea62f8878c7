"""Where the thinking of a solution ends, and which of its answers counts."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orgthink.grammar.actions import THINK, THOUGHT
from orgthink.grammar.solution import Proposal, after_thinking, read_proposal

SAID = st.text(max_size=40).filter(lambda text: "think>" not in text)
TAGGED = st.lists(
    st.sampled_from([THINK, THOUGHT, "<ANSWER>", "</ANSWER>", "<JOIN-1>", "</JOIN-1>", "<", ">", " ", "\n", "7", "so"]),
    max_size=14,
).map("".join)


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("<think> hm </think> 7 ", "7", id="both marks"),
        pytest.param(" hm </think>\n\n7\n", "7", id="the prompt began the thinking"),
        pytest.param("<think> a </think> b </think> 7", "7", id="ended twice"),
        pytest.param("<think> a </think> b <think> c </think> 7", "7", id="thought twice"),
        pytest.param("<think> hm </think>", "", id="nothing after the thinking"),
        pytest.param("<think> hm </think> 7 <think> no", "", id="began to think again"),
        pytest.param("<think> so 7", "", id="never ended the thinking"),
        pytest.param("", "", id="empty"),
    ],
)
def test_what_was_said_follows_the_last_end_of_the_thinking(text, ended, expected):
    assert after_thinking(text, ended) == expected


@pytest.mark.parametrize("text", ["7 - 2 = 5\n", "hm </think > 7"])
def test_without_thinking_a_text_that_came_to_its_end_is_all_there_is(text):
    assert after_thinking(text, ended=True) == text.strip()


@pytest.mark.parametrize(
    "text", ["<think> so 7", "<think> hm </think> no <think> so 7", "hm <think>", "<think> 7 </thi", "so 7, or"]
)
def test_a_text_cut_off_before_the_end_of_its_thoughts_said_nothing(text):
    """The prompt may have begun the thinking: then the text has no mark of it."""
    assert after_thinking(text, ended=False) == ""
    assert read_proposal(f"{text} <ANSWER> 7 </ANSWER>", ended=False) == Proposal("", None)


def test_a_solution_that_is_cut_off_after_the_thinking_stands_as_far_as_it_goes():
    assert read_proposal("hm </think> 3 + 4 = 7 <ANSWER> 7 </ANSWER> and", ended=False).answer == "7"


@given(SAID, SAID, st.booleans())
def test_thoughts_never_change_what_was_said(thoughts, said, ended):
    assert read_proposal(f"{THINK}{thoughts}{THOUGHT}{said}", ended) == read_proposal(said, ended=True)
    assert read_proposal(f"{thoughts}{THOUGHT}{said}", ended) == read_proposal(said, ended=True)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        pytest.param("3 + 4 = 7 <ANSWER> 7 </ANSWER>", "7", id="one"),
        pytest.param("<ANSWER>6</ANSWER> no, <ANSWER>7</ANSWER>", "7", id="the last of two"),
        pytest.param("<ANSWER> 7 </ANSWER> or <ANSWER> 8", "7", id="an unfinished one does not replace one"),
        pytest.param("<ANSWER>\n\\frac{1}{2}\n</ANSWER>", "\\frac{1}{2}", id="over several lines"),
        pytest.param("<ANSWER> 6 <ANSWER> 7 </ANSWER>", "7", id="begun twice"),
        pytest.param("<ANSWER> 6 <ANSWER> 7 </ANSWER> </ANSWER>", "7", id="nested"),
        pytest.param("<ANSWER> a < b </ANSWER>", "a < b", id="a sign that is no tag"),
        pytest.param("<ANSWER></ANSWER>", "", id="empty"),
        pytest.param("7", None, id="none"),
        pytest.param("<ANSWER> 7", None, id="cut off"),
        pytest.param("7 </ANSWER>", None, id="only its end"),
        pytest.param("<answer> 7 </answer>", None, id="another spelling"),
        pytest.param("<ANSWER> 7 <FORK-1> </ANSWER>", None, id="cut off by a tag"),
        pytest.param("<think> <ANSWER> 7 </ANSWER> </think> 7", None, id="only in the thoughts"),
        pytest.param("<ANSWER> 6 </ANSWER> </think> <ANSWER> 7 </ANSWER>", "7", id="in the thoughts and after"),
        pytest.param("<ANSWER> 6 </think> 7 </ANSWER>", None, id="begun in the thoughts"),
        pytest.param("a </think> <ANSWER> 6 </ANSWER> b </think> <ANSWER> 7 </ANSWER>", "7", id="ended twice"),
        pytest.param("a </think> <ANSWER> 6 </ANSWER> b </think> 7", None, id="taken back by more thinking"),
    ],
)
def test_the_answer_is_the_last_one_after_the_thinking(text, answer):
    assert read_proposal(text, ended=True).answer == answer


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("so <ANSWER>7</ANSWER>.", "7"),
        (r"so \boxed{7}.", "7"),
        ("hm </think> 7 ", "7"),
        ("<ANSWER></ANSWER>", ""),
        ("", None),
    ],
)
def test_a_solution_without_a_marked_answer_is_graded_as_a_whole(text, result):
    assert read_proposal(text, ended=True).result == result


@given(TAGGED | st.text(), st.booleans())
@example("</think><ANSWER>7</ANSWER>", True)
def test_a_proposal_is_a_proposal_of_its_own_text(text, ended):
    proposal = read_proposal(text, ended)
    assert read_proposal(proposal.text, ended=True) == proposal
    assert THOUGHT not in proposal.text
    assert proposal.answer is None or (proposal.answer in proposal.text and "<ANSWER>" not in proposal.answer)


def test_a_brace_that_is_text_neither_opens_nor_closes_a_box():
    cases = r"\left\{ x \text{ if } x > 0 \right."
    assert read_proposal(rf"So \boxed{{{cases}}}", ended=True).answer == cases
    assert read_proposal(r"So \boxed{\{1, 2\}}", ended=True).answer == r"\{1, 2\}"
    assert read_proposal(r"So \boxed{1\}", ended=True).answer is None
