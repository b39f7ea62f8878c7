from __future__ import annotations

import asyncio
from typing import Any

import pytest
from attacks.catalogue import Attack, each
from orgthink_arena.organizations import workflow_graph, workflow_output
from orgthink_arena.organizations.workflow import Workflow
from orgthink_arena.organizations.workflow_json import read_graph
from orgthink_arena.organizations.workflow_output import MOST_FILLED
from rule_engine import RuleEngine
from terse import TERSE

from orgthink.record.episode import Episode, Problem, Sampling, StopReason
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits

DEADLINE = "A graph that calls nobody holds up no other episode, and its deadline ends it"
ONCE = "What a template takes of an output is read once, however often the template names it"
BOUNDED = "No text that a graph puts together is longer than 200,000 characters, but for the mark where it is cut"


def text(template: str) -> dict[str, Any]:
    return {"kind": "text", "text": template}


def block(output: str, **nodes: dict[str, Any]) -> dict[str, Any]:
    return {"nodes": nodes, "output": output}


def looped(inner: dict[str, Any], levels: int) -> dict[str, Any]:
    for i in range(levels):
        loop = {"kind": "loop", "body": inner, "until": {"text": "no", "equals": "yes"}, "most": 8}
        inner = block(f"l{i}", **{f"l{i}": loop})
    return inner


def joined(levels: int) -> dict[str, Any]:
    """Maps in maps, whose answers are joined by 8,000 characters."""
    inner = block("leaf", leaf=text("{part}"))
    for i in range(levels):
        parts = {"kind": "split", "text": "a," * 12, "separator": ","}
        over = {"kind": "map", "over": f"s{i}", "most": 12, "join": "j" * 8000, "body": inner}
        inner = block(f"m{i}", **{f"s{i}": parts, f"m{i}": over})
    return inner


FAT = {"a": text("x\n" * 3900), "b": text("{a}" * 2600)}


async def played(graph: dict[str, Any], seconds: float = 60.0) -> Episode:
    organization = Workflow(TERSE, graph=read_graph(graph), tools=())
    backing = Backing(RuleEngine(lambda text: "so <ANSWER> 1 </ANSWER>"), Sampling(50))
    limits = Limits(capacity=3, episode_seconds=seconds)
    return await attempt(organization, Problem("p", "sums", "sum 3 + 4"), backing, limits=limits)


@each(
    Attack("a chain of 60 texts", DEADLINE, "the answer", block("t59", t0=text("a"), **{
        f"t{i}": text(f"{{t{i - 1}}}") for i in range(1, 60)})),
    Attack("loops without a call, four deep", DEADLINE, "the answer", looped(block("x", x=text("a")), 3)),
)  # fmt: skip
async def test_other_work_goes_on_between_any_two_nodes(attack: Attack) -> None:
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            await asyncio.sleep(0)
            beats += 1

    beating = asyncio.create_task(beat())
    await asyncio.sleep(0)
    episode = await played(attack.given)
    beating.cancel()
    assert episode.stop is StopReason.DONE and beats >= read_graph(attack.given).steps


@each(
    Attack("loops of texts of 200,000 characters", DEADLINE, "no answer, or the last one; `deadline`",
           looped(block("x", **FAT, x=text("{b.findings}{a}" * 400)), 3)),
)  # fmt: skip
async def test_a_deadline_ends_a_graph_without_calls(attack: Attack) -> None:
    await asyncio.wait_for(played(attack.given, seconds=0.5), 30)


@each(
    *(Attack(f"a text of 600 `{{node.{view}}}`", ONCE, "the answer, cut in its middle", view)
      for view in ("findings", "verdict", "code", "json", "answer")),
)  # fmt: skip
async def test_a_view_is_read_once(attack: Attack, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []
    reading = workflow_output._viewed
    monkeypatch.setattr(workflow_output, "_viewed", lambda output, view, *more: (
        reads.append(view) or reading(output, view, *more)))  # fmt: skip
    graph = block("y", **FAT, x=text(f"{{b.{attack.given}}}" * 500), y=text(f"{{b.{attack.given}}}{{x}}" * 300))
    episode = await played(graph)
    assert episode.stop is StopReason.DONE and reads.count(attack.given) == 1 and len(reads) == 3


@each(
    Attack("a text of 2,600 texts of 20,000 characters", BOUNDED, "an answer that is cut in its middle",
           block("y", **FAT, y=text("{b}" * 2600))),
    Attack("maps in maps, joined by 8,000 characters", BOUNDED, "an answer that is cut in its middle", joined(3)),
)  # fmt: skip
async def test_what_is_put_together_is_bounded(attack: Attack, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    joining = workflow_output._enough
    monkeypatch.setattr(workflow_output, "_enough", lambda pieces, characters: (
        made.extend(map(len, found := list(joining(pieces, characters)))) or iter(found)))  # fmt: skip
    episode = await played(attack.given)
    assert episode.answer is not None and MOST_FILLED < len(episode.answer) < MOST_FILLED + 100
    assert "(cut)" in episode.answer and sum(made) < 100 * MOST_FILLED


@each(Attack("sixty templates that name one node", ONCE, "each template is looked through once"))
def test_the_placeholders_of_a_template_are_looked_for_once(attack: Attack) -> None:
    templates = {f"t{i}": text(f"{i} {{a}} {{a}}") for i in range(60)}
    graph = read_graph(block("a", a=text("unheard of"), **templates))
    workflow_graph.holes.cache_clear()
    assert workflow_graph.dependencies(graph.block) == {"a": [], **{name: ["a"] for name in templates}}
    assert workflow_graph.holes.cache_info().misses == 61 and workflow_graph.holes.cache_info().hits == 0
