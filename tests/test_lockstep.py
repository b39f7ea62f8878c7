"""Schedules of recorded episodes, and the decoder that executes them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from devices import CUDA

pytest.importorskip("orgthink_pocket")

from benchmarks import lockstep
from benchmarks.lockstep import Cached, execute, measure, random_weights
from benchmarks.schedules import Turn, schedule, slots
from orgthink.measure.latency import critical_path
from orgthink.models.config import DecoderConfig
from orgthink.record.episode import Origin
from orgthink.record.episode_json import load

pytestmark = pytest.mark.thorough

GOLDEN = Path(__file__).parent / "golden" / "episodes.jsonl"
SMALL = DecoderConfig(512, 128, 384, 2, 4, 2, 32, 2048)
TURNS = (Turn(0, 0, 4, 5), Turn(1, 2, 9, 7), Turn(2, 3, 6, 3), Turn(0, 9, 12, 2), Turn(3, 9, 11, 4))


def continued(model, ids: list[int], n: int) -> list[int]:
    """The likeliest n tokens after these, by whole passes."""
    for _ in range(n):
        ids = [*ids, int(model(torch.tensor([ids], device=model.device))[0, -1].argmax())]
    return ids[-n:]


@pytest.fixture(scope="module", params=["cpu", CUDA])
def model(request: pytest.FixtureRequest):
    """Its texts vary, as those of the usual first weights do not."""
    model = random_weights(SMALL, torch.float64, request.param)
    for weight in model.parameters():
        if weight.ndim == 2:
            torch.nn.init.normal_(weight, std=1.5 / weight.shape[1] ** 0.5, generator=torch.Generator(weight.device))
    return model


@pytest.mark.numerical
def test_rows_that_wait_and_go_on_have_the_tokens_of_whole_passes(model):
    decoder, texts = Cached(model), {0: [3, 1, 4, 1, 5], 2: [9, 2, 6]}
    got = {row: [decoder.read(row, ids)] for row, ids in texts.items()}
    for active in ([0, 2], [2], [0], [0, 2]):
        for row, token in zip(active, decoder.step(active), strict=True):
            got[row].append(token)
    for row, ids in texts.items():
        assert got[row] == continued(model, ids, 4)
    injected = decoder.read(0, [got[0][-1], 7, 7])
    assert injected == continued(model, [*texts[0], *got[0], 7, 7], 1)[0], "what is injected follows the newest token"


def test_each_agent_at_work_decodes_once_a_step_and_a_pass_over_what_it_reads_is_its_step(model, monkeypatch):
    decoder, seen = Cached(model), []
    monkeypatch.setattr(decoder, "read", lambda row, ids: seen.append(("read", row, len(ids))))
    monkeypatch.setattr(decoder, "step", lambda rows: seen.append(tuple(rows)))
    assert execute(decoder, TURNS) == 12
    first = [("read", 0, 5), (0,), ("read", 1, 7), (0,), ("read", 2, 3), (0, 1), (1, 2), (1, 2), (1,), (1,), (1,)]
    assert seen == [*first, ("read", 0, 2), ("read", 1, 4), (0, 1), (0,)]


def test_an_agent_that_begins_finds_its_place_empty(model):
    decoder = Cached(model)
    for _ in range(2):
        execute(decoder, TURNS)
        assert decoder.lengths[:4] == [5 + 3 + 2 + 2, 4 + 1, 3 + 2, 0]


def test_a_place_is_free_again_when_its_agent_has_ended():
    assert slots(TURNS) == {0: 0, 1: 1, 2: 2, 3: 1}


def test_the_schedule_of_a_record_ends_with_its_critical_path():
    for episode in map(load, GOLDEN.read_bytes().splitlines()):
        turns = schedule(episode)
        assert max(turn.end for turn in turns) == critical_path(episode)
        for i, trace in enumerate(episode.traces):
            own = [turn for turn in turns if turn.agent == i]
            assert sum(turn.end - turn.start for turn in own) <= trace.steps
            if sum(turn.end - turn.start for turn in own) == trace.steps > 0:
                last = max(n for n, span in enumerate(trace.spans) if span.origin is Origin.SAMPLED)
                before = [span.tokens for span in trace.spans[:last] if span.origin is not Origin.SAMPLED]
                assert own[0].reads == before[0] and sum(turn.reads for turn in own) == sum(before)


def test_what_is_longer_than_the_cache_is_refused(model):
    with pytest.raises(ValueError, match=f"more than {lockstep.LENGTHS[-1]}"):
        Cached(model).read(0, [1] * (lockstep.LENGTHS[-1] + 1))


def test_seconds_are_saved_after_each_schedule_and_not_measured_again(model):
    wanted = {"a": {"0": {"p": TURNS, "q": TURNS}}, "b": {"0": {"p": TURNS}}}
    seconds, saved = {"a": {"0": {"p": 1.0}}}, []
    measure(Cached(model), wanted, seconds, lambda: saved.append({name: len(of["0"]) for name, of in seconds.items()}))
    assert saved == [{"a": 2}, {"a": 2, "b": 1}]
    assert seconds["a"]["0"]["p"] == 1.0 and seconds["a"]["0"]["q"] > 0
