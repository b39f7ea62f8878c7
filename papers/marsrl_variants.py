"""What MarsRL on SmolLM2 is compared with: plug-ins that its commands name by reference, such as
`papers.marsrl_variants:Fresh`; and what verifiers check.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import ClassVar

from orgthink.evaluation.specs import OrganizationSpec
from orgthink.grammar.verdict import Verdict
from orgthink.measure.verification import agents_of_root
from orgthink.organizations.verifier_corrector import VerifierCorrector
from orgthink.record.episode import Episode, Problem
from orgthink.rewards.asyncthink import AsyncThinkReward
from orgthink.runtime.budget import Limits
from orgthink.runtime.session import Session
from orgthink.tasks.sudoku import read
from orgthink.tasks.sudoku_six import SIDE, UNITS
from orgthink.tasks.vote import vote
from orgthink.training.optimization import Optimization
from orgthink.training.recipes.any_model import VERIFIER_CORRECTOR
from orgthink.training.recipes.jobs import Policy
from orgthink.training.rl_settings import RlSettings
from orgthink.training.rollout import Rollout
from papers.judgements import with_draft
from papers.marsrl_lessons import STYLE

_LINE = re.compile(r"([A-F][14]?|[1-6]) ([1-6]{6}) (ok|bad)", re.ASCII)


@dataclass(frozen=True)
class Fresh(VerifierCorrector):
    """The solver begins again where a corrector would mend."""

    name: str = "fresh"

    roles = ("solver", "verifier")
    templates: ClassVar[Mapping[str, str]] = {"corrector": "solver"}
    players: ClassVar[Mapping[str, str]] = {"corrector": "solver"}


@dataclass(frozen=True)
class Sampled(VerifierCorrector):
    """Several solvers, and the most frequent answer wins; one solver alone with `samples=1`."""

    samples: int = 1
    """Solvers."""
    verified: bool = False
    """Whether only answers that a verifier passes count; all of them, if it passes none."""
    name: str = "sampled"

    roles = ("solver", "verifier")

    async def run(self, problem: Problem, session: Session) -> str | None:
        ask = partial(self._ask, problem, session, session.controller())

        async def answer(i: int) -> tuple[str, bool]:
            draft = await ask(f"solution-{i}", "solver")
            counts = not self.verified or (
                draft.whole and (await self._verify(ask, i, draft)).verdict is Verdict.CORRECT
            )
            return draft.result or "", counts

        answers = await asyncio.gather(*map(answer, range(1, self.samples + 1)))
        return vote(problem, [text for text, counts in answers if counts] or [text for text, _ in answers])


def lines(text: str) -> dict[str, tuple[str, bool]]:
    """What a verifier wrote: unit → its digits, and whether they are bad."""
    found = map(_LINE.fullmatch, text.splitlines())
    return {line[1]: (line[2], line[3] == "bad") for line in found if line and line[1] in UNITS}


def true_lines(episodes: Iterable[Episode]) -> Iterator[bool]:
    """For each line of each verifier, whether the digits are the solution's, and the verdict on them is right."""
    for episode in episodes:
        for verifier, draft in with_draft(agents_of_root(episode)):
            grid = read(draft.returned or "", SIDE)
            for unit, (digits, bad) in lines(verifier.text).items() if verifier.role == "verifier" and grid else ():
                own = "".join(str(grid[i][j]) for i, j in UNITS[unit])
                yield digits == own and bad == (len({*own}) < SIDE)


_MARS = VERIFIER_CORRECTOR.settings
SHARED = Policy(
    settings=RlSettings(
        rollout=Rollout(
            "sudoku-six",
            OrganizationSpec("verifier-corrector", {"prompts": STYLE, "passes": 1, "rounds": 3, "attempts": 1}),
            Limits(1, turns=6),
            roles=("solver", "verifier", "corrector"),
        ),
        reward=AsyncThinkReward(accuracy="all", weight=0.0, format_error=0.0),
        **{one.name: getattr(_MARS, one.name) for one in fields(Optimization) if one.name != "rollout"},
    ),
    model=None,
)
"""One reward for all agents of an episode, that of its answer, with the optimizer of `verifier-corrector`. Its episodes
are as long as the chains of MarsRL: two corrections, the last of which is verified as well."""
