"""Texts with parallel paths: blocks, nested and cut-off paths, and the episodes that they describe."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orgthink.grammar.paths import MOST_LEVELS, MOST_PATHS, Path, PathDialect
from orgthink.measure.latency import critical_path
from orgthink.record.episode import Episode, FormatError, Origin, Problem, Status
from orgthink.record.episode_json import line_of, load

PLANNED = PathDialect(("\n<way>\n{}:", "</way>"), "</plan>", "\n<sum>\n")
BARE = PathDialect(("<way{}>", "</way{}>"), "", "<sum>")


def words(text: str) -> int:
    return len(text.split())


def episode(text: str, dialect: PathDialect = PLANNED) -> Episode:
    found = dialect.episode(text, Problem("p", "t", "three plus four"), "others", count=words)
    assert load(line_of(found)) == found
    return found


def tree(path: Path) -> list[object]:
    return [part if isinstance(part, str) else tree(part) for part in path.parts]


def test_paths_that_follow_each_other_are_one_block_and_each_sees_only_what_stands_before_it() -> None:
    found = episode("so </plan>\n<way>\n1: a b c </way>\n<way>\n2: d e </way>\n<sum>\nf g \\boxed{7}")
    root, first, second = found.traces
    assert [(edge.kind, edge.key, edge.at) for edge in root.edges] == [
        ("fork", "1", 2), ("fork", "2", 2), ("join", "1", 2), ("join", "2", 2)
    ]  # fmt: skip
    assert [trace.spans[0].text for trace in (first, second)] == [
        f"three plus fourso </plan>\n<way>\n{number}:" for number in (1, 2)
    ]
    assert first.spans[1].text == " a b c </way>" and first.spans[1].origin is Origin.SAMPLED
    assert [(span.origin, span.text) for span in root.spans[4:]] == [
        (Origin.INJECTED, "\n<sum>\n"), (Origin.SAMPLED, "f g \\boxed{7}")
    ]  # fmt: skip
    assert critical_path(found) == 2 + 4 + 3 and found.answer == "7" and found.capacity == 3
    assert "".join(span.text for span in root.spans[1:]) == root.text


def test_text_between_two_paths_makes_two_blocks() -> None:
    found = episode("<way>1: a b c</way> so <way>1: d</way> \\boxed{1}")
    assert [edge.kind for edge in found.root.edges] == ["fork", "join", "fork", "join"]
    assert [edge.child for edge in found.root.forks] == ["thinker/1", "thinker/1#2"]
    assert critical_path(found) == 3 + 1 + 1 + 1 and found.capacity == 2


def test_a_path_may_hold_a_block_of_its_own() -> None:
    found = episode("</plan><way>1: a </plan><way>1.1: b c</way><way>1.2: d</way> e</way><way>2: f</way> \\boxed{2}")
    assert [(trace.agent, trace.parent) for trace in found.traces[1:]] == [
        ("thinker/1", "thinker"), ("thinker/1/1", "thinker/1"), ("thinker/1/2", "thinker/1"), ("thinker/2", "thinker")
    ]  # fmt: skip
    assert critical_path(found) == 1 + (2 + 2 + 1) + 1


@pytest.mark.parametrize("dialect", [PLANNED, BARE])
def test_the_next_path_ends_one_that_was_cut_off(dialect: PathDialect) -> None:
    opening, closing = (tag.replace("{}", "1") for tag in dialect.path)
    found = episode(f"{opening} a b {opening} c {closing} <sum> \\boxed{{3}}", dialect)
    assert [trace.status for trace in found.traces] == [Status.OK, Status.TRUNCATED, Status.OK]
    assert [(fault.kind, fault.agent) for fault in found.format_faults] == [(FormatError.MALFORMED_TAG, "thinker/1")]
    assert found.answer == "3" and len(found.root.forks) == 2


def test_an_answer_within_a_path_does_not_count() -> None:
    assert episode("<way>1: \\boxed{1}</way> none").answer is None


def test_closing_tags_without_a_path_are_text() -> None:
    assert tree(PLANNED.read("a </way> b")) == ["a </way> b"]


def test_a_text_cannot_make_a_record_without_end() -> None:
    deep = episode("</plan><way>" * 50 + "</way>" * 50)
    assert max(trace.agent.count("/") for trace in deep.traces) == MOST_LEVELS
    many = episode("<way>a</way>" * (MOST_PATHS + 9))
    assert len(many.traces) == MOST_PATHS + 1


@given(
    st.lists(st.sampled_from(["<way>", "<way>1:", "</way>", "</plan>", "<sum>", "<way2>", "</way2>", " ", "\n", "a"]))
)
def test_every_text_is_read_and_given_back(parts: list[str]) -> None:
    text = "".join(parts)
    for dialect in (PLANNED, BARE):
        assert dialect.read(text).text == text
        assert episode(text, dialect).root.text == text
