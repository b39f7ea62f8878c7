"""A model's context that is full: a manager's rounds end, and long histories are cut so that whoever reads them can."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

import pytest
from managed import PROBLEM, Managed, ask, kinds, program, reply, seen, told

from orgthink.engines.engine import Chunk, Context, FinishReason
from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.grammar.toolcall import CUT, CallStatus
from orgthink.measure.orchestration import rounds, statuses
from orgthink.organizations.paramanager import ParaManager
from orgthink.record.episode import Episode, Exhausted, FormatError, Sampling, StopReason
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_virtual
from orgthink.util.errors import ContextFull

pytestmark = pytest.mark.thorough

SUMMARY = Turn("all in all <ANSWER> 7 </ANSWER>", when="summary")


class Small(ScriptedEngine):
    """A model with a context of so many tokens."""

    def __init__(
        self, turns: Sequence[Turn], limit: int, *, says: bool = True, refuses: Exception | None = None
    ) -> None:
        super().__init__(turns)
        self.limit, self.refuses = limit, refuses
        self.max_context = limit if says else None

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        if self.refuses is not None:
            raise self.refuses
        left = self.limit - len(context.token_ids)
        if left < 1 and len(context.spans) == 1:
            raise ContextFull("the prompt does not fit")
        if left < 1:
            yield Chunk((), (), (), FinishReason.LENGTH)
            return
        most = min(left, sampling.max_tokens)
        async for chunk in super().stream(context, Sampling(most)):
            yield chunk


def managed(manager: ScriptedEngine, summarizer: ScriptedEngine, organization: ParaManager) -> Episode:
    roles = {"summarizer": Backing(summarizer, Sampling(100))}
    backing = Backing(manager, Sampling(1000))
    return run_virtual(attempt(organization, PROBLEM, backing, roles=roles, limits=Limits(9)))


def test_a_full_context_ends_the_rounds_and_the_answer_is_written_from_what_was_found():
    turns = [reply(program("print " + "o " * 60)), *[reply(program("print 7"))] * 11]
    engine = Small(turns, 140)
    episode = managed(engine, ScriptedEngine([SUMMARY]), Managed(synthesis="summarizer"))
    assert (episode.answer, episode.stop, kinds(episode)) == ("7", StopReason.BUDGET, [FormatError.TRUNCATED])
    assert statuses(episode)[CallStatus.PARSE_ERR] == 0 and len(rounds(episode)) <= 3
    used = sum(span.tokens for span in episode.root.spans)
    assert episode.root.exhausted == Exhausted("context", used, used) and used >= 140
    assert "o o o" in seen(episode, "manager/answer")


@pytest.mark.parametrize("says", [True, False])
@pytest.mark.parametrize("role", ["summarizer", "critical_reviewer"])
def test_a_history_that_is_too_long_loses_its_middle_until_it_can_be_read(role: str, says: bool):
    """Whether the engine says how much it reads, or only refuses what is too much."""
    first = program("print begin " + "o " * 900 + "end")
    made = [reply(first, when="You lead a team"), reply(ask("critical_reviewer"), when="Rounds left")]
    final = reply(("final_answer", {}), when="Rounds left")
    answers = [Turn("all in all <ANSWER> 7 </ANSWER>")] * 2
    engines = {"manager": ScriptedEngine([*made, final]), "critical_reviewer": ScriptedEngine(answers[:1])}
    engines |= {"summarizer": ScriptedEngine(answers[:1]), role: Small(answers[:1], 800, says=says)}
    backings = {name: Backing(engine, Sampling(1000)) for name, engine in engines.items()}
    organization = Managed("paper", synthesis="summarizer")
    episode = run_virtual(attempt(organization, PROBLEM, backings["manager"], roles=backings, limits=Limits(9)))
    (reader,) = (trace for trace in episode.traces if trace.role == role)
    prompt = reader.spans[0].text
    assert CUT in prompt and "print begin" in prompt and sum(span.tokens for span in reader.spans) <= 800
    assert episode.answer == "7" and told(episode, 2)[0].status is CallStatus.OK and reader.turns == 1
