"""Rows that begin alike, computed once: what a pack holds, against sets of beginnings."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orgthink.training.packing import Pack, packs
from orgthink.training.rows import Row

VOCABULARY = 3
"""So few ids that random rows often begin alike."""

Ids = tuple[int, ...]
Family = list[Row]

ids = st.integers(0, VOCABULARY - 1)


@st.composite
def families(draw: st.DrawFn) -> Family:
    """Rows that go on from the beginnings of other rows: equal ones, and beginnings of each other, included."""
    texts: list[Ids] = []
    for _ in range(draw(st.integers(1, 8))):
        source = draw(st.sampled_from(texts)) if texts else ()
        kept = draw(st.integers(0, len(source)))
        text = source[:kept] + tuple(draw(st.lists(ids, max_size=6)))
        texts.append(text or (draw(ids),))
    return [row(text, draw(st.lists(st.booleans(), min_size=len(text), max_size=len(text)))) for text in texts]


def row(text: Ids, trained: Sequence[bool] = ()) -> Row:
    """The first token is never trained: nothing comes before it."""
    return Row(text, (False, *(trained or (True,) * len(text))[1:]))


def beginnings(rows: Sequence[Row]) -> set[Ids]:
    """All beginnings of the rows: the nodes of their trie."""
    return {row.token_ids[:end] for row in rows for end in range(1, len(row) + 1)}


def texts_of(pack: Pack[Row]) -> list[Ids]:
    """What each token of a pack stands for, read off its position: itself after the last token one step less deep."""
    path: list[int] = []
    texts: list[Ids] = []
    for token, position in zip(pack.ids.tolist(), pack.positions.tolist(), strict=True):
        assert 0 <= position <= len(path)
        path[position:] = [token]
        texts.append(tuple(path))
    return texts


def times_seen(rectangles: torch.Tensor, tokens: int) -> torch.Tensor:
    """[T, T]: in how many rectangles a token (first axis) sees another."""
    times = torch.zeros(tokens, tokens, dtype=torch.int64)
    for first, last, start, stop in rectangles.tolist():
        seen = torch.ones(last - first, stop - start, dtype=torch.int64)
        times[first:last, start:stop] += seen.tril() if first == start else seen
    return times


SPECIAL = [
    [row((1, 2, 0)), row((1, 2, 0))],  # equal
    [row((1, 2)), row((1,)), row((1, 2, 0, 0))],  # beginnings of each other
    [row((1,))],  # nothing to train
    [row((1, 2, 0)), row((1, 2, 1)), row((1, 2)), row((2, 2, 0))],
    [row((1, 2, 0, 1), (False, *mask)) for mask in ((True, False, True), (False, True, False), (False,) * 3)],
]


def special(test):
    for rows in SPECIAL:
        test = example(rows, 4)(test)
    return test


any_pack = settings(deadline=None)


@any_pack
@special
@given(families(), st.integers(1, 30))
def test_every_row_lies_in_one_pack_and_no_token_is_computed_twice(rows: Family, limit: int) -> None:
    made = list(packs(rows, limit))
    assert sorted(place for pack in made for place in pack.places) == list(range(len(rows)))
    assert all(rows[place] is row for pack in made for place, row in zip(pack.places, pack.rows, strict=True))
    for pack in made:
        texts = texts_of(pack)
        assert len(texts) == len(set(texts))
        assert set(texts) == beginnings(pack.rows)


@any_pack
@given(families(), st.integers(1, 30), st.integers(2, 3))
def test_each_worker_gets_as_many_packs_and_none_is_too_long(rows: Family, limit: int, workers: int) -> None:
    alone, made = packs(rows, limit), packs(rows, limit, workers)
    assert all(len(pack.ids) <= limit or len(pack.rows) == 1 for pack in made)
    assert len(alone) <= len(made) <= len(alone) + workers - 1


def test_packs_of_equal_rows_are_even() -> None:
    rows = [row((i, 0, 0, 0)) for i in range(10)]
    assert [len(pack.ids) for pack in packs(rows, 16)] == [16, 16, 8]
    assert [len(pack.ids) for pack in packs(rows, 16, 2)] == [12, 12, 12, 4]
    assert [len(pack.ids) for pack in packs(rows, 100, 2)] == [20, 20]


@any_pack
@special
@given(families(), st.integers(1, 30))
def test_a_token_sees_its_own_beginning_and_nothing_else(rows: Family, limit: int) -> None:
    for pack in packs(rows, limit):
        texts = texts_of(pack)
        seen = times_seen(pack.rectangles, len(texts))
        for text, times in zip(texts, seen.tolist(), strict=True):
            assert [other for other, n in zip(texts, times, strict=True) for _ in range(n)] == [
                text[:end] for end in range(1, len(text) + 1)
            ]


@any_pack
@special
@given(families(), st.integers(1, 30))
def test_each_trained_token_is_predicted_from_what_comes_before_it(rows: Family, limit: int) -> None:
    for pack in packs(rows, limit):
        texts = texts_of(pack)
        wanted = [row.token_ids[: end + 1] for row in pack.rows for end in range(len(row)) if row.trained[end]]
        found = [(*texts[place], i) for place, i in zip(pack.before.tolist(), pack.targets.tolist(), strict=True)]
        assert found == wanted
        owners = [number for number, row in enumerate(pack.rows) for trained in row.trained if trained]
        assert pack.spread(range(len(pack.rows))).tolist() == owners


@pytest.mark.parametrize(("limit", "sizes"), [(1, [9, 8, 7]), (9, [9, 8, 7]), (11, [10, 7]), (12, [12])])
def test_a_group_of_one_prompt(limit: int, sizes: list[int]) -> None:
    """Five tokens of prompt; what is sampled begins alike in two rows."""
    prompt = (1, 1, 2, 2, 1)
    rows = [row((*prompt, *said)) for said in ((0, 0, 0, 0), (0, 0, 1), (1, 2))]
    assert [len(pack.ids) for pack in packs(rows, limit)] == sizes
