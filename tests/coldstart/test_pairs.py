"""Pairs go to lines and come back; they are read from lines and parquet; a row that is invalid is named."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orgthink.record.episode import Episode, Origin, Problem, Span, Trace
from orgthink.training.coldstart.pairs import Pair, pairs_of, read_pairs, write
from orgthink.util.errors import UserError

PAIR = Pair("ask said", "more", "organizer", "p", "p|teacher|0", 1, "m", written=5, last=False)

texts = st.text(st.characters(codec="utf-8"), min_size=1)
pairs = st.builds(Pair, texts, texts, texts, texts, texts, st.integers(0, 99), texts, last=st.booleans())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(some=st.lists(pairs, min_size=1))
def test_what_is_written_is_read(tmp_path: Path, some: list[Pair]):
    file = tmp_path / "a.jsonl"
    write(file, [*some, PAIR])
    assert read_pairs(file) == [*some, PAIR]
    assert list(tmp_path.iterdir()) == [file]


def test_rows_of_other_programs_need_a_query_and_a_response_only(tmp_path: Path):
    rows = [{"query": "q", "response": "r", "source": "web", "role": None}, {"query": "é", "response": "<A> "}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    for name in ("a.jsonl", "a.parquet"):
        assert read_pairs(tmp_path / name) == [Pair("q", "r"), Pair("é", "<A> ")]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"query": "q"}, "no response; it has query"),
        ({"query": "q", "response": None}, "no response; it has query, response"),
        ({"response": "r"}, "no query; it has response"),
        ({"other": "r"}, "no query and no response"),
        ({"query": "q", "response": ""}, "the response is empty"),
        ({"query": "", "response": "r"}, "the query is empty"),
        ({"query": "q", "response": 5}, "response: Input should be a valid string"),
        ({"query": "q", "response": "r", "written": 1}, "written is 1, but the query has 1 characters"),
        ({"query": "q", "response": "r", "written": -1}, "written is -1"),
    ],
)
def test_a_row_that_is_no_pair_is_named(tmp_path: Path, row, says):
    rows = [{"query": "q", "response": "r"}, {"query": "q", "response": "r"}, row]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(UserError, match=rf"a\.jsonl, row 3: .*{says}"):
        read_pairs(tmp_path / "a.jsonl")
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row]), tmp_path / "a.parquet")
    with pytest.raises(UserError, match=rf"a\.parquet, row 1: .*{says}"):
        read_pairs(tmp_path / "a.parquet")


def test_spans_that_were_sampled_in_one_go_are_one_response():
    sampled, injected = Origin.SAMPLED, Origin.INJECTED
    parts = [
        (Origin.PROMPT, "ask"),
        (sampled, " a"),
        (sampled, " <JOIN-1>"),
        (injected, " r </JOIN-1>"),
        (sampled, "b"),
    ]
    cut = [*parts[:3], (injected, " r </JOIN-1>")]
    traces = tuple(
        Trace(name, name, None, tuple(Span(origin, text, 1) for origin, text in spans))
        for name, spans in (("organizer", parts), ("worker", cut))
    )
    episode = Episode("e", Problem("p", "t", ""), "asyncthink", 2, traces)
    assert pairs_of(episode, "m") == [
        Pair("ask", " a <JOIN-1>", "organizer", "p", "e", 0, "m", written=0, last=False),
        Pair("ask a <JOIN-1> r </JOIN-1>", "b", "organizer", "p", "e", 1, "m", written=23, last=True),
        Pair("ask", " a <JOIN-1>", "worker", "p", "e", 2, "m", written=0, last=False),
    ]
