"""Agents of AsyncThink that speak by a rule of what they have read, with token ids, a token a second."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from speaker import call

from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.grammar.fork_calls import CALL_NAMES
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.record.episode import Episode, Sampling
from orgthink.record.episode_json import require_integrity
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_virtual
from orgthink.tasks.math import MATH

PROBLEM = MATH.problem("2 + 3?", "5")
NOTE = "for this subtask:"
"""Begins what a worker is told of its subtask, whether it inherits a context or not."""


class Speaker(ScriptedEngine):
    """Says `rule(context)` to every request."""

    def __init__(self, rule: Callable[[str], str], fails: float = 0.0, model: str = "scripted") -> None:
        super().__init__([], model=model)
        self._rule, self._fails = rule, fails
        self.contexts: list[str] = []

    def _next(self, text: str) -> Turn:
        self.contexts.append(text)
        lot = zlib.crc32(text.encode()) % 1000 / 1000
        return Turn(self._rule(text), fails="boom" if lot < self._fails else None)


def organizing(
    seed: int,
    *,
    tools: bool = False,
    tell: bool = False,
    ask: bool = False,
    models: Sequence[str] = (),
    names: str = "fork",
) -> Callable[[str], str]:
    """Everybody thinks, forks, joins, tells and asks for the status at random, and ends after some requests. A Fork
    names one of the models, no model or an unknown one."""
    called = CALL_NAMES[names]

    def rule(text: str) -> str:
        rng = random.Random(f"{seed}|{text}")
        workers = max(text.rfind("You are now the"), text.rfind("You are a subprocess."), text.rfind("Next subtask:"))
        own = text[max(workers, 0) :]
        end = rng.random() < (0.15 if own.count("JOIN") + own.count("tool_response") < 6 else 0.9)
        words = " w" * rng.randrange(4)
        if end:
            return words + (" <RETURN> r </RETURN>" if workers >= 0 and not tools else " <ANSWER> 5 </ANSWER>")
        key = rng.choice("123")
        model = rng.choice(["", "unknown", *models, *models]) if models else ""
        if tools:
            task = {called.task: f"q{rng.randrange(99)}."} | ({"model": model} if model else {})
            kinds = [call(called.fork, **task), call(called.join, **{called.id: int(key)}), call(called.status)]
            kinds += [call(called.tell, **{called.id: int(key), called.task: "more."})] if tell else []
            return words + "".join(rng.choices(kinds, k=rng.randrange(1, 4)))
        named = f" model={model}" if model else ""
        kinds = [f" <FORK-{key}{named}> q{rng.randrange(99)} </FORK-{key}>", f" <JOIN-{key}>", " w", " w w w"]
        kinds += [" <STATUS>"] if ask else []
        joined = [one for one in "123" if f"</JOIN-{one}>" in own]
        kinds += [f" <TELL-{one}> more </TELL-{one}>" for one in ([key, *4 * joined] if tell else [])]
        return words + "".join(f"{rng.choice(kinds)}{' w' * rng.randrange(3)}" for _ in range(rng.randrange(1, 6)))

    return rule


def played(
    organization: AsyncThink,
    rule: Callable[[str], str],
    *,
    capacity: int = 4,
    depth: int = 2,
    fails: float = 0.0,
    approve: Any = None,
    tokens: int = 60,
    members: Mapping[str, Speaker] | None = None,
    **limits: Any,
) -> tuple[Episode, Speaker]:
    """`members` of a pool have engines of their own."""
    engine = Speaker(rule, fails)
    allowed = Limits(capacity, depth=depth, **limits)
    roles = {name: Backing(member, Sampling(tokens)) for name, member in (members or {}).items()}
    how = {"limits": allowed, "approve": approve, "roles": roles}
    episode = run_virtual(attempt(organization, PROBLEM, Backing(engine, Sampling(tokens)), **how))
    require_integrity(episode)
    return episode, engine


def scripted(organization: AsyncThink, script: Sequence[Turn], **limits: Any) -> Episode:
    """An episode of a strict script."""
    engine = ScriptedEngine(list(script))
    allowed = Limits(**{"capacity": 3, **limits})
    episode = run_virtual(attempt(organization, PROBLEM, Backing(engine, Sampling(500)), limits=allowed))
    run_virtual(engine.aclose())
    require_integrity(episode)
    return episode
