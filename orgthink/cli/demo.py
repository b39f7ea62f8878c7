"""`orgthink demo`: the main job on the shipped model, in a minute or two, without a GPU or a key."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from orgthink.cli.eval import Eval, conduct
from orgthink.cli.run import Run
from orgthink.cli.view import page
from orgthink.store import RunFolder

CAPACITY, TOKENS = 4, 192
"""A whole scan and its answer take about 300 tokens: this budget leaves a thinker alone half-done."""


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Watch one problem being solved, then compare on held-out problems, at the same token budget per agent: sequential
    and parallel thinking after reinforcement learning, AsyncThink before and after it. Starts afresh each time."""

    n: int = 60
    """Held-out problems."""
    out: Path = Path("runs/demo")
    """Run folder; an earlier demo there is replaced."""

    def __call__(self) -> int:
        Run(model="pocket-async", capacity=CAPACITY, max_tokens=TOKENS)()
        print()
        plan = Eval(
            model="pocket-sequential",
            organizations=("sequential", "parallel", "untrained=asyncthink", "asyncthink"),
            models=("untrained=pocket", "asyncthink=pocket-async"),
            n=self.n,
            capacity=CAPACITY,
            max_tokens=TOKENS,
        ).plan()
        code = asyncio.run(conduct(plan, self.out, overwrite=True))
        folder = RunFolder.open(self.out)
        print(f"\nsee every episode: {page(folder, list(folder.episodes()))}")
        return code
