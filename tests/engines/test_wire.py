"""What servers say, read piece by piece."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orgthink.engines import wire
from orgthink.engines.fewest import Fewest, fewest

COMPLETION = '{"choices": [{"text": "ab", "logprobs": {"tokens": ["a", "b"], "token_logprobs": [-1, BAD]}}]}'
CHAT = (
    '{"choices": [{"delta": {"content": "ab"}, "logprobs": {"content": '
    '[{"token": "a", "logprob": -1}, {"token": "b", "logprob": BAD}]}}]}'
)


@pytest.mark.parametrize("data", [COMPLETION, CHAT])
@pytest.mark.parametrize("bad", ["null", "NaN", "-Infinity", "-1e300", "-2e6", "50"])
def test_a_logprob_that_is_none_makes_all_of_them_unknown(data: str, bad: str) -> None:
    event = wire.event(data.replace("BAD", bad))
    assert (event.pieces, event.logprobs) == (("a", "b"), None)
    assert wire.event(data.replace("BAD", "-2")).logprobs == (-1, -2)


def test_a_token_without_text_keeps_its_id() -> None:
    event = wire.event('{"choices": [{"delta": {"content": ""}, "token_ids": [5]}]}')
    assert (event.pieces, event.token_ids) == (("",), (5,))


def test_no_error_is_no_failure() -> None:
    event = wire.event('{"error": null, "choices": [{"delta": {"content": "a"}}]}')
    assert event.pieces == ("a",)


@given(st.lists(st.text(alphabet="ab \n字\ud800", max_size=40)))
def test_how_many_tokens_a_text_is_at_least_does_not_depend_on_its_pieces(pieces: list[str]) -> None:
    found, text = Fewest(), "".join(pieces)
    for piece in pieces:
        found.add(piece)
    size = len(text.encode(errors="surrogatepass"))
    assert found.tokens == fewest(text) == max(len(text.split()), size // 16)
    assert found.tokens <= size
