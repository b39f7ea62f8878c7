"""Results that are much longer than what their caller may read."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from attacks.catalogue import Attack, each

from orgthink.engines.engine import Chunk, Context, FinishReason
from orgthink.engines.scripted import ScriptedEngine
from orgthink.record.episode import Problem, Sampling
from orgthink.runtime import Backing, Session, attempt

READ = "Of a result that is too long only its beginning is read: the others' work goes on meanwhile."


class Counting(ScriptedEngine):
    """Remembers the longest text whose tokens it was to count."""

    longest = 0

    def injection(self, text: str, around: tuple[str, str] = ("", "")) -> tuple[str, None]:
        self.longest = max(self.longest, len(text))
        return super().injection(text, around)

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        yield Chunk(("done",), finish=FinishReason.EOS)


async def cut(text: str, tokens: int) -> tuple[str, int]:
    """What an agent reads of a text, and the longest text whose tokens were counted for it."""
    engine, found = Counting([]), list[str]()

    class One:
        name, roles = "one", ("one",)

        async def run(self, problem: Problem, session: Session) -> str | None:
            found.append(session.agent("one", ()).cut(text, tokens))
            return "done"

    await attempt(One(), Problem("p", "", "q"), Backing(engine, Sampling(max_tokens=5)))
    return found[0], engine.longest


@each(
    Attack("a search server finds a passage of 7 MB in words", READ, "its beginning", "word " * 1_400_000),
    Attack("a search server finds a passage of 7 MB in a word", READ, "its beginning", "x" * 7_000_000),
    Attack("a function returns 7 MB of spaces", READ, "its beginning", " " * 7_000_000),
    Attack("a function returns what fits, to the last letter", READ, "all of it", "a " * 99),
    Attack("a function returns 7 MB of emoji", READ, "its beginning", "😀" * 1_750_000),
)
async def test_the_beginning_is_read(attack: Attack) -> None:
    found, longest = await cut(attack.given, 100)
    assert attack.given.startswith(found) and longest <= 5_000
    assert found == attack.given or len(attack.given) > 5_000
