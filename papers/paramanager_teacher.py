"""A program in the manager's place: the teacher of the experiment with ParaManager, and the policies of its simulation.

`--model papers.paramanager_teacher:teacher:INFORMED` routes that share of its calls by the kind of a part. Of the other
calls, half go to the first member of the list that was not tried, and half to any. So the call that it prefers does not
depend on the part: the list is shuffled. A part whose call failed is sent again, and a wrong result is believed. A
round has all open parts, some, or one.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import AsyncGenerator, Sequence

from orgthink.engines.engine import Chunk, Context, Engine, FinishReason
from orgthink.grammar.toolcall import FINAL, CallStatus, ToolCall, read_responses, render_reply
from orgthink.record.episode import Origin, Sampling
from papers.paramanager_members import DESCRIPTIONS, RIGHT
from papers.paramanager_problems import FORM, parts

_MEMBER = {text: name for name, each in DESCRIPTIONS.items() for text in each}
ALL = ("all", "some", "one")
_PIECE = re.compile(r"\s?\w+|\s?[^\w\s]+|\s")


class Teacher(Engine):
    """Writes a manager's replies."""

    def __init__(
        self,
        informed: float,
        structures: Sequence[str] = ALL,
        lazy: float = 0.5,
        unknown: Sequence[str] = (),
    ) -> None:
        """`structures` are the parts of a round, `lazy` is the share of uninformed calls that go to the first of the
        list, and `unknown` members are never called for their nature."""
        self.model = f"teacher {informed:g}"
        self._informed, self._structures, self._lazy, self._unknown = informed, structures, lazy, unknown

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        seen = "".join(span.text for span in context.spans)
        texts = [span.text for span in context.spans if span.origin is not Origin.SAMPLED]
        reply = self._reply(texts, random.Random(f"{sampling.seed} {seen}"))
        yield Chunk(tuple(_PIECE.findall(reply)), finish=FinishReason.EOS)

    def _reply(self, texts: list[str], rng: random.Random) -> str:
        """The next reply: calls, `final_answer`, or the answer."""
        listed = dict(re.findall(r"^(m\d): (.+)$", texts[0], re.MULTILINE))
        questions = dict(re.findall(r"^([A-D])\) (.+)$", texts[0], re.MULTILINE))
        results, tried = dict[str, str](), defaultdict[str, list[str]](list)
        for response in read_responses("".join(texts[1:])):
            tried[response.subtask or ""].append(response.name)
            if response.status is CallStatus.OK:
                results[response.subtask or ""] = response.value
        left = [letter for letter in questions if letter not in results and len(tried[letter]) < len(listed)]
        if FORM in texts[-1] and len(texts) > 1:
            return f"\\boxed{{{'; '.join(results.get(letter, '?') for letter in questions)}}}"
        if not left or "left: 1." in texts[-1]:
            return render_reply("done", [ToolCall(FINAL, {})])
        part = {"all": left, "some": sorted(rng.sample(left, rng.randint(1, len(left)))), "one": left[:1]}
        calls = [
            ToolCall(self._routed(listed, parts()[questions[letter]].kind, tried[letter], rng), {"subtask": letter})
            for letter in part[rng.choice(self._structures)]
        ]
        return render_reply(" ".join(left), calls)

    def _routed(self, listed: dict[str, str], kind: str, tried: list[str], rng: random.Random) -> str:
        """The id of a member for a part."""
        free = [name for name in listed if name not in tried]
        right = [name for name in free if _MEMBER.get(listed[name]) == RIGHT[kind] not in self._unknown]
        if right and rng.random() < self._informed:
            return right[0]
        return free[0] if rng.random() < self._lazy else rng.choice(free)


def teacher(rest: str, **settings: object) -> Teacher:
    """The engine of a share of informed calls, such as `teacher:0.3`; all of them at once with `teacher:1:all`."""
    informed, _, structure = rest.partition(":")
    return Teacher(float(informed), (structure,) if structure else ALL)
