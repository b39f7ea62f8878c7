"""A policy that writes what it is told, with the log-probabilities that its weights really give that."""

from __future__ import annotations

import shutil
from collections.abc import AsyncGenerator, Callable, Mapping
from itertools import takewhile
from pathlib import Path
from random import Random

import torch
from safetensors.torch import save_file

from orgthink.engines.engine import Chunk, Context, Engine, FinishReason
from orgthink.engines.local.sampling import GAMMA
from orgthink.models.tokenizer import Tokenizer
from orgthink.models.trainable import open_trainable
from orgthink.record.episode import Origin, Sampling

Writer = Callable[[str, Random], str]
"""What an agent that saw a text says next, by luck."""


class Dictated(Engine):
    """Writes what `write` says, and says how probable its weights found each token."""

    native_calls = False

    def __init__(self, folder: Path, copy: Path, write: Writer) -> None:
        self.model, self.version, self.folder, self.copy, self.write = "dictated", "0", folder, copy, write
        self.tokenizer, self.weights = Tokenizer(folder), open_trainable(folder)
        self.prompt = self.tokenizer.prompt

    def injection(self, text: str, around: tuple[str, str] = ("", "")) -> tuple[str, tuple[int, ...]]:
        return self.tokenizer.injection(text, around)

    def turn(self, context: Context, text: str) -> tuple[str, tuple[int, ...]]:
        return self.tokenizer.turn(text, context)

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        said = list(takewhile(lambda span: span.origin is Origin.SAMPLED, reversed(context.spans)))
        there, seen = sum(span.tokens for span in said), context.spans[: len(context.spans) - len(said)]
        assert sampling.seed is not None
        luck = Random((sampling.seed - there * GAMMA) % 2**64)
        output = self.tokenizer.encode(self.write("".join(span.text for span in seen), luck))
        (eos,) = self.tokenizer.eos_ids
        new = (*output, eos)[there : there + sampling.max_tokens]
        ids = torch.tensor([[*context.token_ids, *new]])
        with torch.no_grad():
            logits = self.weights.logits(self.weights.hidden(ids))[0, -len(new) - 1 : -1]
        found = torch.log_softmax(logits / sampling.temperature, -1)[range(len(new)), new]
        pieces = tuple("" if i == eos else self.tokenizer.decode([i]) for i in new)
        finish = FinishReason.EOS if new[-1] == eos else FinishReason.LENGTH
        yield Chunk(pieces, new, tuple(found.tolist()), finish, self.version)

    async def update_weights(self, weights: Mapping[str, torch.Tensor], version: str) -> None:
        """As if by a file, so that weights under any other names would not open."""
        shutil.copytree(self.folder, self.copy, dirs_exist_ok=True)
        save_file({name: weight.contiguous() for name, weight in weights.items()}, self.copy / "model.safetensors")
        self.weights, self.version = open_trainable(self.copy), version

    async def aclose(self) -> None:
        pass
