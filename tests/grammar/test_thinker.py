"""A thinker's answer is what stands in its tags, unless it only thinks about them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from orgthink.grammar.actions import Action, Answer, Fork, Join, Malformed, Return
from orgthink.grammar.asyncthink import AsyncThinkScanner, organizer_scanner, worker_scanner
from orgthink.grammar.asyncthink import read as read_organizer

FORKS = ("<FORK-1>", "</FORK-1>", "<JOIN-1>", "<RETURN>", "</RETURN>")
PIECES = ("<think>", "</think>", "<ANSWER>", "</ANSWER>", "word ", "<", "a < b > c ")


def thinker_scanner() -> AsyncThinkScanner:
    return AsyncThinkScanner("answer")


NEW = (thinker_scanner, organizer_scanner, worker_scanner)


def read(*pieces: str, new: Callable[[], AsyncThinkScanner] = thinker_scanner) -> list[Action]:
    scanner = new()
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


@given(st.lists(st.sampled_from((*PIECES, *FORKS)), max_size=12), st.data(), st.sampled_from(NEW))
def test_how_the_text_is_cut_does_not_matter(pieces: list[str], data: st.DataObject, new: Callable) -> None:
    text = "".join(pieces)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)))) | {0, len(text)})
    assert read(*(text[i:j] for i, j in pairwise(cuts)), new=new) == read(text, new=new)


def acts(text: str, new: Callable[[], AsyncThinkScanner] = organizer_scanner) -> list[Action]:
    """What happens in a text."""
    return [one for one in read(text, new=new) if isinstance(one, Fork | Join | Answer | Return | Malformed)]


def test_an_organizer_forks_and_joins_while_it_thinks_but_answers_like_all_others_after_it() -> None:
    text = "<think> write <ANSWER>final answer</ANSWER> <FORK-1>a</FORK-1> <JOIN-1> so </think> <ANSWER>7</ANSWER>"
    assert acts(text) == [Fork("1", "a"), Join("1"), Answer("7")]
    assert acts("<think> write <RETURN>x</RETURN> </think> <RETURN>7</RETURN>", worker_scanner) == [Return("7")]
    assert acts("<FORK-1>a</FORK-1> <JOIN-1> <ANSWER>7</ANSWER>")[-1] == Answer("7"), "it does not mark its thinking"


def test_marks_of_thinking_in_a_sub_query_are_its_text() -> None:
    assert acts("<FORK-1> use <think> </FORK-1> <ANSWER>7</ANSWER>")[-1] == Answer("7")
    assert acts("<think> <FORK-1> use </think> </FORK-1> <ANSWER>7</ANSWER>") == [Fork("1", " use </think> ")]
    assert acts("<think> <FORK-1> <ANSWER>6</ANSWER> </FORK-1>") == [Fork("1", " <ANSWER>6</ANSWER> ")]
    assert acts("<think> <FORK-1> oh </think> <ANSWER>7</ANSWER>")[-1] == Answer("7"), "the sub-query was cut off"


def test_the_thinking_goes_on_after_a_join() -> None:
    text = "<think> <FORK-1>a</FORK-1> <JOIN-1> 3 </think> </JOIN-1> <ANSWER>6</ANSWER> </think> <ANSWER>7</ANSWER>"
    assert [one for one in read_organizer(text) if isinstance(one, Answer)] == [Answer("7")]


def test_only_the_last_tag_tells_where_an_engine_stopped() -> None:
    scanner = thinker_scanner()
    scanner.feed("<think> <ANSWER> x </ANSWER>")
    assert scanner.quoted
    scanner.feed(" </think> <ANSWER> x </ANSWER>")
    assert not scanner.quoted and scanner.close() == []
