"""A tiny model that has learned in two seconds to work in every role on the task `echo`, now rightly and now wrongly.

So real samplers and trainers have episodes with forks, verdicts and unequal rewards, without a shipped model.
"""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from echo import ECHO, LARGEST
from engines.models import tiny_model
from terse import TERSE

from orgthink.models.decoder import Decoder
from orgthink.models.tokenizer import Tokenizer
from orgthink.organizations.prompts import prompt

WORDS = ("of", "verifier", "corrector", "solution", "report", "correctness", ":", "correct", "wrong", "</think>", "hm")
"""Beside those that every tiny model knows."""
SHAPE = {"hidden": 32, "layers": 2, "heads": (2, 1), "head_dim": 16, "intermediate": 64, "context": 256}
LESSONS, STEPS, BATCH, RATE = 1024, 200, 32, 1e-2
RIGHT = 0.6
"""How often an answer that is taught is the right one."""

Said = tuple[str, bool]
"""A text of a trace, and whether the model says it; else it is shown."""


TINY = Path(tempfile.gettempdir()) / f"orgthink-tiny-policy-{os.getpid()}"
"""The model's folder, for tests that use the fixture `tiny_policy`."""


def write_tiny_policy() -> None:
    """A random model that imitates lessons."""
    tiny_model(TINY, "words", words=WORDS, **SHAPE)
    tokenizer, model = Tokenizer(TINY), Decoder.load(TINY)
    rng = random.Random(0)
    rows = [_row(tokenizer, _lesson(rng)) for _ in range(LESSONS)]
    width = max(map(len, rows))
    padded = torch.tensor([row + [(0, -100)] * (width - len(row)) for row in rows])
    optimizer = torch.optim.AdamW(model.parameters(), RATE)
    generator = torch.Generator().manual_seed(0)
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = RATE * min(1, 2 * (STEPS - step) / STEPS)
        batch = padded[torch.randint(LESSONS, (BATCH,), generator=generator)]
        logits = model(batch[:, :-1, 0])
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:, 1].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.save(TINY)


def _row(tokenizer: Tokenizer, texts: list[Said]) -> list[tuple[int, int]]:
    """Each token's id, and the same again or -100 where nothing is learned."""
    (eos,) = tokenizer.eos_ids
    row = [(i, i if learned else -100) for text, learned in texts for i in tokenizer.encode(text)]
    return [*row, (eos, eos)]


def _lesson(rng: random.Random) -> list[Said]:
    """A trace of one role."""
    problem = ECHO.problem(rng.randint(0, LARGEST), rng.randint(0, LARGEST))
    right = problem.data["answer"]
    role = rng.choice(("sequential", "organizer", "organizer", "worker", "verifier", "corrector"))
    shown, new = _answer(right, rng), _answer(right, rng)
    values = {"solution": f"<ANSWER> {shown} </ANSWER>", "report": "hm", "query": str(right)}
    (asked,) = prompt(TERSE, role, problem, capacity=rng.randint(2, 4), **values)
    opening: Said = (asked.content, False)
    answer = f" <ANSWER> {new} </ANSWER>"
    match role:
        case "organizer" if rng.random() < 0.7:
            forked = f" <FORK-1> {right} </FORK-1> hm <JOIN-1>"
            return [opening, (forked, True), (f" {shown} </JOIN-1>", False), (f" <ANSWER> {shown} </ANSWER>", True)]
        case "worker":
            return [opening, (f" hm <RETURN> {new} </RETURN>", True)]
        case "verifier":
            honest = rng.random() < 0.7
            verdict = "correct" if (shown == right) is honest else "wrong"
            return [opening, (f" </think> hm correctness : {verdict}", True)]
        case "organizer":
            return [opening, (answer, True)]
    return [opening, (f" </think>{answer}", True)]


def _answer(right: int, rng: random.Random) -> int:
    return right if rng.random() < RIGHT else (right + 1) % (LARGEST + 1)
