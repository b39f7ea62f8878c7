"""Contexts that are inherited, results that are pushed and workers that persist, with a real model that calls tools.

    export TOOL_CALLING_MODEL=$(python tests/engines/qwen_coder.py)
    pytest -s -m thorough tests/engines/test_tool_calling_model.py

The model decodes in this process, by its own tokenizer and chat template, greedy in float32. The organizer's calls are
given (`given_calls.py`): by itself Qwen2.5-Coder-0.5B-Instruct forks, and does not wait for the result. What it writes
is not asserted: as a worker that inherits, it repeats the response in which it reads its subtask.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from given_calls import DONE, NAME, GivenCalls
from longest_path import longest_path
from models import END

from orgthink.grammar.toolcall import ToolCall, read_reply, read_responses
from orgthink.measure.latency import critical_path
from orgthink.models.hub import resolve
from orgthink.models.tokenizer import Tokenizer
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.record.episode import Episode, Origin, Problem, Sampling, Span
from orgthink.record.episode_json import require_integrity
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits

pytestmark = pytest.mark.thorough

MODEL = os.environ.get("TOOL_CALLING_MODEL")
FORKS = "Let a worker compute 14 * 17"
QUESTIONS = {
    "inherit": f"{FORKS}, and join it.",
    "push": f"{FORKS}, and ask for the status until its result is shown.",
    "persistent": f"{FORKS}, join it, tell it to add 5 to its result, and join it again.",
}
FORK, JOIN = ToolCall("fork", {"task": "Compute 14 * 17."}), ToolCall("join", {"id": 1})
CALLS = {
    "inherit": (FORK, JOIN),
    "push": (FORK, ToolCall("status", {})),
    "persistent": (FORK, JOIN, ToolCall("tell", {"id": 1, "task": "Add 5 to your result."}), JOIN),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "inherit": {"worker_context": "inherit"},
    "push": {"delivery": "push"},
    "persistent": {"workers": "persistent"},
}


@pytest.fixture(scope="module")
def folder() -> Path:
    if MODEL is None:
        pytest.skip("needs a model that calls tools: TOOL_CALLING_MODEL=$(python tests/engines/qwen_coder.py)")
    return resolve(MODEL) or Path(MODEL)


@pytest.fixture(scope="module")
def played(folder: Path) -> tuple[dict[str, Episode], int]:
    return asyncio.run(play(folder))


async def play(folder: Path) -> tuple[dict[str, Episode], int]:
    """An episode of each setting, all at once, and the prompt tokens that were computed for them."""
    engine = GivenCalls.open(folder, dtype=torch.float32, slots=8)
    assert isinstance(engine, GivenCalls) and engine.native_calls
    engine.plans = {QUESTIONS[setting]: calls for setting, calls in CALLS.items()}

    async def one(setting: str) -> Episode:
        organization = AsyncThink(prompts=NAME, protocol="auto", tolerant=True, **SETTINGS[setting])
        backing, limits = Backing(engine, Sampling(32, 0.0)), Limits(2, turns=20)
        episode = await attempt(organization, Problem(setting, "calls", QUESTIONS[setting]), backing, limits=limits)
        print(readable(episode), flush=True)
        require_integrity(episode)
        assert critical_path(episode) == longest_path(episode)
        return episode

    found = await asyncio.gather(*map(one, SETTINGS))
    await engine.aclose()
    return dict(zip(SETTINGS, found, strict=True)), engine.counters.computed_prompt_tokens


def readable(episode: Episode) -> str:
    """What the model did, for `pytest -s`."""
    lines = [f"=== {episode.problem.id} -> {episode.answer} {[fault.kind for fault in episode.format_faults]}"]
    for trace in episode.traces:
        lines.append(f"--- {trace.agent} {trace.stop} {trace.status}")
        lines += [f"[{span.origin} {span.tokens} {span.source or ''}] {span.text}" for span in trace.spans[1:]]
    return "\n".join(lines)


def ids(*spans: Span) -> list[int]:
    return [i for span in spans for i in span.token_ids or ()]


def calls(episode: Episode) -> list[str | None]:
    """Names of the organizer's calls, as the grammar reads them in what its model wrote."""
    texts = [span.text for span in episode.root.spans if span.origin is Origin.SAMPLED]
    return [call.name for text in texts for call in read_reply(text).calls if isinstance(call, ToolCall)]


def test_the_template_shows_the_tools_and_frames_every_response(folder: Path, played: Any) -> None:
    tokenizer = Tokenizer(folder)
    for setting, episode in played[0].items():
        prompt, *spans = episode.root.spans
        assert ('"name": "tell"' in prompt.text) == (setting == "persistent") and '"name": "fork"' in prompt.text
        for span in (span for trace in episode.traces for span in trace.spans):
            assert tokenizer.decode(span.token_ids or ()).removesuffix(END) == span.text.removesuffix(END)
        for span in spans:
            if span.origin is Origin.INJECTED:
                assert "user\n<tool_response>\n" in span.text and read_responses(span.text)
        assert {fault.kind for fault in episode.format_faults} <= {"NO_ANSWER", "TRUNCATED", "UNKNOWN_TELL"}


def test_an_inherited_context_is_not_read_again(played: Any) -> None:
    episodes, computed = played
    root, worker = episodes["inherit"].traces
    *inherited, note, own = worker.spans
    assert calls(episodes["inherit"])[:2] == ["fork", "join"]
    assert ids(*inherited) == ids(*root.spans[:2]) and "You are now the worker" in note.text
    assert own.origin is Origin.SAMPLED and own.text.strip()
    assert [join.child for join in root.joins] == [worker.agent]
    traces = [trace for episode in episodes.values() for trace in episode.traces]
    read = sum(span.tokens for trace in traces for span in trace.spans if not span.decoded)
    shared = sum(trace.spans[0].tokens for trace in traces if any(s.decoded and s.source for s in trace.spans))
    given = sum(span.tokens for trace in traces for span in trace.spans if span.decoded and not span.source)
    assert computed <= 1.1 * (read - shared) + given, "a given call is read once"


def test_a_result_is_pushed(played: Any) -> None:
    episode = played[0]["push"]
    root, worker = episode.traces
    assert set(calls(episode)[1:]) == {"status"} and calls(episode)[0] == "fork"
    (join,) = root.joins
    pushed = next(span for span in root.spans if DONE in span.text)
    assert join.child == worker.agent == pushed.source and pushed.origin is Origin.INJECTED
    assert worker.returned and worker.status == "ok" and (pushed.start or 0) >= worker.end


def test_a_worker_is_told_something_and_goes_on(played: Any) -> None:
    episode = played[0]["persistent"]
    root, first, again, *_ = episode.traces  # after the given calls it makes others by itself
    assert calls(episode)[:4] == ["fork", "join", "tell", "join"]
    assert [join.child for join in root.joins[:2]] == [first.agent, again.agent]
    assert ids(*again.spans)[: len(ids(*first.spans))] == ids(*first.spans)
    assert "<|im_start|>user\nNext subtask: " in again.text and first.returned and again.returned
