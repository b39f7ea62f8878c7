"""The shipped model says the same on `local` and on the real vLLM."""

from __future__ import annotations

import pytest
from pocket_solver import solve

from orgthink.engines import engine_spec, open_engine
from orgthink.organizations.sequential import Sequential

pytestmark = pytest.mark.vllm
PROBLEMS = 200


async def test_greedy_answers_are_the_same_on_local_and_vllm():
    answers = []
    for model in ("pocket-base", "vllm:pocket-base"):
        engine = await open_engine(engine_spec(model))
        episodes = await solve(engine, Sequential(prompts="pocket"), PROBLEMS)
        answers.append([episode.answer for episode in episodes])
        await engine.aclose()
    assert None not in answers[0]
    assert sum(a == b for a, b in zip(*answers, strict=True)) / PROBLEMS >= 0.99
