"""A trace of a rehearsal as its reader sees it: what was asked, what came back, and what programs said of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from orgthink_pocket.style import NAMED, SEPARATOR
from orgthink_pocket.tasks.ledger import entries
from orgthink_pocket.teachers.countdown_review import NO_SOLUTION

from orgthink.grammar.solution import read_proposal
from orgthink.grammar.toolcall import CallStatus, ManagerReply, Response, ToolCall, read_reply, read_responses
from orgthink.record.episode import Origin, Trace
from orgthink.tasks.expression import parse

PRICES = {entry.name: str(entry.coins) for entry in entries()}
THOUGHT = re.compile(r"(?P<notes>(?:\d+ (?:ok|bad|= [^;]+) ; )*)(?P<intent>ask|check|final)(?: (?P<named>.*))?")
"""Of one who works on a countdown, but for a scan."""


@dataclass(frozen=True)
class Rehearsed:
    """A manager's trace as its reader sees it."""

    trace: Trace

    @cached_property
    def head(self) -> list[str]:
        """`manager`, the calls of a round at most, `left`, the rounds, …"""
        return self.trace.spans[0].text.partition(" ; ")[0].split()

    @cached_property
    def question(self) -> str:
        return self.trace.spans[0].text.partition(" ; ")[2]

    @cached_property
    def kind(self) -> str:
        return self.question.split()[0]

    @cached_property
    def replies(self) -> list[ManagerReply]:
        """Of the rounds, the last with `final_answer`, if rounds were left for it."""
        return [read_reply(span.text) for span in self.trace.spans if span.origin is Origin.SAMPLED][:-1]

    @cached_property
    def told(self) -> list[tuple[Response, ...]]:
        """What came back, round by round."""
        shown = [span.text for span in self.trace.spans if span.origin is Origin.INJECTED]
        return [read_responses(text) for text in shown if "<tool_response>" in text]

    @cached_property
    def left(self) -> list[int]:
        """Rounds that are left, before the first and after each."""
        shown = [span.text for span in self.trace.spans if span.origin is Origin.INJECTED]
        return [int(self.head[3]), *(int(text.split()[-1]) for text in shown if "<tool_response>" in text)]

    @cached_property
    def answer(self) -> str | None:
        return read_proposal(self.trace.spans[-1].text, ended=True).answer

    @cached_property
    def rounds(self) -> list[list[tuple[ToolCall, Response]]]:
        """Calls with what came of them."""
        calls = [[call for call in reply.calls if isinstance(call, ToolCall)] for reply in self.replies]
        return [list(zip(made, told, strict=True)) for made, told in zip(calls, self.told, strict=False)]

    @property
    def most(self) -> int:
        """Calls of a round at most."""
        return int(self.head[1])

    @property
    def parts(self) -> list[str]:
        """The countdowns of the problem, `2 4 6 9 13 = 17` each; of another, the one expression."""
        return [part.rpartition(NAMED)[2] for part in self.question.partition(" ")[2].split(SEPARATOR)]

    @property
    def task(self) -> str:
        return f"{self.kind}-mini" + ({1: "-single", 4: "-four"}[len(self.parts)] if self.kind == "countdown" else "")

    @property
    def answers(self) -> list[tuple[str, str]]:
        """What a right answer is worth and the answer, of each part."""
        wanted = [part.split()[-1] if self.kind == "countdown" else _computed(part) for part in self.parts]
        return list(zip(wanted, (self.answer or "").split(SEPARATOR), strict=True))

    @cached_property
    def programs(self) -> list[list[tuple[str, str]]]:
        """Round by round, what programs were to print that went well, and what they printed."""
        return [
            [
                (asked, said)
                for call, response in pairs
                if call.name == "python" and response.status is CallStatus.OK
                for asked, said in zip(expressions(call), response.value.split(), strict=True)
            ]
            for pairs in self.rounds
        ]

    def checked(self, n: int) -> list[tuple[str, str, bool]]:
        """Targets, offers and whether they are the same, by the programs of a round of countdown."""
        pairs = [(asked.split("== "), said) for asked, said in self.programs[n] if "==" in asked]
        return [(target, offer, {"True": True, "False": False}[said]) for (target, offer), said in pairs]

    def offered(self, n: int) -> list[tuple[str, str]]:
        """Targets and the first solution that agents offered, by the calls of a round of countdown that went well."""
        made = [
            (call.arguments.get("subtask", self.question).split()[-1], response.value.split(SEPARATOR)[0].strip())
            for call, response in self.rounds[n]
            if call.name in ("standard_reasoner", "ensemble_solver") and response.status is CallStatus.OK
        ]
        return [(target, offer) for target, offer in made if offer != NO_SOLUTION]

    def solved(self, n: int) -> set[str]:
        """Targets that programs had found a solution of when a reply was written."""
        return {target for before in range(n) for target, _, same in self.checked(before) if same}

    def waiting(self, n: int) -> list[tuple[str, str]]:
        """Targets and offers that no program had looked at when a reply was written, in the order of their arrival."""
        made = dict.fromkeys(pair for before in range(n) for pair in self.offered(before))
        looked_at = {(target, offer) for before in range(n) for target, offer, _ in self.checked(before)}
        return [pair for pair in made if pair not in looked_at]

    def thought(self, n: int) -> tuple[list[str], str, list[str]] | None:
        """What a reply to a countdown begins with: notes, what it is for, and what it names; `None` for a scan."""
        found = THOUGHT.fullmatch(self.replies[n].reasoning or "")
        if found is None:
            return None
        named = found["named"] or ""
        notes = found["notes"].split(SEPARATOR)[:-1]
        return notes, found["intent"], [named] if found["intent"] == "final" and named else named.split()


def _computed(expression: str) -> str:
    return str(parse(priced(expression, PRICES)).value)


def priced(expression: str, prices: dict[str, str]) -> str:
    """An expression with these prices in place of their names."""
    return re.sub(r"[a-z]+ [a-z]+", lambda name: prices.get(name[0], name[0]), expression)


def expressions(call: ToolCall) -> list[str]:
    """The expressions that a call names."""
    if call.name == "python":
        return [part.strip() for part in call.arguments["code"].removeprefix("print(")[:-1].split(",")]
    subtask = call.arguments.get("subtask")
    return [subtask.strip().removeprefix("arithmetic ")] if subtask else []
