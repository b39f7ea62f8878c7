"""Parallel paths within one text: what each path reads, what the thinker reads after a block, and when it ends."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from orgthink_arena.organizations.parallel_paths import ParallelPaths
from orgthink_arena.transcripts import DIALECTS
from terse import TERSE

from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.measure.latency import critical_path
from orgthink.record.episode import Episode, FormatError, Origin, Problem, Sampling
from orgthink.record.episode_json import line_of
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_virtual

PROBLEM = Problem("p", "sums", "sum 3 + 4")


def played(organization: ParallelPaths, turns: Sequence[Turn], limits: Limits | None = None) -> Episode:
    engine = ScriptedEngine(turns)
    limits = limits or Limits(capacity=4)
    episode = run_virtual(attempt(organization, PROBLEM, Backing(engine, Sampling(100)), limits=limits))
    run_virtual(engine.aclose())
    line_of(episode)
    return episode


R1 = [
    Turn("first <Parallel> too far", when="sequential"),
    Turn("seven it is</Path> too far"),
    Turn("eight</Path>"),
    Turn("seven </Summary> so \\boxed{7}", when="</Parallel>\n<Summary>"),
]


def test_paths_go_on_from_the_same_text_at_the_same_time_and_enter_it_together() -> None:
    episode = played(ParallelPaths(prompts=TERSE), R1)
    root, *paths = episode.traces
    assert [path.role for path in paths] == ["path", "path"] and episode.answer == "7"
    seen = "".join(span.text for span in root.spans[:2])
    assert ["".join(span.text for span in path.spans[:3]) for path in paths] == [f"{seen}<Path>"] * 2
    assert root.text == (
        "first <Parallel><Path>seven it is</Path><Path>eight</Path></Parallel>\n<Summary>seven </Summary> so \\boxed{7}"
    )
    assert [span.source for span in root.spans if span.origin is Origin.INJECTED][:2] == [path.agent for path in paths]
    assert critical_path(episode) == root.steps + max(path.steps for path in paths)


def test_the_text_of_an_episode_is_read_as_a_transcript_of_the_format() -> None:
    episode = played(ParallelPaths(prompts=TERSE), R1)
    read = DIALECTS["parallel-r1"].episode(episode.root.text, PROBLEM, "read")
    assert [edge.kind for edge in read.root.edges] == [edge.kind for edge in episode.root.edges]
    written = [
        "".join(s.text for s in one.spans if s.origin is Origin.SAMPLED) for one in (*episode.traces, *read.traces)
    ]
    assert written[:3] == written[3:]


def test_a_plan_gives_each_path_a_number() -> None:
    turns = [
        Turn("<Parallel><Outlines><Outline>1: add</Outline><Outline>2: count</Outline></Outlines>", when="sequential"),
        Turn(" seven\n</Thread>", when="<Thread>\n1:"),
        Turn(" five six seven\n</Thread>", when="<Thread>\n2:"),
        Turn("\\boxed{7}", when="</Parallel>"),
    ]
    episode = played(ParallelPaths("threadweaver", TERSE), turns)
    assert [trace.agent for trace in episode.traces] == ["thinker", "thinker/1", "thinker/2"]
    assert "\n<Thread>\n2: five six seven\n</Thread>\n</Parallel>\n" in episode.root.text and episode.answer == "7"


def test_the_tag_of_a_block_too_many_is_text() -> None:
    turns = [*R1[:3], Turn("again <Parallel> \\boxed{8}", when="</Parallel>")]
    episode = played(ParallelPaths(prompts=TERSE, blocks=1), turns)
    assert len(episode.traces) == 3 and episode.answer == "8"


def test_a_spent_budget_leaves_no_answer_and_no_open_path() -> None:
    limits = Limits(capacity=4, forks=1)
    episode = played(ParallelPaths(prompts=TERSE), R1[:2], limits)
    assert episode.answer is None and len(episode.traces) == 2
    assert [fault.kind for fault in episode.format_faults] == [FormatError.TRUNCATED]


def test_a_format_whose_blocks_follow_the_prompt_is_refused() -> None:
    with pytest.raises(ValueError, match="parathinker has no tag that begins a block"):
        ParallelPaths("parathinker")


def test_paths_with_the_same_prompt_are_counted() -> None:
    assert ParallelPaths(paths=3).identical_agents(4) == {"path": 3}
    assert ParallelPaths("npr").identical_agents(4) == {"path": 1}
