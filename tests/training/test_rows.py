"""Rows: masks, ids, and the masks that reinforcement learning will use."""

import pytest

from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.episode import Origin, Sampling, Span, Trace
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.clock import run_virtual
from orgthink.tasks import COUNTDOWN_MINI
from orgthink.training.rows import row_of


def test_the_join_tag_is_trained_and_what_it_brings_is_not():
    engine = ScriptedEngine(
        [
            Turn(" <FORK-1> q </FORK-1> <JOIN-1>", when="main process"),
            Turn(" <RETURN> r </RETURN>", when="Subtask"),
            Turn(" <ANSWER> 1 </ANSWER>", when="r </JOIN-1>"),
        ]
    )
    problem = next(COUNTDOWN_MINI.problems("test", 0))
    episode = run_virtual(attempt(AsyncThink(), problem, Backing(engine, Sampling(50))))
    row = row_of(episode.root)
    trained = [i for i, t in zip(row.token_ids, row.trained, strict=True) if t]
    said = engine.injection(" <FORK-1> q </FORK-1> <JOIN-1> <ANSWER> 1 </ANSWER>")[1]
    assert trained == list(said)
    assert row.token_ids[-len(said) - 2 :] != said  # ` r </JOIN-1>` stands between them
    assert sum(row.trained) == episode.root.steps


def test_spans_are_encoded_one_by_one():
    trace = Trace("a", "a", None, (Span(Origin.PROMPT, "ab", 1), Span(Origin.SAMPLED, "c", 1)))
    row = row_of(trace, encode=lambda text: tuple(map(ord, text)), eos_id=0)
    assert row.token_ids == (97, 98, 99, 0)
    assert row.trained == (False, False, True, True)


def test_a_span_without_ids_needs_a_tokenizer():
    trace = Trace("a", "a", None, (Span(Origin.PROMPT, "ab", 1),))
    with pytest.raises(ValueError, match="no token ids"):
        row_of(trace)
