"""The pipeline of Huang & Yang (arXiv 2507.15855), the origin of MarsRL's reasoning system (section 2.1 of MarsRL).

    solution → improvement → completeness? → verification-1 → review-1 → correction-1 → completeness? → …

It has four things that MarsRL left out: a system prompt that puts rigor above an answer, a solver that improves its own
solution, a check that a solution claims to be complete, and a review of a report on errors before it is followed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from orgthink.grammar.verdict import Report, Verdict
from orgthink.organizations.request import Reply
from orgthink.organizations.verifier_corrector import IMPROVE, Ask, VerifierCorrector, report_of
from orgthink.util.errors import UserError

DETAILED = "Detailed Solution"
"""Heads the part of a rigorous solution that is verified."""


@dataclass(frozen=True)
class HuangYang(VerifierCorrector):
    """Verifies and corrects rigorous solutions until one passes often enough."""

    passes: int = 5
    """k: a solution that passes so many verifications in a row is accepted."""
    rounds: int = 30
    """Verifications at most."""
    improve: bool = True
    """The solver improves its own solution before it is verified."""
    review: bool = True
    """The verifier goes through its own report on errors once more, before anything is corrected."""
    completeness: bool = True
    """A solution that does not claim to be complete is written again; after such a correction it gives up."""
    rigorous: bool = True
    """Solver and corrector get the system prompt that puts rigor above an answer; otherwise MarsRL's prompts."""
    name: str = "huang-yang"

    rigorous_templates: ClassVar[Mapping[str, str]] = {"solver": "rigorous_solver", "corrector": "rigorous_corrector"}

    def __post_init__(self) -> None:
        try:
            super().__post_init__()
        except UserError as error:
            without = "rigorous=false, review=false, completeness=false and improve=false do without"
            raise UserError(f"{error}; {without}") from error

    @property
    def templates(self) -> Mapping[str, str]:  # type: ignore[override]  # of the setting
        return self.rigorous_templates if self.rigorous else {}

    @property
    def parts(self) -> tuple[str, ...]:
        more = {IMPROVE: self.improve, "review": self.review, "completeness": self.completeness}
        return (*self.roles, *(part for part, wanted in more.items() if wanted))

    async def _usable(self, ask: Ask, key: str, draft: Reply) -> bool:
        if not draft.whole or not self.completeness:
            return draft.whole
        reply = await ask(f"completeness-{key}", "completeness", draft.text)
        return not (reply.whole and reply.text.strip(' .*"\n').lower() == "no")

    async def _verify(self, ask: Ask, i: int, draft: Reply) -> Report:
        _, heading, detailed = draft.text.rpartition(DETAILED)
        solution = detailed.lstrip(" *#:\n") if heading else draft.text
        reply = await ask(f"verification-{i}", "verifier", solution)
        report = report_of(self.prompts, reply.text, reply.whole)
        if report.verdict is not Verdict.WRONG or not self.review:
            return report
        again = await ask(f"review-{i}", "review", solution, reply.text)
        reviewed = report_of(self.prompts, again.text, again.whole)
        return report if reviewed.verdict is Verdict.UNPARSED else reviewed
