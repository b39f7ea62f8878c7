"""MarsRL's reasoning system (sections 2.1 and 3.1): a solver, a verifier and a corrector.

    solution → verification-1 → correction-1 → verification-2 → correction-2 → …

Each agent, named after its work, decodes to the end of its text. The others see of it only what follows its thinking,
and nothing if it was cut off: half a solution is not judged, and half a correction does not replace a solution.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from orgthink.grammar.verdict import Report, Verdict, read_report
from orgthink.organizations.prompts import prompt, style_named
from orgthink.organizations.request import NOTHING, Reply, answered, ask
from orgthink.record.episode import Message, Problem
from orgthink.runtime.agent import Agent
from orgthink.runtime.organization import Organization
from orgthink.runtime.session import Session
from orgthink.tasks.vote import prepared, vote
from orgthink.util.errors import require_at_least

Ask = Callable[..., Awaitable[Reply]]
"""Sends a part's prompt to a new agent, by the agent's key, the part, and what it is shown."""


@dataclass(frozen=True)
class VerifierCorrector(Organization):
    """A solver writes, a verifier judges, a corrector repairs until a solution passes (MarsRL).

    If none passes, the answer that was most often judged correct wins.
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
        drafts, believed = [await ask("solution", "solver")], list[str]()
        session.so_far = lambda: _selected(problem, drafts, believed)
        with session.until_spent(root):
            if await self._drafted(ask, drafts) and await self._accepted(ask, drafts, believed):
                return drafts[-1].answer
        return answered(_selected(problem, drafts, believed), drafts[-1], session)

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

    async def _accepted(self, ask: Ask, drafts: list[Reply], believed: list[str]) -> bool:
        """Verify and correct; whether the last draft is accepted. `believed` gets the answers that were judged correct,
        as often as they were."""
        passed = failed = corrections = 0
        for i in range(1, self.rounds + 1):
            draft = drafts[-1]
            report = await self._verify(ask, i, draft)
            if report.verdict is Verdict.CORRECT and draft.answer is not None:
                believed.append(draft.answer)
                passed, failed = passed + 1, 0
                if passed == self.passes:
                    return True
            elif report.verdict is not Verdict.UNPARSED:  # a draft without an answer fails, whatever its verdict
                passed, failed, corrections = 0, failed + 1, corrections + 1
                if failed > self.failures or i == self.rounds:  # the last correction is verified too
                    break
                key = f"correction-{corrections}"
                corrected = await ask(key, "corrector", draft.text, report.findings)
                if corrected.whole and not await self._usable(ask, key, corrected):
                    break
                drafts.append(corrected if corrected.whole else draft)
        return False

    async def _verify(self, ask: Ask, i: int, draft: Reply) -> Report:
        reply = await ask(f"verification-{i}", "verifier", draft.text)
        return report_of(self.prompts, reply.text, reply.whole)

    async def _ask(
        self, problem: Problem, session: Session, root: Agent, key: str, part: str, solution: str = "", report: str = ""
    ) -> Reply:
        """Let a role play a part, with what it is shown."""
        messages = role_prompt(self.prompts, self.templates.get(part, part), problem, solution, report)
        reply = await ask(session, root, key, self.players.get(part, part), messages)
        await prepared(problem, reply.answer)
        return reply


def role_prompt(style: str, part: str, problem: Problem, solution: str = "", report: str = "") -> tuple[Message, ...]:
    """The input of a role, or of its second part: the problem, the solution that stands, and the findings on it."""
    return prompt(style, part, problem, solution=solution or NOTHING, report=report)


def report_of(style: str, text: str, whole: bool) -> Report:
    """The report in what a verifier wrote. One that was cut off gives no verdict, whatever it says so far."""
    return read_report(text, style_named(style).verdicts) if whole else Report(Verdict.UNPARSED, "")


def _selected(problem: Problem, drafts: list[Reply], believed: list[str]) -> str | None:
    """The answer most often judged correct, the latest among equals; if none ever was, the latest answer of all."""
    return vote(problem, believed[::-1]) or next((d.answer for d in reversed(drafts) if d.answer is not None), None)
