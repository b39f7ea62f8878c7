"""Contexts that are inherited, results that are pushed and workers that persist, with the real vLLM in this
process. `make test-vllm`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NamedTuple

import pytest

pytest.importorskip("vllm")

from longest_path import longest_path
from taught_settings import FOUND, NOTE, SETTINGS, VALUE, played, taught_settings

from orgthink.engines.vllm import VllmEngine
from orgthink.measure.latency import critical_path
from orgthink.record.episode import Episode, Origin, Span
from orgthink.record.episode_json import require_integrity
from orgthink.training.rows import row_of

pytestmark = pytest.mark.vllm

BLOCK = 32
"""Tokens of a block of vLLM's cache."""


class Played(NamedTuple):
    """An episode, and what vLLM counted meanwhile."""

    episode: Episode
    computed: int
    """Prompt tokens that it computed."""
    reused: int
    """Prompt tokens from its cache."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return taught_settings(tmp_path_factory.mktemp("models") / "taught")


async def in_process(folder: Path) -> dict[str, Played]:
    engine = await VllmEngine.open(folder, kv_cache_memory_bytes=64 << 20)
    found, counters = dict[str, Played](), engine.counters
    for setting in SETTINGS:
        before = counters.computed_prompt_tokens, counters.reused_prompt_tokens
        episode = await played(engine, setting)
        after = counters.computed_prompt_tokens, counters.reused_prompt_tokens
        found[setting] = Played(episode, after[0] - before[0], after[1] - before[1])
    await engine.aclose()
    return found


@pytest.fixture(scope="module")
def episodes(folder: Path) -> dict[str, Played]:
    found = asyncio.run(in_process(folder))
    for one in found.values():
        require_integrity(one.episode)
        assert not one.episode.format_faults and critical_path(one.episode) == longest_path(one.episode)
        for trace in one.episode.traces:
            assert trace.steps == sum(row_of(trace).trained)
    return found


def ids(*spans: Span) -> list[int]:
    return [i for span in spans for i in span.token_ids or ()]


def test_an_inherited_context_comes_from_the_cache_of_vllm(episodes: dict[str, Played]) -> None:
    """Computed ÷ injected: the organizer's prompt, what its worker is told and the result are computed, no more."""
    episode, computed, reused = episodes["inherit"]
    root, worker = episode.traces
    *inherited, note, own = worker.spans
    begun = ids(*inherited)
    assert begun == ids(*root.spans)[: len(begun)] and len(begun) == root.spans[0].tokens + root.forks[0].at
    assert NOTE in note.text and own.text.split() == ["hm", "<RETURN>", FOUND, "</RETURN>"] and episode.answer == FOUND
    (result,) = (span.tokens for span in root.spans if span.origin is Origin.INJECTED)
    assert (computed - root.spans[0].tokens) / (note.tokens + result) <= 1.1, (computed, reused)
    assert reused == 2 * (len(begun) // BLOCK * BLOCK), "the worker's and, at the join, the organizer's"


def test_a_pushed_result_interrupts_what_vllm_decodes(episodes: dict[str, Played]) -> None:
    episode, *_ = episodes["push"]
    root, worker = episode.traces
    _, before, result, after = root.spans
    assert (episode.answer, worker.returned) == (FOUND, FOUND)
    assert result.text.split() == ["<JOIN-1>", FOUND, "</JOIN-1>"] and result.source == worker.agent
    assert set(before.text.split()[4:]) == {"w"} and "JOIN" not in before.text + after.text
    (join,) = root.joins
    assert join.at == before.tokens and (result.start or 0.0) >= worker.end
    assert before.tokens - root.forks[0].at >= worker.steps, "the organizer decoded on while its worker did"


def test_a_worker_that_persists_goes_on_at_vllm(episodes: dict[str, Played]) -> None:
    episode, *_ = episodes["persistent"]
    root, first, again = episode.traces
    assert (episode.answer, first.returned, again.returned) == (VALUE, FOUND, VALUE)
    assert ids(*again.spans)[: len(ids(*first.spans))] == ids(*first.spans)
    assert [span.source for span in again.spans] == [None, first.agent, root.agent, None]
    assert [join.child for join in root.joins] == [first.agent, again.agent]
