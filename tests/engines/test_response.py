"""Events of servers → chunks: ends, counts, log-probabilities and words."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orgthink.engines.endpoint.response import Reader, StreamEvent, event
from orgthink.engines.engine import EngineError, FinishReason
from orgthink.record.episode import Billed, Sampling
from orgthink.util.errors import RequestRefused

EOS, STOP, LENGTH = FinishReason.EOS, FinishReason.STOP, FinishReason.LENGTH


def with_choice(**choice: Any) -> StreamEvent:
    return event(json.dumps({"choices": [{"index": 0, **choice}]}))


@pytest.mark.parametrize(
    ("word", "finish"),
    [
        ("stop", EOS),
        ("eos_token", EOS),
        ("end_turn", EOS),
        ("stop_sequence", STOP),
        ("model_length", LENGTH),
        (None, None),
    ],
)
def test_finish_reasons(word: str | None, finish: FinishReason | None) -> None:
    assert with_choice(text="", finish_reason=word).finish is finish


def test_the_id_of_an_end_token_is_not_a_stop_text() -> None:
    assert with_choice(text="", finish_reason="stop", stop_reason=106).finish is EOS
    assert with_choice(text="", finish_reason="stop", stop_reason="</s>").finish is STOP


@pytest.mark.parametrize(
    ("word", "error"),
    [("abort", EngineError), ("insufficient_system_resource", EngineError), ("content_filter", RequestRefused)],
)
def test_answers_that_the_server_gave_up_or_refused(word: str, error: type[EngineError]) -> None:
    with pytest.raises(EngineError, match=f"ended the answer: {word}") as ended:
        with_choice(text="", finish_reason=word)
    assert type(ended.value) is error


def test_a_failure_in_the_middle_is_an_error() -> None:
    with pytest.raises(EngineError, match="the server failed: no"):
        event('{"error": {"code": 503, "message": "no"}}')


@pytest.mark.parametrize("count", [-5, 2**31, 10**400, 1.5, True, "7", [7], None])
def test_an_invalid_count_changes_nothing(count: Any) -> None:
    found = event(json.dumps({"choices": [], "usage": {"completion_tokens": count, "prompt_tokens": count}}))
    assert (found.tokens, found.billed) == (None, None)


USAGES: dict[str, tuple[dict[str, Any], Billed | None]] = {
    "OpenAI": (
        {
            "prompt_tokens": 2006,
            "completion_tokens": 300,
            "total_tokens": 2306,
            "prompt_tokens_details": {"cached_tokens": 1920, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 128},
        },
        Billed(2006, 1920, 300, 128),
    ),
    "vLLM": ({"prompt_tokens": 15, "completion_tokens": 4, "prompt_tokens_details": None}, Billed(15, None, 4, None)),
    "DeepSeek": ({"prompt_tokens": 90, "completion_tokens": 9, "prompt_cache_hit_tokens": 64}, Billed(90, 64, 9, None)),
    "Gemini": ({"prompt_tokens": 21, "completion_tokens": 0, "total_tokens": 81}, Billed(21, None, 60, None)),
    "no prompt": ({"completion_tokens": 7}, Billed(output=7)),
    "odd details": ({"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 3.5, "completion_tokens_details": [1]},
                    Billed(5, None, 7, None)),
    "no counts": ({"total_tokens": 7}, None),
}  # fmt: skip


@pytest.mark.parametrize("name", USAGES)
def test_counts_that_servers_bill(name: str) -> None:
    usage, billed = USAGES[name]
    found = event(json.dumps({"choices": [], "usage": usage}))
    assert (found.billed, found.tokens) == (billed, usage.get("completion_tokens"))


COMPLETION = '{"choices": [{"text": "ab", "logprobs": {"tokens": ["a", "b"], "token_logprobs": [-1, BAD]}}]}'
CHAT = (
    '{"choices": [{"delta": {"content": "ab"}, "logprobs": {"content": '
    '[{"token": "a", "logprob": -1}, {"token": "b", "logprob": BAD}]}}]}'
)


@pytest.mark.parametrize("data", [COMPLETION, CHAT])
@pytest.mark.parametrize("bad", ["null", "NaN", "-1e300", "50"])
def test_one_invalid_log_probability_makes_all_of_them_unknown(data: str, bad: str) -> None:
    found = event(data.replace("BAD", bad))
    assert (found.pieces, found.logprobs) == (("a", "b"), None)
    assert event(data.replace("BAD", "-2")).logprobs == (-1, -2)


@given(st.lists(st.text(alphabet="ab \n字", max_size=20), max_size=5))
def test_words_are_pieces_and_no_text_is_lost(texts: list[str]) -> None:
    reader, whole = Reader(Sampling(1000), None), ""
    for text in texts:
        pieces = reader.chunk(StreamEvent((text,) if text else ())).pieces
        assert all(len(piece.split()) <= 1 for piece in pieces)
        whole += "".join(pieces)
    assert whole == "".join(texts)


def test_tokens_beyond_the_limit_are_cut() -> None:
    reader = Reader(Sampling(2), None)
    chunk = reader.chunk(StreamEvent(("a", "b", "c"), logprobs=(-1.0, -2.0, -3.0)))
    assert (chunk.pieces, chunk.logprobs, chunk.finish) == (("a", "b"), (-1.0, -2.0), LENGTH)


def test_an_endless_answer_is_an_error() -> None:
    with pytest.raises(EngineError, match="characters for 50 tokens"):
        Reader(Sampling(50), None).chunk(StreamEvent(reasoning="a" * 900_000))
