"""A thinker's answer is what stands in its tags, unless it only thinks about them."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from orgthink.grammar.actions import Action, Answer
from orgthink.grammar.asyncthink import ThinkerScanner

PIECES = ("<think>", "</think>", "<ANSWER>", "</ANSWER>", "word ", "<", "a < b > c ")


def read(*pieces: str) -> list[Action]:
    scanner = ThinkerScanner()
    events = [event for piece in pieces for event in scanner.feed(piece)] + scanner.close()
    return [event.action for event in events]


def test_tags_in_a_thought_are_text() -> None:
    text = "<think> between <ANSWER> and </ANSWER> </think> <ANSWER> 42 </ANSWER>"
    assert read(text)[-1] == Answer(" 42 ")
    assert [action for action in read(text) if isinstance(action, Answer)] == [Answer(" 42 ")]


def test_a_thought_that_ended_hides_nothing() -> None:
    assert read("so </think> <ANSWER>7</ANSWER>")[-1] == Answer("7"), "the prompt began it"
    assert read("<think> a </think> b <ANSWER>7</ANSWER>")[-1] == Answer("7")
    assert read("<ANSWER> write <think> first </ANSWER>")[-1] == Answer(" write <think> first "), "an answer about it"


def test_a_thought_without_an_end_has_no_answer() -> None:
    assert not [action for action in read("<think> <ANSWER>7</ANSWER> and on") if isinstance(action, Answer)]


@given(st.lists(st.sampled_from(PIECES), max_size=12), st.data())
def test_how_the_text_is_cut_does_not_matter(pieces: list[str], data: st.DataObject) -> None:
    text = "".join(pieces)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)))) | {0, len(text)})
    assert read(*(text[i:j] for i, j in pairwise(cuts))) == read(text)


def test_only_the_last_tag_tells_where_an_engine_stopped() -> None:
    scanner = ThinkerScanner()
    scanner.feed("<think> <ANSWER> x </ANSWER>")
    assert scanner.quoted
    scanner.feed(" </think> <ANSWER> x </ANSWER>")
    assert not scanner.quoted and scanner.close() == []
