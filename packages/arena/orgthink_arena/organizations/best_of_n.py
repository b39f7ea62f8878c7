"""Best of n with a verifier: several solutions, a judgement of each, and the best one wins (Cobbe et al., 2021).

    solution-1 … solution-n side by side → a verdict or a score of each, side by side → the best; of equals, a vote

The verifier is a prompted model: a verifier of MarsRL, whose verdicts count, or one that writes a number last. The
paper trains a verifier that gives each solution a probability; here nothing is trained.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from orgthink.grammar.solution import after_thinking, in_fences
from orgthink.grammar.verdict import Verdict
from orgthink.organizations.request import NOTHING, Reply
from orgthink.organizations.verifier_corrector import report_of
from orgthink.record.episode import Problem
from orgthink.runtime.organization import Organization
from orgthink.runtime.session import Session
from orgthink.tasks.vote import all_prepared, vote
from orgthink.util.errors import require_at_least
from orgthink_arena.organizations.pacore import ask_all
from orgthink_arena.prompts import prompt

_WORTH = {Verdict.CORRECT: 1.0, Verdict.UNPARSED: 0.0, Verdict.WRONG: -1.0}
_DIGITS = r"-?(?:\d{1,9}(?:\.\d{1,9})?|\.\d{1,9})"
_NUMBER = re.compile(rf"(?<![\w.])({_DIGITS})(\s*%|\s*/\s*{_DIGITS})?")


@dataclass(frozen=True)
class BestOfN(Organization):
    """Solvers write side by side, a verifier judges each solution, and the best one wins."""

    prompts: str = "paper"
    """Prompt style."""
    samples: int = 8
    """n: solutions."""
    judgements: int = 1
    """Verifiers of each solution; their mean counts."""
    by: Literal["verdict", "score"] = "verdict"
    """What counts: the verdict of the template `verifier`, or the number from 0 to 1 that is the last of a reply to
    `scorer`."""
    name: str = "best-of-n"

    roles = ("solver", "verifier")

    def __post_init__(self) -> None:
        require_at_least(1, self, "samples", "judgements")
        for template in ("solver", self.template):
            prompt(self.prompts, template, Problem("", "", ""))

    @property
    def template(self) -> str:
        """Template of the verifier's prompt."""
        return "verifier" if self.by == "verdict" else "scorer"

    def identical_agents(self, capacity: int) -> dict[str, int]:
        """How many agents get the same prompt, by role."""
        return {"solver": self.samples, "verifier": self.judgements}

    async def run(self, problem: Problem, session: Session) -> str | None:
        root, drafts, worth = session.controller(), dict[str, str](), dict[str, list[float]]()
        session.so_far = lambda: _best(problem, drafts, worth)
        wanted = {f"solution-{i}": prompt(self.prompts, "solver", problem) for i in range(1, self.samples + 1)}
        solutions = await ask_all(session, root, "solver", wanted)
        found = {key: reply.answer for key, reply in solutions.items() if reply.answer is not None}
        await all_prepared(problem, found.values())
        drafts |= found  # an ended episode votes on these only
        reviews = {
            f"{key}/{i}": prompt(self.prompts, self.template, problem, solution=solutions[key].text or NOTHING)
            for i in range(1, self.judgements + 1)
            for key in drafts
        }
        for place, reply in (await ask_all(session, root, "verifier", reviews)).items():
            worth.setdefault(place.partition("/")[0], []).append(self._worth(reply))
        if not drafts:
            for reply in solutions.values():
                session.unanswered(reply.agent)
        return _best(problem, drafts, worth)

    def _worth(self, reply: Reply) -> float:
        """The score of a judgement: its last number outside of code fences, if that is from 0 to 1; else 0."""
        if self.by == "verdict":
            return _WORTH[report_of(self.prompts, reply.text, reply.whole).verdict]
        lines = after_thinking(reply.text, ended=reply.whole).splitlines()
        own = [line for line, fenced in zip(lines, in_fences(lines), strict=True) if not fenced]
        numbers = list(_NUMBER.finditer("\n".join(own)))
        if not numbers:
            return 0.0
        number, rest = numbers[-1].groups()
        return float(number) if not rest and 0 <= float(number) <= 1 else 0.0


def _best(problem: Problem, drafts: dict[str, str], worth: dict[str, list[float]]) -> str | None:
    """The answer of the solution that was judged best; the most frequent answer of equals. An unjudged one has 0."""
    means = {key: fmean(worth.get(key, [0.0])) for key in drafts}
    return vote(problem, [drafts[key] for key in drafts if means[key] == max(means.values())])
