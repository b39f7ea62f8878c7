"""What engines and scanners of plug-ins need not write."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from orgthink.engines.engine import Chunk, Context, Engine, FinishReason, StreamDropped
from orgthink.grammar.actions import Answer, Event, Scanner
from orgthink.record.episode import Message, Problem, Sampling
from orgthink.runtime import Backing, Session, attempt
from orgthink.runtime.clock import run_virtual


class Stuttering(Engine):
    """Breaks off in the middle of its first reply, and says what it sees."""

    model = "stuttering"

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        self.seen.append(context.text)
        yield Chunk(("one ",))
        if len(self.seen) == 1:
            raise StreamDropped("gone")
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
    engine = Stuttering()
    episode = run_virtual(attempt(Listening(), Problem("p", "t", "Well?"), Backing(engine, Sampling(max_tokens=9))))
    assert episode.answer == "three"  # the scanner forgot the word before the stream broke off
    assert engine.seen == ["Listen.\n\nWell?< (a note)> And?"] * 2


def test_a_scanner_may_be_rewound_twice_to_one_mark() -> None:
    scanner = Third()
    scanner.feed("a ")
    mark = scanner.mark()
    for _ in range(2):
        scanner.feed("b c d")
        scanner.rewind(mark)
        assert scanner.words == ["a"]
