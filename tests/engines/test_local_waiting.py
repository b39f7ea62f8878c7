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
from orgthink.record.episode import Origin, Sampling, Span

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


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 8)), max_size=30), st.integers(1, 4), st.integers(0, 30))
def test_only_agents_that_came_before_overtake_one_that_begins(
    agents: list[tuple[int, int]], slots: int, flood: int
) -> None:
    """Agents arrive at a time with a number of requests, and each request takes a step of a slot. Behind them come more
    and more agents, each of which would go on for ever: they delay nobody."""
    arrivals = sorted((at, number, requests) for number, (at, requests) in enumerate(agents))
    arrivals += [(21 + i, len(agents) + i, 10**9) for i in range(flood)]
    place = {number: n for n, (_, number, _) in enumerate(arrivals)}
    waiting: Waiting[tuple[int, int, int]] = Waiting(lambda request: request[2] > 0)  # agent, left, served
    began: dict[int, int] = {}
    work = sum(requests for _, requests in agents)
    for now in range(22 + work):
        waiting.add((number, requests, 0) for at, number, requests in arrivals if at == now)
        served = [waiting.take() for _ in range(min(slots, len(waiting)))]
        for number, _, done in served:
            if done == 0:
                began[number] = now
                assert all(other in began for other in place if place[other] < place[number]), "it has overtaken one"
        waiting.add((number, left - 1, done + 1) for number, left, done in served if left > 1)
    for at, number, _ in arrivals[: len(agents)]:
        before = sum(requests for _, other, requests in arrivals if place[other] < place[number])
        assert began[number] - at <= before, "it has waited for more than the work of those who came before"


def test_text_that_was_injected_at_once_is_no_work_that_goes_on() -> None:
    """Else agents that begin so would overtake those that begin otherwise, without end."""
    prompt, injected = Span(Origin.PROMPT, "a", 1, (1,)), Span(Origin.INJECTED, "b", 1, (2,))
    assert not Context((), [prompt, injected]).begun
    assert Context((), [prompt, Span(Origin.SAMPLED, "b", 1, (2,)), injected]).begun


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
