"""Whatever a budget or a deadline cuts, in every organization: the episode ends with a status, what was found is used,
and nothing is sampled after its end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from managed import LONG_AFTER, Managed, Toys, Using, ask, program, reply
from orgthink_arena.organizations.best_of_n import BestOfN
from orgthink_arena.organizations.huang_yang import HuangYang
from orgthink_arena.organizations.pacore import Pacore
from orgthink_arena.organizations.parallel_paths import ParallelPaths
from orgthink_arena.organizations.puppeteer import Puppeteer
from orgthink_arena.organizations.router import Router
from orgthink_arena.organizations.tool_orchestra import ToolOrchestra
from orgthink_arena.organizations.workflow import Workflow
from orgthink_arena.organizations.workflow_json import read_graph
from speaker import DOUBLE, call
from terse import PATHS, TERSE, WHOLE

from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.measure.orchestration import executed
from orgthink.organizations.agent_forms import WorkerTools
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.organizations.self_refine import SelfRefine
from orgthink.organizations.sequential import Sequential
from orgthink.organizations.verifier_corrector import VerifierCorrector
from orgthink.organizations.votes import MajorityVote, Parallel
from orgthink.record.episode import Episode, Problem, Sampling, Status, StopReason
from orgthink.record.episode_json import dump, load
from orgthink.record.guard import engine_failed
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_virtual
from orgthink.runtime.organization import Organization

pytestmark = pytest.mark.thorough

PROBLEM = Problem("p", "sums", "sum 3 + 4")
KINDS = ("max_episode_tokens", "turns", "cost", "forks", "depth", "max_tokens", "agent_seconds", "episode_seconds")
ANSWER = "so <ANSWER> 7 </ANSWER>"


class Model(ScriptedEngine):
    """Plays every role, for ever."""

    def _next(self, text: str) -> Turn:
        if text.startswith("manager") and not text.endswith("final"):
            return reply(ask(subtask="add"), program("print 7"), ask("critical_reviewer"), seconds=0.25)
        if text.startswith("orchestrator") and not text.endswith("final"):
            return reply(
                ask(subtask="add") if text.startswith("orchestrator left 4") else program("print 7"), seconds=0.25
            )
        if text.startswith("coder"):
            return Turn("<code>print 7</code>")
        if text.startswith("organizer"):
            forked = "<JOIN-1>" in text
            return Turn(ANSWER if forked else "o <FORK-1> add </FORK-1> o <JOIN-1>", seconds=0.25)
        if text.startswith("caller"):
            joined = call("join", id=1) + call("cancel", id=2)
            forks = call("fork", task="add") + call("fork", task="add")
            return Turn(ANSWER if "cancelled" in text else joined if '"OK"' in text else forks, seconds=0.25)
        if text.startswith("worker") and "tools" in text:
            return Turn("w w 7" if '"value": "6"' in text else call("double", number=3))
        if text.startswith("worker"):
            return Turn("w w <RETURN> 7 </RETURN>")
        if text.startswith("verifier"):
            return Turn("correctness wrong")
        if text.startswith("path"):
            within = text.count("<Parallel>") > text.count("</Parallel>")
            return Turn(
                "p p </Path>" if within else "t \\boxed{7}" if text.count("</Parallel>") == 2 else "t <Parallel>"
            )
        return Turn(ANSWER)


ASKED = {"kind": "agent", "role": "helper", "prompt": "helper {part}"}
REVIEWED = {"kind": "agent", "role": "verifier", "template": "verifier", "values": {"solution": "{last}"}}
MENDED = {"kind": "agent", "role": "corrector", "template": "corrector", "values": {"solution": "{last}"}}
REVISED = read_graph(
    {
        "nodes": {
            "draft": {"kind": "agent", "role": "solver", "template": "solver", "samples": 2},
            "ballot": {"kind": "vote", "of": ["draft"]},
            "parts": {"kind": "split", "text": "a b", "separator": " "},
            "side": {"kind": "map", "over": "parts", "body": {"nodes": {"said": ASKED}, "output": "said"}},
            "revised": {
                "kind": "loop",
                "start": "ballot",
                "until": {"text": "{review.verdict}", "equals": "correct"},
                "body": {"nodes": {"review": REVIEWED, "mended": MENDED}, "output": "mended"},
            },
        },
        "output": "revised",
    }
)
"""A workflow of every kind of work; `side` is for nobody."""
SOLVERS = ("thinker", "solver", "corrector", "synthesizer", "standard_reasoner", "code_reasoner")


@dataclass(frozen=True)
class Pulled(Toys, Puppeteer):
    """The real organization over toy programs."""

    prompts: str = TERSE


@dataclass(frozen=True)
class Orchestrated(Toys, ToolOrchestra):
    """The real organization over toy programs."""

    prompts: str = TERSE


ORGANIZATIONS: dict[str, Organization] = {
    "sequential": Sequential(TERSE),
    "parallel": Parallel(TERSE),
    "majority-vote": MajorityVote(TERSE, samples=4),
    "self-refine": SelfRefine(TERSE),
    "verifier-corrector": VerifierCorrector(TERSE),
    "huang-yang": HuangYang(WHOLE),
    "best-of-n": BestOfN(TERSE, samples=3),
    "pacore": Pacore(TERSE, widths=(3, 2, 1)),
    "router": Router(TERSE, samples=3),
    "puppeteer": Pulled(tools=("standard_reasoner", "critical_reviewer", "code_reasoner"), width=2),
    "tool-orchestra": Orchestrated(rounds=4),
    "asyncthink": AsyncThink(TERSE),
    "asyncthink by calls": AsyncThink(TERSE, protocol="tools"),
    "asyncthink by calls, tolerant": AsyncThink(TERSE, protocol="tools", tolerant=True),
    "asyncthink with tools": AsyncThink(TERSE, worker_tools=WorkerTools((DOUBLE,))),
    "paramanager": Managed(rounds=4, reserve=0.4),
    "tool-use": Using(rounds=4, reserve=0.4),
    "summarized": Managed(rounds=4, reserve=0.4, synthesis="summarizer"),
    "workflow": Workflow(TERSE, graph=REVISED),
    "parallel-paths": ParallelPaths(prompts=PATHS),
}


@dataclass(frozen=True)
class Cut:
    """Limits with one budget."""

    kind: str
    limit: int

    @property
    def limits(self) -> Limits:
        return Limits(capacity=3, **{self.kind: self.limit})  # type: ignore[arg-type]


def played(organization: Organization, cut: Cut) -> tuple[Episode, Model]:
    engine = Model([])

    async def run() -> Episode:
        episode = await attempt(organization, PROBLEM, Backing(engine, Sampling(1000)), limits=cut.limits)
        await asyncio.sleep(LONG_AFTER)
        return episode

    return run_virtual(run()), engine


@pytest.mark.parametrize("name", ORGANIZATIONS)
@given(cut=st.builds(Cut, st.sampled_from(KINDS), st.integers(0, 16) | st.integers(0, 60)))
def test_whatever_runs_out_what_was_found_is_used_and_the_episode_is_over(name: str, cut: Cut):
    episode, engine = played(ORGANIZATIONS[name], cut)
    assert all(time <= episode.seconds for time, _ in engine.sampled), "a token was sampled after the end"
    assert load(dump(episode)) == episode
    assert episode.stop in (StopReason.DONE, StopReason.BUDGET, StopReason.DEADLINE) and not engine_failed(episode)
    if found(episode) and enough(name, cut):
        assert episode.answer == "7"


@pytest.mark.parametrize("name", ["paramanager", "summarized"])
@pytest.mark.parametrize(
    ("kind", "limit", "stop"),
    [
        ("max_episode_tokens", 60, StopReason.BUDGET),
        ("turns", 4, StopReason.BUDGET),
        ("cost", 3, StopReason.BUDGET),
        ("forks", 3, StopReason.DONE),
        ("depth", 0, StopReason.DONE),
        ("max_tokens", 60, StopReason.BUDGET),
        ("episode_seconds", 20, StopReason.DEADLINE),
    ],
)
def test_a_manager_answers_from_what_it_found_when_a_budget_cuts_its_rounds(
    name: str, kind: str, limit: int, stop: StopReason
):
    episode, _ = played(ORGANIZATIONS[name], Cut(kind, limit))
    assert found(episode) and (episode.answer, episode.stop) == ("7", stop)
    if stop is StopReason.BUDGET:
        assert episode.root.exhausted is not None
        used, allowed = episode.root.exhausted.value, episode.root.exhausted.limit
        assert episode.root.exhausted.budget in (kind, "tokens") and allowed <= limit
        assert used < limit or (name, kind) == ("summarized", "max_tokens"), "a part is kept for the answer"


def found(episode: Episode) -> bool:
    """Whether anybody came to a result that the organization could use."""
    if executed(episode):
        return any(trace.status is Status.OK for trace in executed(episode))
    answers = (trace.returned for trace in episode.traces[1:] if trace.role in SOLVERS)
    return any(text is not None and text in ("7", ANSWER) for text in answers)


def enough(name: str, cut: Cut) -> bool:
    """Whether the reserve of this budget is enough to write the answer: five tokens in five seconds."""
    if name not in ("paramanager", "tool-use", "summarized"):
        return True
    return cut.kind in ("turns", "cost", "forks", "depth") or cut.limit * 0.4 >= 5
