"""Token ids of a server, or of a model that samples bytes: each list of ids is a text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from attacks.catalogue import Attack, each
from attacks.hostile import evaluated
from loopback import Play, sends
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, normalizers

from orgthink.engines.endpoint import response
from orgthink.engines.engine import FinishReason
from orgthink.models.tokenizer import PieceStream, Tokenizer
from orgthink.record.episode import Sampling

ANY = "Any ids are a text: bytes that are no character end no episode."
BOUND = "Ids are decoded up to what was asked for, each in constant time."

NOTHING = 2**31 - 1
"""An id that stands for no token."""

WORDS = ("▁so", "▁", "<", ">", "A", "N", "S", "W", "E", "R", "/", "3", "c")


def byte(number: int) -> int:
    return 3 + number


IDS = {text: byte(256) + i for i, text in enumerate(WORDS)}
SOLVED = [IDS[text] for text in ("▁so", "▁", *"<ANSWER>", "▁", "3", "▁", *"</ANSWER>")]


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


def replies(*ids: int) -> Play:
    return sends(*[json.dumps({"choices": [{"text": "", "token_ids": [one]}]}) for one in ids], answer(2))


C = IDS["c"]


@each(
    Attack("a comma as a byte, a byte that begins nothing, and a letter", ANY, "`,�c`", [byte(0x2C), byte(0xFF), C]),
    Attack("half a character, and a letter", ANY, "`c�c`", [C, byte(0xC3), C]),
    Attack("a character, half of another one, and a letter", ANY, "`é�c`", [byte(0xC3), byte(0xA9), byte(0xC3), C]),
    Attack("an id that is none between two letters", ANY, "`cc`", [C, NOTHING, C]),
    Attack("an id that is none, within a character", ANY, "`cé`", [C, byte(0xC3), NOTHING, byte(0xA9)]),
    Attack("sixteen bytes that begin nothing", ANY, f"`{'�' * 16}`", [byte(0xFF)] * 16),
)
async def test_bytes_that_are_no_character(attack: Attack, tokenizer: Tokenizer, tmp_path: Path) -> None:
    assert "".join(map(tokenizer.pieces().piece, attack.given)) == attack.outcome.strip("`")
    plays = replies(*SOLVED, *attack.given), replies(*SOLVED), replies(*SOLVED)
    episodes = await evaluated(tmp_path / "run", *plays, mode="tokens", tokenizer=tokenizer)
    assert [(episode.answer, episode.error) for episode in episodes.values()] == [("3", None)] * 3


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
