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
    """Watch one problem being solved, then compare the organizations on held-out problems at the same token budget
    per agent. Starts afresh each time."""

    model: str = "pocket"
    """`pocket` (shipped) or another model folder."""
    n: int = 60
    """Held-out problems."""
    out: Path = Path("runs/demo")
    """Run folder; an earlier demo there is replaced."""

    def __call__(self) -> int:
        Run(model=self.model, capacity=CAPACITY, max_tokens=TOKENS, temperature=0)()
        print()
        plan = Eval(model=self.model, n=self.n, capacity=CAPACITY, max_tokens=TOKENS).plan()
        code = asyncio.run(conduct(plan, self.out, overwrite=True))
        folder = RunFolder.open(self.out)
        print(f"\nsee every episode: {page(folder, list(folder.episodes()))}")
        return code
