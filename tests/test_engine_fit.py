"""The fit of an engine's model: it finds the model that made the seconds."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.engine_fit import LOCAL, Run, fitted, predicted, two_line_model
from orgthink.scale.simulation.program import AgentProgram, DecodeTokens, ReadTokens

TRUE = two_line_model(np.array([6e-5, 2e-5, 1.5e-7, 1.4e-5, 1.4e-4, 4e-4, 6e-4, 2e-4]), LOCAL, bend=8)


def wave(requests: int, prompt: int, tokens: int, turns: int) -> list[AgentProgram]:
    """Agents that decode in several requests, of which no two have the same length."""

    def agent(i: int) -> AgentProgram:
        later = [(ReadTokens(10), DecodeTokens(tokens + i)) for _ in range(turns - 1)]
        return AgentProgram(prompt, (DecodeTokens(tokens + i), *(step for turn in later for step in turn)))

    return [agent(i) for i in range(requests)]


def made(*waves: list[AgentProgram]) -> list[Run]:
    return [Run([programs], predicted(TRUE, Run([programs], 0))) for programs in waves]


def test_a_fit_predicts_runs_that_it_has_not_seen():
    sizes = [(n, prompt, tokens) for n in (1, 4, 16, 64) for prompt, tokens in ((10, 8), (10, 100), (300, 20))]
    model = fitted(
        made(*(wave(*size, turns=1) for size in sizes), *(wave(n, 10, 8, turns=6) for n in (1, 5, 40))), LOCAL
    )
    for run in made(wave(8, 20, 30, turns=4), wave(32, 100, 60, turns=1), wave(2, 10, 200, turns=2)):
        assert predicted(model, run) == pytest.approx(run.seconds, rel=0.02)
