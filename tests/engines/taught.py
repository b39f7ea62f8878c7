"""A tiny model that knows one AsyncThink episode by heart, so that real engines can be taken through fork and join."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import torch
import torch.nn.functional as F
from models import tiny_model
from terse import TERSE

from orgthink.grammar.asyncthink import DIALECT
from orgthink.models.decoder import Decoder
from orgthink.models.tokenizer import Tokenizer
from orgthink.organizations.prompts import prompt
from orgthink.record.episode import Message, Problem

TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
PROBLEM = Problem("p", "countdown", "3 5 7 = 8")
QUERY = "add 3 5"
BEFORE = f" so <FORK-1> {QUERY} </FORK-1> hm <JOIN-1>"
FOUND = "3 + 5"
AFTER = f" fine <ANSWER> {FOUND} </ANSWER>"
WORKER = f" it is <RETURN> {FOUND} </RETURN>"
SHAPE = {"hidden": 64, "heads": (2, 1), "head_dim": 32, "intermediate": 128, "context": 1024}
"""vLLM's attention takes heads of 32 and more."""


def vllm_model(folder: Path, *, seed: int = 0) -> Path:
    """A random model that vLLM opens, in whose text most tags span several tokens; with a chat template."""
    tiny_model(folder, "bytes", seed=seed, **SHAPE)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


def taught_model(folder: Path) -> Path:
    """Solves `PROBLEM` with one worker, greedy, when the join goes on in the text and when it is a user's turn."""
    return teach(vllm_model(folder), _lessons(Tokenizer(folder)))


def teach(folder: Path, lessons: list[tuple[list[int], list[int]]], *, width: int = 1024) -> Path:
    """Train until the model says each lesson by heart: ids of a context, and of these what it says, or -100. A batch
    has the lessons with lengths between two multiples of `width`."""
    torch.manual_seed(0)
    model = Decoder.load(folder)
    batches = [
        _padded(list(part)) for _, part in groupby(sorted(lessons, key=_length), lambda one: _length(one) // width)
    ]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    for step in range(2000):
        optimizer.zero_grad()
        known = step % 20 == 0
        for ids, target in batches:
            logits = model(ids)
            known = known and bool(((logits.argmax(-1) == target) | (target < 0)).all())
            F.cross_entropy(logits.flatten(0, 1), target.flatten()).backward()
        if known:
            model.save(folder)
            return folder
        optimizer.step()
    raise AssertionError("the lessons were not learnt")


def _length(lesson: tuple[list[int], list[int]]) -> int:
    return len(lesson[0])


def _padded(lessons: list[tuple[list[int], list[int]]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids of lessons of about one length, and what follows each of them."""
    width = max(map(_length, lessons))
    ids = torch.tensor([ids + [0] * (width - len(ids)) for ids, _ in lessons])
    return ids, torch.tensor([target[1:] + [-100] * (width - len(target) + 1) for _, target in lessons])


def _lessons(tokenizer: Tokenizer) -> list[tuple[list[int], list[int]]]:
    """The ids of each context, and of these the ones that the model says; -100 for the others."""
    injected = DIALECT.injection("1", FOUND)
    organizer = prompt(TERSE, "organizer", PROBLEM, capacity=2)
    worker = prompt(TERSE, "worker", PROBLEM, query=QUERY)
    turns = (*organizer, Message("assistant", BEFORE), Message("user", injected))
    lessons = []
    for messages, *texts in [(organizer, BEFORE, injected, AFTER), (worker, WORKER), (turns, AFTER)]:
        ids = list(tokenizer.prompt(messages).token_ids or ())
        target = [-100] * len(ids)
        for text in texts:
            said = list(tokenizer.encode(text))
            ids += said
            target += [-100] * len(said) if text is injected else said
        lessons.append((ids, target))
    return lessons
