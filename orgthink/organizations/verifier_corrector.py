"""MarsRL's reasoning system (sections 2.1 and 3.1): a solver, a verifier that judges, a corrector that mends.

    solution → verification-1 → correction-1 → verification-2 → correction-2 → …

Each agent, named after its work, decodes to the end of its text, and what follows its thinking is all that the others
see of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from orgthink.episode import Message, Problem
from orgthink.errors import require_at_least
from orgthink.grammar.verdict import Report, Verdict, read_report
from orgthink.organizations.prompts import prompt, style_named
from orgthink.organizations.reply import NOTHING, Reply, answered, ask
from orgthink.runtime.agent import Agent
from orgthink.runtime.session import Session
from orgthink.tasks.vote import vote

IMPROVE = "improve"
"""Template of the solver's second look at its own solution."""


@dataclass(frozen=True)
class VerifierCorrector:
    """Corrects a solution until it passes; if none does, takes the one that was most often judged correct."""

    prompts: str = "paper"
    """Prompt style."""
    passes: int = 1
    """k: a solution that passes so many verifications in a row is accepted."""
    failures: int = 10
    """m: after so many verifications in a row that fail it gives up."""
    rounds: int = 10
    """Verifications at most."""
    improve: bool = False
    """The solver looks at its own solution once more before anyone else does."""
    name: str = "verifier_corrector"

    roles = ("solver", "verifier", "corrector")

    def __post_init__(self) -> None:
        require_at_least(1, self, "passes", "failures", "rounds")
        if self.passes > self.rounds:
            raise ValueError(f"passes is {self.passes}, more than the {self.rounds} rounds: nothing could be accepted")
        for template in (*self.roles, *([IMPROVE] if self.improve else [])):
            prompt(self.prompts, template, Problem("", "", ""))

    async def run(self, problem: Problem, session: Session) -> str | None:
        root = session.controller()
        ask = partial(self._ask, problem, session, root)
        draft = await ask("solution", "solver")
        drafts, believed = [draft], list[str]()
        session.so_far = lambda: _selected(problem, drafts, believed)
        passed, failed = 0, 0
        with session.until_spent(root):
            if self.improve:
                improved = await ask("improvement", IMPROVE, draft.text)
                draft = improved if improved.whole else draft
                drafts = [draft]
            for i in range(1, self.rounds + 1):
                report = await self._verify(ask, i, draft)
                if report.verdict is Verdict.CORRECT and draft.answer is not None:
                    believed.append(draft.answer)
                    passed, failed = passed + 1, 0
                    if passed == self.passes:
                        return draft.answer
                elif report.verdict is not Verdict.UNPARSED:  # a draft without an answer fails, whatever its verdict
                    passed, failed = 0, failed + 1
                    if failed == self.failures or i == self.rounds:
                        break
                    corrected = await ask(f"correction-{len(drafts)}", "corrector", draft.text, report.findings)
                    draft = corrected if corrected.whole else draft
                    drafts.append(draft)
        return answered(_selected(problem, drafts, believed), draft, session)

    async def _verify(self, ask: Callable[..., Awaitable[Reply]], i: int, draft: Reply) -> Report:
        reply = await ask(f"verification-{i}", "verifier", draft.text)
        return report_of(self.prompts, reply.text, reply.whole)

    async def _ask(
        self, problem: Problem, session: Session, root: Agent, key: str, part: str, solution: str = "", report: str = ""
    ) -> Reply:
        """Let a role play its part, which is its own or the solver's second one, with what it is shown."""
        messages = role_prompt(self.prompts, part, problem, solution, report)
        return await ask(session, root, key, "solver" if part == IMPROVE else part, messages)


def role_prompt(style: str, part: str, problem: Problem, solution: str = "", report: str = "") -> tuple[Message, ...]:
    """The input of a role, or of its second part: the problem, the solution that stands, and the findings on it."""
    return prompt(style, part, problem, solution=solution or NOTHING, report=report)


def report_of(style: str, text: str, whole: bool) -> Report:
    """The report in what a verifier wrote. One that was cut off gives no verdict, whatever it says so far."""
    return read_report(text, style_named(style).verdicts) if whole else Report(Verdict.UNPARSED, "")


@dataclass(frozen=True)
class HuangYang(VerifierCorrector):
    """The pipeline of Huang & Yang (2025) that MarsRL's system was made from: it asks for more, and for longer."""

    passes: int = 5
    """k: a solution that passes so many verifications in a row is accepted."""
    rounds: int = 30
    """Verifications at most."""
    improve: bool = True
    """The solver looks at its own solution once more before anyone else does."""
    name: str = "huang-yang"


def _selected(problem: Problem, drafts: list[Reply], believed: list[str]) -> str | None:
    """The answer most often judged correct, the latest among equals; if none ever was, the latest answer of all."""
    return vote(problem, believed[::-1]) or next((d.answer for d in reversed(drafts) if d.answer is not None), None)
