"""What nodes of a workflow come to: texts, the answers in them, and a status, as templates of later nodes see them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from orgthink.grammar.toolcall import CUT, CallStatus, cut_middle
from orgthink.grammar.verdict import Verdict, VerdictForm, read_report
from orgthink.tools.agents import code_in

MOST_TEXT = 20_000
"""Characters of an output that a template is filled with; a longer one loses its middle."""
MOST_FILLED = 200_000
"""Characters of a text that is put together of others, so that texts made of texts do not grow without end."""


@dataclass(frozen=True, slots=True)
class NodeOutput:
    """What came of a node."""

    status: CallStatus
    """How it went, as a manager is told of its calls."""
    texts: tuple[str, ...] = ()
    """What it came to: one a sample, or one a part of a split."""
    answers: tuple[str, ...] = ()
    """The answers in these; those without one are left out."""
    error: str = ""
    """Why there is nothing, on one line."""
    views: dict[str, str] = field(default_factory=dict, compare=False, repr=False)
    """What templates have taken of it so far, cut to what they may take: they may take it a thousand times."""

    @property
    def answer(self) -> str | None:
        """The first answer."""
        return self.answers[0] if self.answers else None


def text_output(*texts: str) -> NodeOutput:
    return NodeOutput(CallStatus.OK, texts, tuple(text for text in texts if text))


def failed_output(error: str, status: CallStatus = CallStatus.EXEC_ERR) -> NodeOutput:
    return NodeOutput(status, error=error)


Known = Mapping[str, NodeOutput]
"""Outputs so far, by the names that templates use."""


class Found:
    """What a block could answer if it ended now: what was found last."""

    def __init__(self) -> None:
        self.offers: list[Callable[[], str | None]] = []
        """Of its nodes that are at work or have ended."""

    def best(self) -> str | None:
        return next((text for offer in reversed(self.offers) if (text := offer())), None)


def viewed(output: NodeOutput, view: str, separator: str, verdicts: VerdictForm) -> str:
    """What `{node.VIEW}` takes from an output; `separator` stands between its samples. It is the same all through a
    run, as the verdicts are."""
    if view not in output.views:
        output.views[view] = cut_middle(_viewed(output, view, separator, verdicts), MOST_TEXT)
    return output.views[view]


def _viewed(output: NodeOutput, view: str, separator: str, verdicts: VerdictForm) -> str:
    text = separator.join(output.texts)
    match view:
        case "":
            return text
        case "answer":
            return separator.join(output.answers)
        case "status":
            return output.status
        case "error":
            return output.error
        case "json":
            return json.dumps(output.answers, ensure_ascii=False)
        case "code":
            return code_in(text) or ""
    reports = [read_report(each, verdicts) for each in output.texts]
    if view == "findings":
        return separator.join(report.findings for report in reports)
    found = [report.verdict for report in reports if report.verdict is not Verdict.UNPARSED]
    return found[-1] if found else Verdict.UNPARSED


def together(pieces: Sequence[str]) -> str:
    """Texts as one. Of what would be too long the two ends, and its middle is never put together."""
    if sum(map(len, pieces)) <= MOST_FILLED:
        return "".join(pieces)
    half = MOST_FILLED // 2
    head, tail = "".join(_enough(pieces, half)), "".join(list(_enough(reversed(pieces), half))[::-1])
    return f"{head[:half]}{CUT}{tail[-half:]}"


def _enough(pieces: Iterable[str], characters: int) -> Iterator[str]:
    """The first of these texts that have so many characters."""
    for piece in pieces:
        if characters <= 0:
            return
        yield piece
        characters -= len(piece)
