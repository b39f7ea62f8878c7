"""The pipeline of Huang & Yang (arXiv 2507.15855), the origin of MarsRL's reasoning system (section 2.1 of MarsRL).

    solution → improvement → completeness? → verification-1 → review-1 → correction-1 → completeness? → …

It has four things that MarsRL left out: a system prompt that puts rigor above an answer, a solver that improves its own
solution, a check that a solution claims to be complete, and a review of a report on errors before it is followed. After
a correction that does not claim to be complete it gives up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from orgthink.grammar.verdict import Report, Verdict
from orgthink.organizations.request import Reply
from orgthink.organizations.verifier_corrector import Ask, VerifierCorrector, report_of

DETAILED = "Detailed Solution"
"""Heads the part of a rigorous solution that is verified."""


@dataclass(frozen=True)
class HuangYang(VerifierCorrector):
    """Verifies and corrects rigorous solutions until one passes often enough."""

    passes: int = 5
    """k: a solution that passes so many verifications in a row is accepted."""
    rounds: int = 30
    """Verifications at most."""
    name: str = "huang-yang"

    templates: ClassVar[Mapping[str, str]] = {"solver": "rigorous_solver", "corrector": "rigorous_corrector"}
    players: ClassVar[Mapping[str, str]] = {"improve": "solver", "review": "verifier", "completeness": "verifier"}

    async def _improved(self, ask: Ask, number: str, draft: Reply) -> Reply:
        improved = await ask(f"improvement{number}", "improve", draft.text)
        return improved if improved.whole else draft

    async def _usable(self, ask: Ask, key: str, draft: Reply) -> bool:
        reply = await ask(f"completeness-{key}", "completeness", draft.text)
        return not (reply.whole and reply.text.strip(' .*"\n').lower() == "no")

    async def _verify(self, ask: Ask, i: int, draft: Reply) -> Report:
        _, heading, detailed = draft.text.rpartition(DETAILED)
        solution = detailed.lstrip(" *#:\n") if heading else draft.text
        reply = await ask(f"verification-{i}", "verifier", solution)
        report = report_of(self.prompts, reply.text, reply.whole)
        if report.verdict is not Verdict.WRONG:
            return report
        again = await ask(f"review-{i}", "review", solution, reply.text)
        reviewed = report_of(self.prompts, again.text, again.whole)
        return report if reviewed.verdict is Verdict.UNPARSED else reviewed
