"""`orgthink demo`: the three papers on the shipped models before and after training, without a GPU or a key."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from orgthink.cli.eval import conduct
from orgthink.cli.run import RunCommand
from orgthink.engines import EngineSpec
from orgthink.evaluation.plan import Evaluation, resolve
from orgthink.evaluation.specs import OrganizationSpec
from orgthink.record.episode import Episode, Sampling
from orgthink.record.folder import RunFolder
from orgthink.runtime.budget import Limits
from orgthink.tools import bubblewrap
from orgthink.util.errors import UserError
from orgthink.util.files import write_whole
from orgthink.util.terminal import show
from orgthink.view import Part, render
from orgthink_pocket.base.rehearsals import USING
from orgthink_pocket.recipes import AGENT_TOKENS, ASYNCTHINK, MANAGED, MARSRL, MEMBERS, PARAMANAGER

TEMPERATURE = 0.7
"""Sampling temperature of all parts, so that votes differ."""
SEED = 0
"""Seed of the sampling of all models, so that the demo repeats."""
VOTES = 3
"""Solutions that the MarsRL baseline votes on. They take more tokens than the trained system."""
REPLY_TOKENS = 256
"""Tokens of a reply of a manager and of one model that uses tools. Agents answer within their own budget."""

INTRODUCTION = (
    "Three papers let language models work as an organization. Each part compares systems on the same held-out "
    "problems, at the same budget for each agent. The models have 1.3 million parameters: no number is that of a "
    "pre-trained language model.",
    "before: pocket-base, a model that lessons taught the form of each role, but not how to organize. after: the same "
    "model after the reinforcement learning of the paper. The other systems are alternatives with pocket-base.",
    "Critical path: decoding steps that cannot run at the same time, which is the latency if all agents decode at "
    "once. η: agents that decode at once, on average over the critical path. Seconds are not compared: many episodes "
    "ran at once, so that the order of queueing would decide them.",
)
"""The first paragraphs of the page."""

Summary = Mapping[str, Mapping[str, Any]]
"""The summary of one part, by system."""


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Watch AsyncThink solve a problem, then compare systems on held-out problems before and after training.

    The parts are AsyncThink, MarsRL and ParaManager, each next to its strongest alternatives at the same budget. The
    run folder gets summary.json, one page view.html, and a run folder for each part.
    """

    n: int = 40
    """Held-out problems of each part."""
    out: Path = Path("runs/demo")
    """Folder of the results; an earlier demo in it is replaced."""

    def __call__(self) -> int:
        RunCommand(model="pocket-organizer", task="countdown-mini")()
        found: dict[str, Summary] = {}
        for name, plan in plans(self.n).items():
            if name == "paramanager" and not runs_code():
                continue
            show()
            if code := asyncio.run(compared(plan, self.out / name)):
                return code
            found[name] = json.loads((self.out / name / "summary.json").read_bytes())
            show(f"\n{PARTS[name].sentence(found[name])}")
        show(f"\nAll episodes as a page: {written(self.out, found)}")
        return 0


async def compared(plan: Evaluation, out: Path) -> int:
    """Run one part in a folder. All engines decode on the event loop: then no thread decides which tokens are decoded
    together, and the part repeats, except for the time that programs take. Returns the exit code."""
    return await conduct(resolve(plan), out, overwrite=True, threaded=False)


def plans(n: int) -> dict[str, Evaluation]:
    """The comparison of each paper on `n` problems."""
    organizer = ASYNCTHINK.settings.rollout
    asyncthink = {
        "sequential": _system("sequential"),
        "parallel": _system("parallel"),
        "before": _system("asyncthink", malformed="error"),
        "after": _system("asyncthink", "pocket-organizer", malformed="error"),
    }
    loop = {"passes": 1, "rounds": 4, "attempts": 1}
    marsrl = {
        "solver": _system("sequential"),
        "vote": _system("majority-vote", samples=VOTES),
        "before": _system("verifier-corrector", **loop),
        "after": _system("verifier-corrector", "pocket-reviewer", **loop),
    }
    managing = {**PARAMANAGER.settings.rollout.organization.settings, "faults": {"rate": 0.0}}
    paramanager = {
        "tool-use": _system("tool-use", **USING),
        "before": _system("paramanager", **managing),
        "after": _system("paramanager", "pocket-manager", **managing),
    }
    members = {name: replace(role, sampling=replace(role.sampling, seed=SEED)) for name, role in MEMBERS.items()}
    return {
        "asyncthink": _plan("countdown-mini", asyncthink, n, organizer.limits),
        "marsrl": _plan("sudoku-sparse", marsrl, n, Limits(VOTES, max_tokens=MARSRL.settings.rollout.max_tokens)),
        "paramanager": replace(_plan(MANAGED, paramanager, n, Limits(9), REPLY_TOKENS), roles=members),
    }


