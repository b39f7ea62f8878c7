"""The state that ToolOrchestra rebuilds at every step: documents, programs and attempts.

Each part has a bound: its oldest entries are left out. `transcript` is the same as a manager of ParaManager reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from orgthink.grammar.toolcall import CallStatus, Response, ToolCall, render_responses

PLACES = {"search": "documents", "knowledge_searcher": "documents", "python": "code", "code_reasoner": "code"}
"""Where in the state the results of a tool stand; those of the others are attempts."""


class OrchestratorStep(NamedTuple):
    """What happened in one step."""

    text: str
    """The orchestrator's reply."""
    call: ToolCall | None
    """Its call; `None` if it could not be read."""
    responses: tuple[Response, ...]
    """What came back; nothing in a step that calls `final_answer`."""
    left: int
    """Steps that were left."""

    @property
    def used(self) -> str | None:
        """The tool that was called; `None` if the call was refused."""
        made = self.call is not None and self.responses[0].status is not CallStatus.PARSE_ERR
        return self.call.name if self.call is not None and made else None


def rebuilt(
    steps: Sequence[OrchestratorStep], longest: int, after: Callable[[OrchestratorStep], str]
) -> Mapping[str, str]:
    """The parts of the state, of at most so many characters each. `after` is what follows the responses of a step in a
    transcript."""
    parts: dict[str, list[str]] = {"documents": [], "code": [], "attempts": []}
    for step in (step for step in steps if step.responses):
        place = PLACES.get(step.call.name if step.call else "", "attempts")
        program = [str(step.call.arguments["code"])] if step.call and "code" in step.call.arguments else []
        parts[place].append("\n".join([*program, render_responses(step.responses)]))
    found = [response.value for step in steps for response in step.responses if response.status is CallStatus.OK]
    whole = [f"{step.text}{render_responses(step.responses)}{after(step) if step.responses else ''}" for step in steps]
    return {
        **{name: _newest(entries, longest, "\n") for name, entries in parts.items()},
        "history": _newest(whole, longest, "\n"),
        "transcript": _newest(whole, longest, ""),
        "answers": " ; ".join(found),
    }


def _newest(parts: list[str], characters: int, between: str) -> str:
    """The newest of some texts that have no more characters together; the end of the newest if it has more itself."""
    found: list[str] = []
    for part in reversed(parts):
        if sum(map(len, found)) + len(part) > characters:
            break
        found.insert(0, part)
    return between.join(found) if found or not parts else parts[-1][-characters:] if characters else ""
