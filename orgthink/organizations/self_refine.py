"""Self-Refine (Madaan et al., 2023): a model improves its own answer by its own feedback. A baseline of ParaManager.

    draft → feedback-1 → refinement-1 → feedback-2 → refinement-2 → …

Each step is a call of its own, named after its work, and sees of the others what follows their thinking.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from orgthink.grammar.verdict import Verdict, read_report
from orgthink.organizations.prompts import prompt, style_named
from orgthink.organizations.request import NOTHING, Reply, answered, ask
from orgthink.record.episode import Problem
from orgthink.runtime.agent import Agent
from orgthink.runtime.organization import Organization
from orgthink.runtime.session import Session
from orgthink.util.errors import require_at_least

STEPS = {"sequential": "thinker", "feedback": "critic", "refine": "thinker"}
"""Role of each step, by its template. All roles have one model by default."""


@dataclass(frozen=True)
class SelfRefine(Organization):
    """One model refines its answer until its own feedback finds nothing to change."""

    prompts: str = "paper"
    """Prompt style."""
    rounds: int = 2
    """Refinements at most."""
    name: str = "self-refine"

    roles = ("thinker", "critic")

    def __post_init__(self) -> None:
        require_at_least(1, self, "rounds")
        for template in STEPS:
            prompt(self.prompts, template, Problem("", "", ""))

    async def run(self, problem: Problem, session: Session) -> str | None:
        root = session.controller()
        ask = partial(self._ask, problem, session, root)
        draft = await ask("draft", "sequential")
        session.so_far = lambda: draft.answer
        with session.until_spent(root):
            for i in range(1, self.rounds + 1):
                feedback = await ask(f"feedback-{i}", "feedback", draft.text)
                if not feedback.whole:
                    continue  # no feedback to follow
                report = read_report(feedback.text, style_named(self.prompts).verdicts)
                if report.verdict is Verdict.CORRECT and draft.answer is not None:
                    break
                refined = await ask(f"refinement-{i}", "refine", draft.text, report.findings)
                draft = refined if refined.whole and refined.answer is not None else draft
        return answered(draft.answer, draft, session)

    async def _ask(
        self, problem: Problem, session: Session, root: Agent, key: str, step: str, solution: str = "", report: str = ""
    ) -> Reply:
        """Have a step taken, with what it is shown."""
        messages = prompt(self.prompts, step, problem, solution=solution or NOTHING, report=report)
        return await ask(session, root, key, STEPS[step], messages)
