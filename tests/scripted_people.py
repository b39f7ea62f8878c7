"""A person on a script, in virtual time: answers the questions of an inbox after so many seconds."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from orgthink.engines.person import Inbox, PersonEngine


@dataclass(frozen=True)
class Answer:
    """What the person does about one question."""

    writes: str | tuple[str, ...] | None = None
    """Messages, or a text of which each line is one; `None` declines."""
    when: str = ""
    """It fits questions with this text."""
    seconds: float = 1.0
    """Before each message."""
    never: bool = False
    """They look at it and do nothing."""


@dataclass
class ScriptedPerson:
    """Takes up every question at once, as many people would. Several questions may be open."""

    answers: list[Answer]
    inbox: Inbox = field(default_factory=Inbox)
    questions: list[str] = field(default_factory=list)
    """Text of every question, in order."""
    late: int = 0
    """Messages for which nobody waited any more."""

    def __post_init__(self) -> None:
        self._taken: dict[int, asyncio.Task[None]] = {}
        self.inbox.watchers.append(self._changed)

    def engine(self, name: str = "ann") -> PersonEngine:
        return PersonEngine(name, self.inbox)

    def _changed(self) -> None:
        for number, question in self.inbox.open.items():
            if number not in self._taken:
                self.questions.append(question.text)
                work = self._answer(number, self._next(question.text))
                self._taken[number] = asyncio.get_running_loop().create_task(work)

    def _next(self, text: str) -> Answer:
        for i, answer in enumerate(self.answers):
            if answer.when in text:
                return self.answers.pop(i)
        raise AssertionError(f"no answer fits: {text!r}")

    async def _answer(self, number: int, answer: Answer) -> None:
        if answer.never:
            return
        messages = answer.writes.split("\n") if isinstance(answer.writes, str) else answer.writes or (None,)
        for message in messages:
            await asyncio.sleep(answer.seconds)
            if number not in self.inbox.open:
                self.late += 1
            else:
                self.inbox.write(number, message)


def ann(*answers: Answer | str) -> ScriptedPerson:
    return ScriptedPerson([Answer(each) if isinstance(each, str) else each for each in answers])
