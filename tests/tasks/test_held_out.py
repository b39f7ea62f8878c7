"""What is held out from training stays the same, whatever computes it: models were trained on the rest."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orgthink.tasks.task import in_split, share


@given(st.text().filter(lambda text: text.isprintable()), st.integers(1, 1000))
def test_a_share_is_the_checksum_of_the_name(name: str, n: int) -> None:
    assert share(name, n) == zlib.crc32(name.encode()) % n
    assert in_split(name, "test") == (zlib.crc32(name.encode()) % 5 == 0)
    assert in_split(name, "train") != in_split(name, "test")


@pytest.mark.parametrize(
    ("name", "held_out"),
    [
        ("sudoku/1234-3412-2143-4321", False),
        ("arithmetic-mini/3+4*5", False),
        ("copper lyon", False),
        ("arithmetic-mini/12-7+3", True),
    ],
)
def test_some_names_for_all_times(name: str, held_out: bool) -> None:
    assert in_split(name, "test") is held_out
