"""The text of sampled ids, where a stream goes on from one that ended inside a character."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_model import byte_tokenizer

from orgthink.engines.engine import Context
from orgthink.models.tokenizer import Tokenizer
from orgthink.record.episode import Origin, Span


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """One token a byte."""
    folder: Path = tmp_path_factory.mktemp("bytes")
    byte_tokenizer(300).save(str(folder / "tokenizer.json"))
    return Tokenizer(folder)


@given(st.text(alphabet="aé数🙂 ", min_size=1, max_size=8), st.data())
def test_segments_cut_anywhere_give_the_text_of_one_go(tokenizer, text, data):
    ids = tokenizer.encode(text)
    cut = data.draw(st.integers(0, len(ids)))
    first = tokenizer.pieces()
    before = "".join(map(first.piece, ids[:cut]))
    sampled = [Span(Origin.SAMPLED, before, cut, tuple(ids[:cut]))] if cut else []
    rest = tokenizer.pieces(Context((), [Span(Origin.PROMPT, "?", 1, tokenizer.encode("?")), *sampled]))
    assert before + "".join(map(rest.piece, ids[cut:])) == text
