"""Workflows: when nodes start, what later nodes see of failed ones, and what is left when a budget is spent."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from graph_tools import ECHO, LOOKUP, TOOLS
from hypothesis import given
from hypothesis import strategies as st
from orgthink_arena.organizations.evoflow import EvoFlow, Individual, Population, read_population, tags_of_problem
from orgthink_arena.organizations.workflow import Workflow
from orgthink_arena.organizations.workflow_json import read_graph
from random_graphs import MODELS, random_graph
from terse import TERSE

from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.measure.latency import critical_path
from orgthink.measure.orchestration import cost
from orgthink.record.episode import Episode, Problem, Sampling, StopReason
from orgthink.record.episode_json import dump, load
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_virtual
from orgthink.runtime.organization import Organization
from orgthink.util.errors import UserError

PROBLEM = Problem("p", "sums", "sum 3 + 4")


def workflow(output: str, **nodes: dict[str, Any]) -> Workflow:
    return Workflow(TERSE, graph=read_graph({"nodes": nodes, "output": output}), tools=TOOLS)


def agent(prompt: str, **more: Any) -> dict[str, Any]:
    return {"kind": "agent", "prompt": prompt, **more}


def text(template: str) -> dict[str, Any]:
    return {"kind": "text", "text": template}


def block(output: str, **nodes: dict[str, Any]) -> dict[str, Any]:
    return {"nodes": nodes, "output": output}


def played(organization: Organization, *turns: Turn, limits: Limits | None = None, strict: bool = True) -> Episode:
    async def run() -> Episode:
        engine = ScriptedEngine(turns)
        how = {"limits": limits or Limits(capacity=9)}
        episode = await attempt(organization, PROBLEM, Backing(engine, Sampling(50)), **how)
        if strict:
            await engine.aclose()
        return episode

    return run_virtual(run())


def started(episode: Episode) -> dict[str, float]:
    return {trace.agent.rpartition("/")[2]: trace.start for trace in episode.traces}


def test_a_node_starts_when_what_it_needs_is_there_and_a_slow_sibling_delays_nobody():
    organization = workflow(
        "all",
        slow=agent("slow"),
        quick=agent("quick"),
        after=agent("after {quick}"),
        all=text("{slow} {after}"),
    )
    episode = played(
        organization,
        Turn("s s s s s s s s s", when="slow"),
        Turn("q q", when="quick"),
        Turn("a", when="after q q"),
    )
    assert started(episode) == {"controller": 0, "slow": 0, "quick": 0, "after": 2}
    assert (episode.answer, episode.seconds) == ("s s s s s s s s s a", 9)
    assert cost(episode) == 3


def test_samples_vote_and_their_answers_reach_templates():
    organization = workflow(
        "judged",
        draft=agent("draft", samples=3),
        ballot={"kind": "vote", "of": ["draft"]},
        judged=agent("judge {ballot} of {draft.json}"),
    )
    drafts = [Turn(f"so <ANSWER> {n} </ANSWER>", when="draft") for n in (8, 7, 7)]
    episode = played(organization, *drafts, Turn("<ANSWER> 7 </ANSWER>", when='judge 7 of ["8", "7", "7"]'))
    assert episode.answer == "7"
    assert organization.identical_agents(9) == {"agent": 3} and organization.roles == ("agent",)


def test_a_failed_node_is_a_status_that_later_nodes_see():
    organization = workflow(
        "said",
        broken=agent("broken"),
        refused={"kind": "tool", "tool": ECHO, "arguments": {"wrong": "x"}},
        failed={"kind": "tool", "tool": ECHO, "arguments": {"word": "fail"}},
        said=text("{broken.status} {refused.status} {failed.status} {broken} {failed.error}"),
    )
    episode = played(organization, Turn("b", when="broken", fails="the server choked"))
    assert episode.answer == "EXEC_ERR PARSE_ERR EXEC_ERR  ValueError: it was to fail"
    assert episode.stop is StopReason.DONE


def test_a_fallback_takes_the_first_with_an_answer():
    nodes = {
        "none": agent("first"),
        "failed": {"kind": "tool", "tool": ECHO, "arguments": {"word": "fail"}},
        "good": agent("second"),
        "end": {"kind": "fallback", "of": ["none", "failed", "good"]},
    }
    episode = played(workflow("end", **nodes), Turn("n n", when="first"), Turn("<ANSWER> 7 </ANSWER>", when="second"))
    assert episode.answer == "7"


def test_a_map_works_on_its_parts_side_by_side():
    """A part is a chain of its own: the second round of one does not wait for the first of another."""
    organization = workflow(
        "solved",
        parts={"kind": "split", "text": "say: a. b; say: c", "separator": ";", "after": "say: "},
        solved={
            "kind": "map",
            "over": "parts",
            "join": " & ",
            "body": block("two", one=agent("one {part}"), two=agent("two {part} {one}")),
        },
    )
    episode = played(
        organization,
        Turn("1 1 1 1 1", when="one a. b"),
        Turn("<ANSWER> x </ANSWER>", when="two a. b 1 1 1 1 1"),
        Turn("2", when="one c"),
        Turn("<ANSWER> y </ANSWER>", when="two c 2"),
    )
    assert episode.answer == "x & y"
    assert (episode.seconds, critical_path(episode)) == (8, 8)
    assert [trace.start for trace in episode.traces if trace.agent.endswith("/two")] == [1, 5]


def test_parts_beyond_the_bound_are_left_out_and_lists_reach_tools():
    organization = workflow(
        "both",
        parts={"kind": "split", "text": "a\n\nb\nc"},
        some={"kind": "map", "over": "parts", "most": 2, "body": block("echoed", echoed=text("<{part}>"))},
        found={"kind": "tool", "tool": LOOKUP, "arguments": {"words": "{parts}"}},
        lines={"kind": "tool", "tool": LOOKUP, "arguments": {"words": "x {part_of}\ny"}},
        part_of=text("z"),
        both=text("{some} {found} {lines}"),
    )
    assert played(organization).answer == "<a>\n<b> 3: a | b | c 2: x z | y"


LOOP = {
    "kind": "loop",
    "start": "draft",
    "most": 3,
    "until": {"text": "{review.verdict}", "equals": "correct"},
    "body": block(
        "mended",
        review={"kind": "agent", "template": "verifier", "values": {"solution": "{last.answer}"}},
        mended={
            "kind": "branch",
            "cases": [
                {
                    "when": {"text": "{review.verdict}", "equals": "wrong"},
                    "body": block("fixed", fixed=agent("fix {last.answer} {review.findings}")),
                }
            ],
        },
    ),
}


def test_a_loop_ends_when_its_condition_holds_and_keeps_the_last_answer():
    episode = played(
        workflow("loop", draft=agent("draft"), loop=LOOP),
        Turn("<ANSWER> 5 </ANSWER>", when="draft"),
        Turn("too small correctness: wrong", when="solution 5"),
        Turn("<ANSWER> 7 </ANSWER>", when="fix 5 too small"),
        Turn("correctness: correct", when="solution 7"),
    )
    assert episode.answer == "7" and episode.seconds == 3 + 4 + 3 + 2


def test_a_loop_is_bounded():
    turns = [Turn("correctness: wrong", when="verifier") for _ in range(3)]
    fixes = [Turn(f"<ANSWER> {n} </ANSWER>", when="fix") for n in range(3)]
    episode = played(
        workflow("loop", draft=agent("draft"), loop=LOOP), Turn("<ANSWER> 5 </ANSWER>", when="draft"), *turns, *fixes
    )
    assert episode.answer == "2"


@pytest.mark.parametrize(("task", "answer"), [("sums", "1"), ("others", "2")])
def test_a_branch_routes_by_the_task(task: str, answer: str):
    case = {"when": {"text": "{task}", "equals": "SUMS"}, "body": block("one", one=text("1"))}
    organization = workflow("end", end={"kind": "branch", "cases": [case], "otherwise": block("two", two=text("2"))})
    backing = Backing(ScriptedEngine([]), Sampling(5))
    episode = run_virtual(attempt(organization, Problem("p", task, "x"), backing))
    assert episode.answer == answer


def test_conditions():
    for condition, held in [
        ({"contains": "OK"}, True),
        ({"contains": "bad"}, False),
        ({"contains": "bad", "negate": True}, True),
        ({"equals": " all ok "}, True),
        ({"equals": "ok"}, False),
        ({"equals": "ok", "negate": True}, True),
    ]:
        case = {"when": {"text": "All ok ", **condition}, "body": block("one", one=text("yes"))}
        node = {"kind": "branch", "cases": [case], "otherwise": block("two", two=text("no"))}
        assert played(workflow("end", end=node)).answer == ("yes" if held else "no"), condition


@pytest.mark.parametrize(
    ("limits", "stop"),
    [
        (Limits(9, turns=2), StopReason.BUDGET),
        (Limits(9, forks=2), StopReason.BUDGET),
        (Limits(9, cost=2), StopReason.BUDGET),
        (Limits(9, max_episode_tokens=6), StopReason.BUDGET),
        (Limits(9, episode_seconds=10), StopReason.DEADLINE),
    ],
)
def test_what_is_spent_answers_with_what_there_is(limits: Limits, stop: StopReason):
    """Two attempts, one after the other, then a third that the budget forbids, or a deadline cuts."""
    organization = workflow(
        "third",
        first=agent("first"),
        second=agent("second {first.answer}"),
        third=agent("third {second}"),
    )
    turns = [
        Turn("<ANSWER> 1 </ANSWER>", when="first"),
        Turn("<ANSWER> 2 </ANSWER>", when="second 1"),
        Turn("s l o w <ANSWER> 3 </ANSWER>", when="third", seconds=5),
    ]
    episode = played(organization, *turns, limits=limits, strict=False)
    assert (episode.answer, episode.stop) == ("2", stop)


class Talker(ScriptedEngine):
    """Says something to everybody, for ever; now and then it fails."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__([])
        self.rng = rng

    def _next(self, text: str) -> Turn:
        says = ("yes <ANSWER> ok </ANSWER>", "no", "correctness: wrong", "a b\nc s d", "<ANSWER> 7 </ANSWER>")
        return Turn(self.rng.choice(says), seconds=0.5, fails="it failed" if self.rng.random() < 0.1 else None)


