"""The embedded engine among event loops that end, stop, or run at once: nobody waits for ever, nobody is held up."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

pytest.importorskip("torch")

from models import tiny_model
from test_local import context, prompts, say

from orgthink.engines.engine import EngineError
from orgthink.engines.local.engine import LocalEngine
from orgthink.models.qwen3 import Qwen3
from orgthink.record.episode import Sampling

T = TypeVar("T")

LONG = 20_000
"""Tokens of a stream that is still under way when a test goes on."""

THREADED = pytest.mark.parametrize("threaded", [True, False], ids=["thread", "inline"])


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("words"), context=LONG + 1000)


def ends(work: Callable[[], T]) -> T:
    """What it returns. A test that hangs fails, and leaves a thread that does not hold up the others."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), "it waits for ever"
    if errors:
        raise errors[0]
    return results[0]


async def begun(engine: LocalEngine, rows: int = 1, tokens: int = LONG) -> list[asyncio.Task[Any]]:
    """Streams that sample."""
    before = engine.sampled_tokens
    tasks = [asyncio.create_task(say(engine, [5 + i], tokens)) for i in range(rows)]
    while engine.sampled_tokens < before + 5 * rows:
        await asyncio.sleep(0)
    return tasks


@THREADED
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_loop_that_is_closed_in_the_middle_does_not_stop_the_engine(words: Path, threaded: bool) -> None:
    engine, loop = LocalEngine.open(words, threaded=threaded), asyncio.new_event_loop()
    task = loop.run_until_complete(begun(engine))
    loop.close()
    assert len(ends(lambda: asyncio.run(say(engine, [6], 20))).ids) == 20
    asyncio.run(engine.aclose())
    del task


@THREADED
def test_a_loop_that_pauses_does_not_stop_another(words: Path, threaded: bool) -> None:
    engine, loop = LocalEngine.open(words, threaded=threaded), asyncio.new_event_loop()
    (task,) = loop.run_until_complete(begun(engine, tokens=2000))
    other = ends(lambda: asyncio.run(say(engine, [6], 20)))
    sampled = ends(lambda: loop.run_until_complete(asyncio.wait_for(asyncio.shield(task), 60)))
    loop.run_until_complete(engine.aclose())
    loop.close()
    assert (len(other.ids), len(sampled.ids)) == (20, 2000)


@pytest.mark.parametrize("rows", [1, 8])
def test_the_streams_of_a_loop_go_on_when_another_ends(words: Path, rows: int) -> None:
    """With one row the first loop does the steps, with eight the thread."""
    engine, goes = LocalEngine.open(words), threading.Event()

    async def first() -> None:
        tasks = await begun(engine, rows)
        goes.set()
        await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    thread = threading.Thread(target=lambda: asyncio.run(first()), daemon=True)
    thread.start()
    assert goes.wait(60)
    assert len(ends(lambda: asyncio.run(say(engine, [6], 3000))).ids) == 3000
    thread.join(60)
    asyncio.run(engine.aclose())


def test_a_step_that_is_interrupted_ends_its_streams_and_not_the_engine(
    words: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, steps = LocalEngine.open(words), 0
    step = engine._batch.step

    def interrupted() -> Any:
        nonlocal steps
        steps += 1
        if steps == 30:
            raise KeyboardInterrupt
        return step()

    monkeypatch.setattr(engine._batch, "step", interrupted)

    def run() -> None:
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(say(engine, [5], 200))

    ends(run)
    assert len(ends(lambda: asyncio.run(say(engine, [5], 20))).ids) == 20
    asyncio.run(engine.aclose())


def test_when_it_is_closed_from_another_loop_no_more_is_sampled(words: Path) -> None:
    for _ in range(10):
        engine, goes, results = LocalEngine.open(words), threading.Event(), list[Any]()

        async def first(engine: LocalEngine, goes: threading.Event, results: list[Any]) -> None:
            tasks = await begun(engine)
            goes.set()
            results += await asyncio.gather(*tasks, return_exceptions=True)

        thread = threading.Thread(target=asyncio.run, args=(first(engine, goes, results),), daemon=True)
        thread.start()
        assert goes.wait(60)
        ends(lambda engine=engine: asyncio.run(engine.aclose()))
        sampled = engine.sampled_tokens
        thread.join(60)
        assert engine.sampled_tokens == sampled
        assert isinstance(results[0], EngineError) and "closed" in str(results[0])


async def test_long_prompts_are_read_beside_the_event_loop(words: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, here = LocalEngine.open(words), threading.get_ident()
    monkeypatch.setattr("orgthink.engines.local.batch._LIGHT_PREFILL", 64 * engine._batch._size)
    read, on_loop = engine._batch._read, list[tuple[int, bool]]()

    def watched() -> Any:
        on_loop.append((engine._batch._reading.ids.shape[1], threading.get_ident() == here))
        return read()

    monkeypatch.setattr(engine._batch, "_read", watched)
    sampled = await say(engine, [5] * 200, 10)
    await say(engine, [5] * 200 + sampled.ids + [7] * 40, 10)
    assert on_loop == [(200, False), (41, True)]
    await engine.aclose()


@pytest.mark.parametrize("loops", [1, 2])
def test_everybody_gets_his_tokens_while_requests_come_go_and_change_places(words: Path, loops: int) -> None:
    """Rows rise over and fall below those of the event loop hundreds of times, with aborts and new weights."""
    engine, weights = LocalEngine.open(words, slots=6), Qwen3.load(words).to_hf()
    requested = prompts(12, longest=20)
    expected = {tuple(ids): asyncio.run(say(engine, ids, 12)).ids for ids in requested}

    async def one(rng: random.Random) -> None:
        for _ in range(60):
            ids = rng.choice(requested)
            if rng.random() < 0.3:
                stream = engine.stream(context(ids), Sampling(12))
                await anext(stream)
                await stream.aclose()
            elif rng.random() < 0.1:
                await engine.update_weights(weights, "same")
            else:
                assert (await say(engine, ids, 12)).ids == expected[tuple(ids)]
            await asyncio.sleep(rng.choice([0, 0, 0.002]))

    async def many(seed: int) -> None:
        async with asyncio.TaskGroup() as group:
            for n in range(8 // loops):
                group.create_task(one(random.Random(10 * seed + n)))

    threads: list[threading.Thread] = []
    errors: list[BaseException] = []

    def run(seed: int) -> None:
        try:
            asyncio.run(many(seed))
        except BaseException as error:
            errors.append(error)

    for seed in range(loops):
        threads.append(threading.Thread(target=run, args=(seed,), daemon=True))
        threads[-1].start()
    for thread in threads:
        thread.join(60)
    assert not errors and not any(thread.is_alive() for thread in threads), errors or "it waits for ever"
    assert not engine._batch.busy and not engine._consumers.open
    asyncio.run(engine.aclose())
