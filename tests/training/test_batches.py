"""Batches of rows."""

import random
from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from orgthink.training.rows import Cursor, Row, batches

COUNT = 1280


def rows(seed, epoch):
    rng = random.Random(f"{seed}/{epoch}")
    for _ in range(COUNT):
        length = rng.choice([rng.randint(3, 30), rng.randint(200, 400)])
        yield Row((1,) * length, (True,) * length)


@given(st.integers(400, 5000), st.integers(0, 3))
def test_batches_are_bounded_and_have_every_row_once(tokens, seed):
    def few(seed, epoch):
        return islice(rows(seed, epoch), 60)

    found, cursor = [], Cursor()
    for batch, after in batches(few, seed, tokens, cursor):
        if after.epoch > 0:
            break
        assert sum(map(len, batch)) <= tokens
        found += batch
    assert sorted(map(len, found)) == sorted(map(len, few(seed, 0)))


def test_batches_of_rows_are_even_and_mixed():
    found = list(islice(batches(rows, 0, 5000, Cursor(), size=100), 2 * round(COUNT / 100)))
    assert {len(batch) for batch, _ in found} == {98, 99}
    assert all(min(map(len, batch)) < 40 and max(map(len, batch)) > 200 for batch, _ in found)
    again = batches(rows, 0, 5000, found[4][1], size=100)
    assert [next(again) for _ in range(12)] == found[5:17]