CUTS = st.sampled_from(
    [
        Limits(3),
        Limits(1, turns=7),
        Limits(3, max_episode_tokens=25),
        Limits(3, forks=9),
        Limits(3, cost=5),
        Limits(3, depth=0),
        Limits(3, episode_seconds=6),
        Limits(2, agent_seconds=1),
    ]
)


@given(st.integers(0, 10**6), CUTS)
def test_any_graph_runs_to_an_end_within_its_budget(seed: int, limits: Limits):
    rng = random.Random(seed)
    graph = random_graph(rng)
    pool = {name: "" for name in MODELS if name}
    organization = Workflow(TERSE, graph=graph, pool=pool, tools=TOOLS)
    engine = Talker(rng)

    async def run() -> Episode:
        episode = await attempt(organization, PROBLEM, Backing(engine, Sampling(20)), limits=limits)
        await asyncio.sleep(1000)
        return episode

    episode = run_virtual(run())
    assert episode.stop in (StopReason.DONE, StopReason.BUDGET, StopReason.DEADLINE)
    assert all(time <= episode.seconds for time, _ in engine.sampled), "a token was sampled after the end"
    assert load(dump(episode)) == episode
    called = [trace for trace in episode.traces[1:] if trace.role != "part"]
    assert len(called) <= graph.calls
    assert limits.turns is None or sum(trace.turns for trace in episode.traces) <= limits.turns
    assert limits.forks is None or len(episode.traces) - 1 <= limits.forks


