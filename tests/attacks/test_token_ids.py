"""Token ids of a server, or of a model that samples bytes: each list of ids is a text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from attacks.catalogue import Attack, each
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, normalizers

from orgthink.engines.endpoint import response
from orgthink.engines.engine import FinishReason
from orgthink.models.tokenizer import PieceStream, Tokenizer
from orgthink.record.episode import Sampling

BOUND = "Ids are decoded up to what was asked for, each in constant time."

NOTHING = 2**31 - 1
"""An id that stands for no token."""

WORDS = ("▁so", "▁", "<", ">", "A", "N", "S", "W", "E", "R", "/", "3", "c")


def byte(number: int) -> int:
    return 3 + number


IDS = {text: byte(256) + i for i, text in enumerate(WORDS)}


@pytest.fixture
def tokenizer(tmp_path: Path) -> Tokenizer:
    """Like SentencePiece: what is no token is bytes, and a text begins without its space."""
    vocabulary = {text: i for i, text in enumerate(("<unk>", "<s>", "</s>"))}
    vocabulary |= {f"<0x{i:02X}>": byte(i) for i in range(256)} | IDS
    library = Library(models.BPE(vocabulary, [], byte_fallback=True, unk_token="<unk>"))
    library.normalizer = normalizers.Replace(" ", "▁")
    library.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    library.add_special_tokens(["<unk>", "<s>", "</s>"])
    library.save(str(tmp_path / "tokenizer.json"))
    return Tokenizer(tmp_path)


def answer(*ids: int, finish: str = "stop") -> str:
    return json.dumps({"choices": [{"text": "", "token_ids": ids, "finish_reason": finish}]})


@each(
    Attack("60,000 ids that are none, of 16 that were asked for", BOUND, "16 tokens", [NOTHING] * 60_000),
    Attack("60,000 bytes that begin nothing, of 16 that were asked for", BOUND, "16 tokens", [byte(0xFF)] * 60_000),
)
def test_more_ids_than_were_asked_for(attack: Attack, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []
    piece = PieceStream.piece
    monkeypatch.setattr(PieceStream, "piece", lambda self, token: decoded.append(token) or piece(self, token))
    reader = response.Reader(Sampling(16), tokenizer)
    chunk = reader.chunk(response.event(answer(*attack.given)))
    assert (len(chunk.token_ids or ()), len(chunk.pieces), chunk.finish) == (16, 16, FinishReason.LENGTH)
    assert len(decoded) == 17
