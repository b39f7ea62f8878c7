"""Chains of MarsRL in a checkpoint that somebody changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attacks.catalogue import Attack, each
from mars_words import Habits, WordEngine
from test_resume import settings, ticked

from orgthink.training.marsrl.pipeline import Chains
from orgthink.training.marsrl.settings import MarsSettings
from orgthink.util.errors import UserError

__all__ = ["settings"]

WHOLE = "Chains that do not fit together are a damaged checkpoint: the one before it serves."
LINE = "one line that names the chain"

Trace = dict[str, Any]


def within_spans(change: Callable[[Trace], object]) -> Callable[[list[Trace]], object]:
    return lambda traces: [change(span) for trace in traces for span in trace["spans"] if span["origin"] == "sampled"]


def moved(place: str) -> Callable[[list[Trace]], object]:
    return lambda traces: traces[-1].update(agent=f"controller/{place}")


@each(
    Attack("an output of a chain is gone, from which another was made", WHOLE, LINE, lambda traces: traces.pop(1)),
    Attack("a chain without its controller", WHOLE, LINE, lambda traces: traces.pop(0)),
    Attack("a chain without anything", WHOLE, LINE, lambda traces: traces.clear()),
    Attack("an output at a place beyond the last stage", WHOLE, LINE, moved("0.0.0.0.0.0")),
    Attack("an output at a place that is no number", WHOLE, LINE, moved("x")),
    Attack("an output at the place of −1", WHOLE, LINE, moved("-1")),
    Attack("a token of an output has no id", WHOLE, LINE, within_spans(lambda span: span["token_ids"].pop())),
    Attack("a token of an output has two log-probabilities", WHOLE, LINE,
           within_spans(lambda span: span["logprobs"].append(-1.0))),
)  # fmt: skip
def test_chains_that_do_not_fit(attack: Attack, settings: MarsSettings, tmp_path: Path) -> None:
    habits = Habits(solves=0.3, accuses=0.7, spellings=50)
    chains = Chains(settings)
    ticked(chains, WordEngine(habits), 0, 4)
    chains.snapshot()(tmp_path)
    state = json.loads((tmp_path / "chains.json").read_text())
    long = max(state["chains"], key=lambda chain: len(chain["traces"]))
    attack.given(long["traces"])
    (tmp_path / "chains.json").write_text(json.dumps(state))
    with pytest.raises(UserError, match=r"chains\.json: ") as caught:
        Chains(settings).load(tmp_path, 4)
    assert "\n" not in str(caught.value)
