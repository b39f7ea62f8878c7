"""`orgthink demo`: the three papers on the shipped models, in a minute or two, without a GPU or a key."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orgthink.cli.eval import Eval, conduct
from orgthink.cli.run import RunCommand
from orgthink.cli.view import page
from orgthink.evaluate.evaluation import Evaluation, resolve
from orgthink.measure.summary import summarise
from orgthink.record.folder import RunFolder
from orgthink.tools import bubblewrap
from orgthink.util.errors import UserError
from orgthink.util.terminal import show

CAPACITY, TOKENS = 4, 480
"""A whole scan and its answer take about 300 tokens, so everybody can finish within this budget."""
TEMPERATURE = 0.3
"""That of the first comparison: `pocket` alone is most often right at it, and parallel thinkers still differ."""
ROUNDS, WORDS, VOTES = 4, 128, 3
"""Most verifications, a token budget for two solutions of an expression, and as many attempts as take fewer tokens than
verifications and corrections do."""
AGENTS, REPLY = 9, 256
"""Concurrent agents: a manager and more than it can call; and tokens of a reply, enough for tool use alone."""


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Watch one problem being solved, then compare on held-out problems. First one thinker, thinkers in parallel, and
    AsyncThink before and after reinforcement learning, with tokens enough for everybody to finish; then a vote, and
    solver, verifier and corrector before and after MarsRL; then a model that uses tools itself, and a manager that
    calls tools and models before and after ParaManager. Starts afresh each time."""

    n: int = 60
    """Held-out problems; twice as many of the second comparison, whose outputs are short."""
    out: Path = Path("runs/demo")
    """Run folder, and two beside it that end in -marsrl and -paramanager; those of an earlier demo are replaced."""

    def __call__(self) -> int:
        RunCommand(model="pocket-async", capacity=CAPACITY, max_tokens=TOKENS)()
        code = (
            compare(self.asyncthink(), self.out)
            or compare(self.marsrl(), self._beside("marsrl"))
            or (compare(self.paramanager(), self._beside("paramanager")) if runs_code() else 0)
        )
        if code == 0:
            show(f"\n{sentence(summarise(RunFolder.open(self.out).episodes()))}")
        return code

    def _beside(self, paper: str) -> Path:
        return self.out.with_name(f"{self.out.name}-{paper}")

    def asyncthink(self) -> Evaluation:
        """Comparison of AsyncThink."""
        return Eval(
            model="pocket",
            organizations=("sequential", "parallel", "untrained=asyncthink", "asyncthink"),
            models=("asyncthink=pocket-async",),
            n=self.n,
            capacity=CAPACITY,
            max_tokens=TOKENS,
            temperature=TEMPERATURE,
        ).plan()

    def marsrl(self) -> Evaluation:
        """Comparison of MarsRL."""
        return Eval(
            task="arithmetic-mini",
            model="pocket-mars",
            organizations=("vote=majority-vote", "untrained=verifier-corrector", "marsrl=verifier-corrector"),
            models=("untrained=pocket-roles",),
            set=(f"rounds={ROUNDS}", f"vote.samples={VOTES}"),
            n=2 * self.n,
            max_tokens=WORDS,
        ).plan()

    def paramanager(self) -> Evaluation:
        """Comparison of ParaManager."""
        return Eval(
            task="arithmetic-mini+countdown-mini-single+ledger-mini",
            model="pocket-manager",
            organizations=("tool-use", "untrained=paramanager", "paramanager"),
            models=("tool-use=pocket-tools", "untrained=pocket-manager-sft"),
            n=self.n,
            capacity=AGENTS,
            max_tokens=REPLY,
            renew=True,
        ).plan()


def sentence(summary: Mapping[str, Mapping[str, Any]]) -> str:
    """The result of the first comparison in a sentence."""

    def solved(name: str) -> str:
        return f"{summary[name]['all_correct']['mean']:.0%}"

    def path(name: str) -> str:
        return f"{summary[name]['critical_path_steps']['mean']:.0f}"

    return (
        f"With {TOKENS} tokens an agent everybody can finish. AsyncThink solves {solved('asyncthink')} of "
        f"{summary['asyncthink']['problems']} held-out problems completely, on a critical path of "
        f"{path('asyncthink')} decoding steps; one thinker {solved('sequential')} on {path('sequential')}, "
        f"{CAPACITY} in parallel {solved('parallel')} on {path('parallel')}. "
        "What is shown over several trainings, and what is not: experiments/CLAIMS.md."
    )


def runs_code() -> bool:
    """Whether programs can run on this machine; prints what is missing."""
    try:
        bubblewrap.check()
    except UserError as error:
        show(f"\nno table of ParaManager, which runs programs: {error}")
        return False
    return True


def compare(plan: Evaluation, out: Path) -> int:
    """Evaluate afresh, print the table, write the page; returns the exit code."""
    show()
    code = asyncio.run(conduct(resolve(plan), out, overwrite=True))
    folder = RunFolder.open(out)
    show(f"\nAll episodes as a page: {page(folder, list(folder.episodes()))}")
    return code
