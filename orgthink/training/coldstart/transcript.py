"""Parse a teacher's text into the texts of an organizer and its workers, or reject it (section 3.1 of AsyncThink).

    === FRAGMENTS ===    independent fragments of the thinking
    === ORGANIZER ===    the organizer's trace, with the results of its Joins
    === SUBTASK 1 ===    the sub-query of <FORK-1>
    === WORKER 1 ===     the thinking of that worker, up to its return
    … the last two sections for each fork

Text before the last FRAGMENTS line is ignored: a teacher may think first. Everything else is checked. Texts that must
be equal may differ in white space.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum

from orgthink.grammar.actions import Action, Answer, Fork, Join, Return, Think
from orgthink.grammar.asyncthink import DIALECT, AsyncThinkScanner, Injected, Keys, read
from orgthink.record.episode import FormatError
from orgthink.training.coldstart.structures import Step, render_plan

_FIRST = "=== FRAGMENTS ==="
_HEADER = re.compile(r"^=== ([A-Z]+(?: [0-9]{1,9})?) ===[ \t\r]*$", re.MULTILINE)


class Reason(StrEnum):
    """Reasons to drop a transcript, in addition to the format errors of the protocol."""

    LAYOUT = "LAYOUT"
    """The sections differ from those that the prompt requires."""
    STRUCTURE = "STRUCTURE"
    """The organizer's actions differ from the plan."""
    WORKERS = "WORKERS"
    """The worker sections do not match the forks one to one, in order."""
    SUB_QUERY = "SUB_QUERY"
    """A worker's sub-query is empty or differs from that of its fork."""
    NO_RETURN = "NO_RETURN"
    """A worker returns nothing."""
    JOIN_TEXT = "JOIN_TEXT"
    """The result of a Join is missing or differs from what its worker returned."""
    AFTER_END = "AFTER_END"
    """There is text after an answer or a return."""
    WRONG_ANSWER = "WRONG_ANSWER"
    """The answer is not all correct."""
    UNGRADED = "UNGRADED"
    """The grader failed. A resumed run grades the record again."""


class Dropped(Exception):
    """A transcript that breaks a rule."""

    def __init__(self, reason: Reason | FormatError, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail[:200]}" if detail else str(reason))
        self.reason, self.detail = reason, detail[:200]


def read_transcript(text: str, plan: Sequence[Step], capacity: int) -> tuple[str, list[str]]:
    """The organizer's context with the results of its Joins, tags in their canonical spelling, and the text of each
    worker in the order of the forks. Raises Dropped at the first broken rule."""
    organizer, workers = _sections(text)
    actions = _organized(organizer, capacity)
    _require_structure(actions, plan)
    forks = [part for part in actions if isinstance(part, Fork)]
    if [fork.key for fork in forks] != list(workers):
        raise Dropped(Reason.WORKERS, f"forks {[fork.key for fork in forks]}, workers {list(workers)}")
    returned = {fork.key: _returned(fork, *workers[fork.key]) for fork in forks}
    return _joined(actions, returned), [workers[fork.key][1] for fork in forks]


def _sections(text: str) -> tuple[str, dict[str, tuple[str, str]]]:
    """The organizer's text; sub-query and text of each worker by key."""
    text = text[max(text.rfind(_FIRST), 0) :]
    headers = list(_HEADER.finditer(text))
    names = [header[1] for header in headers]
    keys = [name.removeprefix("SUBTASK ") for name in names[2::2]]
    wanted = [name for key in keys for name in (f"SUBTASK {key}", f"WORKER {key}")]
    if names != ["FRAGMENTS", "ORGANIZER", *wanted] or len(set(keys)) < len(keys):
        raise Dropped(Reason.LAYOUT, f"sections {names}")
    ends = [*(header.start() for header in headers[1:]), len(text)]
    bodies = [text[header.end() : end].strip() for header, end in zip(headers, ends, strict=True)]
    return bodies[1], dict(zip(keys, zip(bodies[2::2], bodies[3::2], strict=True), strict=True))


def _organized(text: str, capacity: int) -> list[Action | Injected]:
    """The organizer's context, parsed and checked by the protocol. It must end with the answer."""
    actions, keys = read(text), Keys(capacity)
    for part in actions:
        if isinstance(part, Injected):
            continue
        fault = keys.check(part)
        if fault is None and isinstance(part, Think | Fork):
            inner = _actions(DIALECT.render(part), "return")
            fault = None if all(isinstance(action, Think) for action in inner) else FormatError.MALFORMED_TAG
        if fault is not None:
            raise Dropped(fault, DIALECT.render(part))
    end = next((part for part in actions if isinstance(part, Answer)), None)
    if end is None or not end.text.strip():
        raise Dropped(FormatError.NO_ANSWER)
    if actions[-1] is not end:
        raise Dropped(Reason.AFTER_END, "the organizer goes on after its answer")
    return actions


def _require_structure(actions: Sequence[Action | Injected], plan: Sequence[Step]) -> None:
    """Raise Dropped unless forks and joins follow the plan, with a thought wherever the plan has one."""
    done: list[Step] = []
    thought = False
    planned = {at for at, step in enumerate(plan) if step.action == "think"}
    for part in actions:
        match part:
            case Think(text):
                thought = thought or bool(text.strip())
            case Fork(key) | Join(key):
                if thought and len(done) in planned:
                    done.append(Step("think"))
                done.append(Step("fork" if isinstance(part, Fork) else "join", key))
                thought = False
    if thought and len(done) in planned:
        done.append(Step("think"))
    if done != list(plan):
        raise Dropped(Reason.STRUCTURE, f"{render_plan(done)} instead of {render_plan(plan)}")


def _returned(fork: Fork, query: str, text: str) -> str:
    """Text that a worker returns to its fork. Raises Dropped if the worker breaks a rule."""
    if not query or query.split() != fork.query.split():
        raise Dropped(Reason.SUB_QUERY, f"{query!r} instead of {fork.query.strip()!r}")
    actions = _actions(text, "fork", "join", "answer", "return")
    for action in actions:
        if not isinstance(action, Think | Return):
            raise Dropped(FormatError.MALFORMED_TAG, DIALECT.render(action))
    end = next((action for action in actions if isinstance(action, Return)), None)
    if end is None or not end.text.strip():
        raise Dropped(Reason.NO_RETURN, f"worker {fork.key} returns nothing")
    if actions[-1] is not end:
        raise Dropped(Reason.AFTER_END, f"worker {fork.key} goes on after its return")
    return end.text.strip()


def _joined(actions: Sequence[Action | Injected], returned: dict[str, str]) -> str:
    """The organizer's context in the spelling of the runtime. The result of each Join is its worker's return."""
    written: list[str] = []
    parts = iter(actions)
    for part in parts:
        assert not isinstance(part, Injected), "the result of a Join is consumed with the Join"
        written.append(DIALECT.render(part))
        if isinstance(part, Join):
            result, text = next(parts, None), returned[part.key]
            injected = result.text.rpartition("<")[0] if isinstance(result, Injected) else ""
            if injected.split() != text.split():
                raise Dropped(Reason.JOIN_TEXT, f"{injected!r}, but worker {part.key} returned {text!r}")
            written.append(DIALECT.injection(part.key, text))
    return "".join(written)


def _actions(text: str, *names: str) -> list[Action]:
    """The actions in a text; tags with these names are read, all other text is thought."""
    scanner = AsyncThinkScanner(*names)
    return [event.action for event in scanner.feed(text) + scanner.close()]
