"""A person as an engine: what they type is the stream. So any organization may have people in any role.

A prompt becomes a question in an inbox, and so does everything that is injected later. How a reply ends:

- where its text may go on for ever, such as an organizer's, with a stop text (an answer, a Join) or an empty message.
  Each message is acted on at once, and the next one is awaited.
- where it ends in one way only, such as a worker's `</RETURN>`, with the first message. The tags are put around it if
  the person leaves them out.
- everywhere else with the first message.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from itertools import takewhile

from orgthink.engines.engine import Chunk, Context, Engine, FinishReason
from orgthink.engines.inbox import Declined, Inbox, OpenQuestion
from orgthink.engines.scripted import pieces
from orgthink.record.episode import Origin, Sampling
from orgthink.util.errors import PersonDeclined

_CLOSING = re.compile(r"</([^<>/]+)>")


class PersonEngine(Engine):
    """Lets a person write, who is asked through an inbox."""

    def __init__(self, person: str, inbox: Inbox) -> None:
        """`person` is who it is, for the record."""
        self.person = self.model = person
        self._inbox = inbox

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        stops = sampling.stop
        only = _CLOSING.fullmatch(stops[0]) if len(stops) == 1 else None
        goes_on = bool(stops) and only is None
        text = ""
        try:
            async with aclosing(self._inbox.ask(self._question(context, _hint(stops, only)))) as messages:
                async for message in messages:
                    if message.strip():
                        end = _end(text + message, stops)
                        if only is not None and end is None:
                            message = f"<{only[1]}> {message} {only[0]}"
                            end = len(message)
                        message = message if end is None else message[: end - len(text)]
                        over = end is not None or not goes_on
                        message += "" if over else "\n"
                        text += message
                        yield Chunk(tuple(pieces(message)), finish=_finish(end) if over else None)
                        if over:
                            return
                    elif goes_on:
                        yield Chunk((), finish=FinishReason.EOS)
                        return
        except Declined:
            raise PersonDeclined(f"{self.person} declined") from None

    def _question(self, context: Context, hint: str) -> OpenQuestion:
        return OpenQuestion(f"{self.person} is asked:", _news(context), hint)

    async def aclose(self) -> None:
        """Nothing is held: open questions belong to their streams."""


def _news(context: Context) -> str:
    """What the person has not seen yet: the prompt, or what was injected since they wrote."""
    new = list(takewhile(lambda span: span.origin is not Origin.WRITTEN, reversed(context.spans)))
    return "".join(span.text for span in reversed(new)).strip()


def _hint(stops: tuple[str, ...], only: re.Match[str] | None) -> str:
    if only is not None:
        return f"<{only[1]}> and {only[0]} are put around it"
    return f"each line is acted on at once, {stops[0]} or an empty line ends the reply" if stops else ""


def _end(text: str, stops: tuple[str, ...]) -> int | None:
    """Where the first stop text ends; `None` without one."""
    return min((at + len(stop) for stop in stops if (at := text.find(stop)) >= 0), default=None)


def _finish(end: int | None) -> FinishReason:
    return FinishReason.EOS if end is None else FinishReason.STOP
