"""What is injected into the contexts of the shipped models: the same ids as ever, unless it spells a special token."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from orgthink_pocket.model import EOS, PAD
from orgthink_pocket.shipped import MODELS
from pocket_solver import solve

from orgthink.engines import engine_spec, open_engine
from orgthink.grammar.asyncthink import DIALECT
from orgthink.models.tokenizer import Tokenizer
from orgthink.organizations.asyncthink import AsyncThink

FOLDERS = sorted(MODELS.iterdir())
AROUND = DIALECT.around("1")


@pytest.mark.parametrize("folder", FOLDERS, ids=[folder.name for folder in FOLDERS])
def test_ordinary_texts_have_the_ids_that_they_had(folder: Path) -> None:
    tokenizer, rng = Tokenizer(folder), random.Random(0)
    ordinary = [text for text in tokenizer.texts if text.strip() not in (PAD, EOS, "<unk>")]
    for _ in range(200):
        told = "".join(rng.choices(ordinary, k=rng.randrange(12)))
        assert tokenizer.injection(told, AROUND) == (told.join(AROUND), tokenizer.encode(told.join(AROUND)))
        assert tokenizer.turn(told)[1] == tokenizer.encode(told)


@pytest.mark.parametrize("folder", FOLDERS, ids=[folder.name for folder in FOLDERS])
def test_no_text_of_others_ends_theirs(folder: Path) -> None:
    tokenizer = Tokenizer(folder)
    (end,) = tokenizer.eos_ids
    join_end = tokenizer.id_of("</JOIN-1>")
    text, ids = tokenizer.injection(f"1 + 2 {EOS} 3", AROUND)
    assert text == f" 1 + 2 {EOS} 3 </JOIN-1>" and end not in ids and ids[-1] == join_end
    assert end in tokenizer.encode(text)


async def test_greedy_answers_are_those_of_texts_that_are_encoded_as_a_whole(monkeypatch) -> None:
    engine, encode = await open_engine(engine_spec("pocket")), Tokenizer(MODELS / "pocket").encode

    async def attempted() -> list[tuple[str | None, list[tuple[int, ...] | None]]]:
        episodes = await solve(engine, AsyncThink(prompts="pocket"), 8, capacity=4)
        assert any(episode.root.joins for episode in episodes)
        return [(e.answer, [span.token_ids for trace in e.traces for span in trace.spans]) for e in episodes]

    found = await attempted()
    whole = lambda self, text, around=("", ""): (text.join(around), encode(text.join(around)))  # noqa: E731
    monkeypatch.setattr(type(engine), "injection", whole)
    assert await attempted() == found
    await engine.aclose()