def _system(organization: str, model: str | None = None, **settings: Any) -> OrganizationSpec:
    engine = None if model is None else EngineSpec(model)
    return OrganizationSpec(organization, {"prompts": "pocket", **settings}, engine)


def _plan(
    task: str, systems: dict[str, OrganizationSpec], n: int, limits: Limits, max_tokens: int | None = None
) -> Evaluation:
    """The systems at one budget an agent; `max_tokens` is the budget of a reply where `limits` has none."""
    sampling = Sampling(max_tokens or limits.max_tokens or REPLY_TOKENS, TEMPERATURE, seed=SEED)
    return Evaluation(task, systems, n, EngineSpec("pocket-base"), sampling, limits=limits, seed=SEED)


def asyncthink_sentence(summary: Summary) -> str:
    """The result of AsyncThink."""
    return (
        f"AsyncThink with {AGENT_TOKENS} tokens an agent solves {_solved(summary, 'after')} of the problems completely "
        f"after training on a critical path of {_path(summary, 'after')} decoding steps, before training "
        f"{_solved(summary, 'before')} on {_path(summary, 'before')}. One thinker solves "
        f"{_solved(summary, 'sequential')}, a vote of parallel thinkers {_solved(summary, 'parallel')}, on "
        f"{_path(summary, 'sequential')} and {_path(summary, 'parallel')}."
    )


def marsrl_sentence(summary: Summary) -> str:
    """The result of MarsRL."""
    return (
        f"Solver, verifier and corrector solve {_solved(summary, 'after')} of the sudokus after MarsRL with "
        f"{_tokens(summary, 'after')} tokens a problem, {_solved(summary, 'before')} before. The solver alone solves "
        f"{_solved(summary, 'solver')}, a vote of {VOTES} solvers {_solved(summary, 'vote')} with "
        f"{_tokens(summary, 'vote')} tokens."
    )


def paramanager_sentence(summary: Summary) -> str:
    """The result of ParaManager."""
    return (
        f"ParaManager solves {_solved(summary, 'after')} of the problems after training on a critical path of "
        f"{_path(summary, 'after')} decoding steps, {_solved(summary, 'before')} on {_path(summary, 'before')} before. "
        f"One model that uses tools solves {_solved(summary, 'tool-use')} on {_path(summary, 'tool-use')}."
    )


class Compared(NamedTuple):
    """One part of the demo."""

    title: str
    """The paper, and what its systems do."""
    problems: str
    """What its problems are."""
    sentence: Callable[[Summary], str]
    """The sentence about its result."""


PARTS = {
    "asyncthink": Compared("AsyncThink: an organizer forks workers and goes on", "countdowns", asyncthink_sentence),
    "marsrl": Compared("MarsRL: solver, verifier and corrector", "sudokus with ten empty cells", marsrl_sentence),
    "paramanager": Compared(
        "ParaManager: a manager calls agents and tools in parallel rounds",
        "problems of arithmetic, countdown and look-ups",
        paramanager_sentence,
    ),
}


def _solved(summary: Summary, system: str) -> str:
    """The share of solved problems with its 95 % interval."""
    share = summary[system]["all_correct"]
    return f"{share['mean']:.0%} [{share['low']:.0%}, {share['high']:.0%}]"


def _tokens(summary: Summary, system: str) -> str:
    return f"{summary[system]['sampled_tokens']['mean']:.0f}"


def _path(summary: Summary, system: str) -> str:
    return f"{summary[system]['critical_path_steps']['mean']:.0f}"


def runs_code() -> bool:
    """Whether programs can run on this machine; prints what is missing."""
    try:
        bubblewrap.check()
    except UserError as error:
        show(f"\nParaManager is left out, because it runs programs: {error}")
        return False
    return True


def written(out: Path, found: Mapping[str, Summary]) -> Path:
    """Write summary.json and the page of all parts. Returns the page."""
    episodes, parts = list[Episode](), list[Part]()
    systems: dict[str, Mapping[str, Any]] = {}
    for name, summary in found.items():
        for episode in RunFolder.open(out / name).episodes():
            episodes.append(replace(episode, organization=f"{name}: {episode.organization}"))
        # The page of ParaManager alone has columns of each task.
        own = {f"{name}: {system}": {**measures, "by_task": {}} for system, measures in summary.items()}
        title, problems, sentence = PARTS[name]
        n = next(iter(summary.values()))["n"]
        parts.append(Part(f"{title}; {n} {problems}", list(own), sentence(summary)))
        systems |= own
    write_whole(out / "summary.json", json.dumps(found, indent=2).encode())
    page, title = out / "view.html", "orgthink demo: three papers, before and after training"
    write_whole(page, render(episodes, title=title, summary=systems, introduction=INTRODUCTION, parts=parts).encode())
    return page
