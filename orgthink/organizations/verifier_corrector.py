"""MarsRL's reasoning system (sections 2.1 and 3.1): a solver, a verifier and a corrector.

    solution → verification-1 → correction-1 → verification-2 → correction-2 → …

Each agent, named after its work, decodes to the end of its text. The others see of it only what follows its thinking,
and nothing if it was cut off: half a solution is not judged, and half a correction ends the loop. A draft is the
solver's solution or a correction.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

from orgthink.grammar.verdict import Report, Verdict, read_report
from orgthink.organizations.prompts import prompt, style_named
from orgthink.organizations.request import NOTHING, Reply, answered, ask
from orgthink.record.episode import Message, Problem
from orgthink.runtime.agent import Agent
from orgthink.runtime.organization import Organization
from orgthink.runtime.session import Session
from orgthink.util.errors import require_at_least

Ask = Callable[..., Awaitable[Reply]]
"""Sends a part's prompt to a new agent, by the agent's key, the part, and what it is shown."""


@dataclass(frozen=True)
class VerifierCorrector(Organization):
    """A solver writes, a verifier judges, a corrector repairs until a solution passes (MarsRL).

    If none passes, the draft that was verified most often wins, the earliest of equals, as in the authors' code.
    """

    prompts: str = "paper"
    """Prompt style."""
    passes: int = 4
    """k: a solution that passes so many verifications in a row is accepted; 4 as in the authors' code."""
    failures: int = 10
    """m: after so many corrections in a row it gives up if the next verification fails too; 10 as in the authors'
    code."""
    rounds: int = 11
    """Verifications at most: the first one, and one in each of the ten iterations of the authors' code."""
    attempts: int = 3
    """Times that the solver is asked at most, while its solution is cut off; 3 as in the authors' code."""
    fallback: Literal["verified", "passed"] = "verified"
    """Which reports count if no draft is accepted: all with a verdict, as in the authors' code, or `passed`: only those
    that judge the draft correct, as in the paper's text. They differ for the last draft only."""
    name: str = "verifier-corrector"

    roles = ("solver", "verifier", "corrector")
    templates: ClassVar[Mapping[str, str]] = {}
    """Templates of parts that are not named after the part."""
    players: ClassVar[Mapping[str, str]] = {}
    """Roles of further parts of an organization that derives from this one."""

    def __post_init__(self) -> None:
        require_at_least(1, self, "passes", "failures", "rounds", "attempts")
        if self.passes > self.rounds:
            raise ValueError(f"passes is {self.passes}, more than the {self.rounds} rounds: nothing could be accepted")
        for part in (*self.roles, *self.players):
            prompt(self.prompts, self.templates.get(part, part), Problem("", "", ""))

    async def run(self, problem: Problem, session: Session) -> str | None:
        root = session.controller()
        ask = partial(self._ask, problem, session, root)
        drafts, counted = [await ask("solution", "solver")], list[Reply]()
        session.so_far = lambda: _selected(drafts, counted)
        with session.until_spent(root):
            if await self._drafted(ask, drafts) and await self._accepted(ask, drafts, counted):
                return drafts[-1].result
        return answered(_selected(drafts, counted), drafts[-1], session)

    async def _drafted(self, ask: Ask, drafts: list[Reply]) -> bool:
        """Ask for another solution if it is unusable; whether there is one to verify."""
        for i in range(1, self.attempts + 1):
            number = "" if i == 1 else f"-{i}"
            if number:
                drafts.append(await ask(f"solution{number}", "solver"))
            if drafts[-1].agent.error is not None:
                return False
            if drafts[-1].whole:
                drafts[-1] = await self._improved(ask, number, drafts[-1])
                if await self._usable(ask, f"solution{number}", drafts[-1]):
                    return True
        return False

    async def _improved(self, ask: Ask, number: str, draft: Reply) -> Reply:
        """A better form of a complete solution, before it is verified."""
        return draft

    async def _usable(self, ask: Ask, key: str, draft: Reply) -> bool:
        """Whether a complete solution may be verified. Without a usable one it gives up."""
        return True

    async def _accepted(self, ask: Ask, drafts: list[Reply], counted: list[Reply]) -> bool:
        """Verify and correct; whether the last draft is accepted. `counted` gets a draft as often as it is verified."""
        passed = failed = corrections = 0
        for i in range(1, self.rounds + 1):
            draft = drafts[-1]
            report = await self._verify(ask, i, draft)
            right, wrong = (report.verdict is verdict for verdict in (Verdict.CORRECT, Verdict.WRONG))
            if right or (wrong and self.fallback == "verified"):
                counted.append(draft)
            if right:
                passed, failed = passed + 1, 0
                if passed == self.passes:
                    return True
            elif wrong:
                passed, failed, corrections = 0, failed + 1, corrections + 1
                if failed > self.failures or i == self.rounds:  # the last correction is verified too
                    break
                key = f"correction-{corrections}"
                corrected = await ask(key, "corrector", draft.text, report.findings)
                if not corrected.whole or not await self._usable(ask, key, corrected):
                    break
                drafts.append(corrected)
        return False

    async def _verify(self, ask: Ask, i: int, draft: Reply) -> Report:
        reply = await ask(f"verification-{i}", "verifier", draft.text)
        return report_of(self.prompts, reply.text, reply.whole)

    async def _ask(
        self, problem: Problem, session: Session, root: Agent, key: str, part: str, solution: str = "", report: str = ""
    ) -> Reply:
        """Let a role play a part, with what it is shown."""
        messages = role_prompt(self.prompts, self.templates.get(part, part), problem, solution, report)
        return await ask(session, root, key, self.players.get(part, part), messages)


def role_prompt(style: str, part: str, problem: Problem, solution: str = "", report: str = "") -> tuple[Message, ...]:
    """The input of a role, or of its second part: the problem, the solution that stands, and the findings on it."""
    return prompt(style, part, problem, solution=solution or NOTHING, report=report)


def report_of(style: str, text: str, whole: bool) -> Report:
    """The report in what a verifier wrote. One that was cut off gives no verdict, whatever it says so far."""
    return read_report(text, style_named(style).verdicts) if whole else Report(Verdict.UNPARSED, "")


def _selected(drafts: list[Reply], counted: list[Reply]) -> str | None:
    """The result of the draft that was counted most often, the earliest of equals; of a draft that was cut off only if
    no draft is complete."""
    return max(drafts, key=lambda draft: (draft.whole, draft.result is not None, counted.count(draft))).result
