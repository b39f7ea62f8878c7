"""Who waits for a slot: agents that go on before agents that begin, and each kind in order of arrival."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")

from models import tiny_model

from orgthink.engines.engine import Context
from orgthink.engines.local.engine import LocalEngine
from orgthink.engines.local.waiting import Waiting
from orgthink.episode import Origin, Sampling, Span

ARRIVALS = st.lists(st.booleans(), max_size=30)


def queued(arrivals: Sequence[bool]) -> Waiting[tuple[int, bool]]:
    waiting: Waiting[tuple[int, bool]] = Waiting(lambda request: request[1])
    for number, continues in enumerate(arrivals):
        waiting.add([(number, continues)])
    return waiting


@given(ARRIVALS)
def test_who_goes_on_is_taken_first_and_each_kind_in_order(arrivals: list[bool]) -> None:
    waiting = queued(arrivals)
    expected = sorted(enumerate(arrivals), key=lambda request: (not request[1], request[0]))
    assert list(waiting) == expected and len(waiting) == len(arrivals)
    assert [waiting.take() for _ in expected] == expected and len(waiting) == 0


@given(ARRIVALS, st.integers(0, 30), st.integers(0, 2))
def test_who_is_put_back_is_next_again_and_who_is_gone_is_not_taken(arrivals: list[bool], n: int, odd: int) -> None:
    waiting = queued(arrivals)
    before = list(waiting)
    waiting.put_back([waiting.take() for _ in range(min(n, len(before)))])
    assert list(waiting) == before
    waiting.remove(lambda request: request[0] % 3 == odd)
    assert list(waiting) == [request for request in before if request[0] % 3 != odd]
    waiting.clear()
    assert list(waiting) == []


@pytest.mark.parametrize("threaded", [False, True])
async def test_an_agent_that_goes_on_overtakes_those_that_begin(tmp_path: Path, threaded: bool) -> None:
    engine, ended = LocalEngine.open(tiny_model(tmp_path, context=200), slots=1, threaded=threaded), list[str]()

    async def sample(name: str, *spans: Span) -> None:
        async for _ in engine.stream(Context((), list(spans)), Sampling(40, seed=0)):
            pass
        ended.append(name)

    prompts = [Span(Origin.PROMPT, "", 1, token_ids=(number,)) for number in (5, 6, 7, 8)]
    more = Span(Origin.SAMPLED, "", 1, token_ids=(9,))
    names = ("decodes", "begins", "begins, too")
    tasks = [asyncio.create_task(sample(name, prompt)) for name, prompt in zip(names, prompts, strict=False)]
    while engine.sampled_tokens == 0:
        await asyncio.sleep(0)
    await asyncio.gather(*tasks, sample("goes on", prompts[3], more))
    assert ended == ["decodes", "goes on", "begins", "begins, too"]
    await engine.aclose()