def test_a_population_picks_who_solved_what_is_most_like_the_question():
    def saying(word: str) -> Any:
        return read_graph({"nodes": {"said": text(word)}, "output": "said"})

    trained = [
        Problem(f"{task}{i}", task, f"A question about {task}") for task in ("apples", "pears") for i in range(8)
    ]
    solves = {task: {p.id: float(p.task == task) for p in trained} for task in ("apples", "pears")}
    population = Population(
        (
            Individual("a", saying("for apples"), 0.5, 10, {}, solves["apples"]),
            Individual("dear", saying("dear"), 0.5, 20, {}, solves["pears"]),
            Individual("b", saying("for pears"), 0.5, 10, {}, solves["pears"]),
        ),
        {problem.id: tuple(tags_of_problem(problem)) for problem in trained},
    )
    organization = EvoFlow(TERSE, population=population)
    backing = Backing(ScriptedEngine([]), Sampling(5))
    for task in ("apples", "pears"):
        problem = Problem("new", "another task", f"Something else about {task}")
        assert run_virtual(attempt(organization, problem, backing)).answer == f"for {task}"


NO_AGENT = {"individuals": [{"id": "a", "accuracy": 1.0, "graph": {"nodes": {"a": {"kind": "agent"}}, "output": "a"}}]}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ({}, "individuals: Field required"),
        ({"individuals": []}, "it has no individual"),
        ({"individuals": [{"id": "a"}]}, "individuals.0.graph: Field required"),
        (NO_AGENT, "individuals.0.graph: graph: node a: give it a template or a prompt"),
        ([], "dictionary"),
        ("none.json", "cannot be read"),
    ],
)
def test_a_bad_population_is_one_line(data: Any, why: str):
    with pytest.raises(UserError, match="population") as refused:
        read_population(data)
    assert why in str(refused.value) and "\n" not in str(refused.value) and "http" not in str(refused.value)
