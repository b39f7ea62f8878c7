"""Padding stays under a twentieth, whatever the rows are."""

import random
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orgthink.training.batches import PADDING, POOL, Cursor, batches, collate, in_one_go
from orgthink.training.rows import Row


def rows(seed, pool):
    rng = random.Random(f"{seed}/{pool}")
    while True:
        length = rng.choice([rng.randint(3, 30), rng.randint(200, 400)])
        yield Row((1,) * length, (True,) * length)


def padding(parts):
    computed = sum(collate(part, 0)[0].numel() for part in parts)
    return 1 - sum(len(row) for part in parts for row in part) / computed


@given(st.lists(st.integers(1, 500), min_size=1, max_size=80))
def test_what_is_computed_in_one_go_is_bounded(lengths):
    batch = [Row((i,) * length, (True,) * length) for i, length in enumerate(lengths)]
    parts = in_one_go(batch, 600)
    assert sorted(row.token_ids for part in parts for row in part) == sorted(row.token_ids for row in batch)
    assert all(collate(part, 0)[0].numel() <= 600 for part in parts)
    assert all(padding([part]) <= PADDING + 1e-9 for part in parts)


def test_batches_of_rows_are_even_and_mixed():
    found = list(islice(batches(rows, 0, 5000, Cursor(), size=100), 2 * round(POOL / 100)))
    assert {len(batch) for batch, _ in found} == {98, 99}
    assert all(min(map(len, batch)) < 40 and max(map(len, batch)) > 200 for batch, _ in found)
    again = batches(rows, 0, 5000, found[4][1], size=100)
    assert [next(again) for _ in range(12)] == found[5:17]


@pytest.mark.parametrize("size", [None, 128])
def test_rows_are_padded_little(size):
    found = [batch for batch, _ in islice(batches(rows, 0, 5000, Cursor(), size), 40 if size is None else 10)]
    parts = [part for batch in found for part in in_one_go(batch, 5000)]
    assert padding(parts) < 0.05
    if size is None:
        assert len(parts) < 1.5 * len(found)  # most batches are computed in one go
