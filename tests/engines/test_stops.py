from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orgthink.engines.engine import StopFinder

ALPHABET = "<JOIN-1>ab"


def first(text: str, stops: list[str]) -> int | None:
    """End of the stop text that is complete first, by trying every end."""
    return next((end for end in range(1, len(text) + 1) if text[:end].endswith(tuple(stops))), None)


@given(
    st.lists(st.text(ALPHABET, max_size=5), max_size=12),
    st.lists(st.text(ALPHABET, min_size=1, max_size=4), min_size=1, max_size=4),
)
def test_the_place_does_not_depend_on_how_the_text_is_cut(pieces: list[str], stops: list[str]) -> None:
    finder, read, found = StopFinder(stops), 0, None
    for piece in pieces:
        end = finder.feed(piece)
        if end is not None:
            assert 0 < end <= len(piece)
            found = read + end
            break
        read += len(piece)
    assert found == first("".join(pieces), stops)
