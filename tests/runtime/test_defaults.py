"""What engines and scanners of plug-ins need not write."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from orgthink.engines.engine import Chunk, Context, Engine, FinishReason
from orgthink.grammar.actions import Answer, Event, Scanner
from orgthink.record.episode import Message, Problem, Sampling
from orgthink.runtime import Backing, Session, attempt
from orgthink.runtime.clock import run_virtual


class Plain(Engine):
    """Records what it reads."""

    model = "plain"

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        self.seen.append(context.text)
        yield Chunk(("one ",))
        yield Chunk(("two ", "three "), finish=FinishReason.EOS)


class Third(Scanner):
    """The third word is the answer."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def feed(self, text: str) -> list[Event]:
        self.words += text.split()
        return [Event(Answer(self.words[2]), len(text))] if len(self.words) == 3 else []

    def close(self) -> list[Event]:
        return []


class Listening:
    """An agent that is told something before it speaks."""

    name = "listening"
    roles = ("listener",)

    async def run(self, problem: Problem, session: Session) -> str | None:
        listener = session.agent("listener", (Message("system", "Listen."), Message("user", problem.text)))
        listener.inject(" (a note)", around=("<", ">"))
        listener.tell(" And?")
        async for action in listener.act(Third()):
            if isinstance(action, Answer):
                return action.text
        return None


def test_an_engine_writes_stream_only_and_a_scanner_feed_and_close_only() -> None:
    engine = Plain()
    episode = run_virtual(attempt(Listening(), Problem("p", "t", "Well?"), Backing(engine, Sampling(max_tokens=9))))
    assert episode.answer == "three"
    assert engine.seen == ["Listen.\n\nWell?< (a note)> And?"]
