"""Steps of verl's trainer that do not wait for their slowest episode: `python -m verl.trainer.main_ppo` on a shipped
model and a CPU, with real Ray, TransferQueue, FSDP workers, and servers that are paused in the middle of outputs.
`make test-verl`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from orgthink.training.checkpoint import load_state

pytest.importorskip("verl")

from benchmarks import verl_cluster
from orgthink.training import checkpoint
from orgthink.training.cluster.verl.launch import Placement, run
from orgthink.training.episodes import State
from orgthink.training.recipes.registry import RECIPES, Training, adjusted, start

pytestmark = pytest.mark.verl

RECIPE = "asyncthink-pocket"
SETTINGS = ["steps=4", "save_every=1", "warmup=0", "minibatches=1", "rollout.group=4", "rollout.problems=3", "ahead=2"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Placement]:
    with verl_cluster.cluster() as placement:
        yield placement


def test_outputs_go_on_under_the_weights_of_the_next_step(cluster: Placement, tmp_path: Path):
    """Tokens of the newest weights have the trainer's log-probabilities, those after a pause among them: the servers
    read what they had anew. Older ones are trained too, with their ages."""
    folder = start(Training(RECIPE, adjusted(RECIPES[RECIPE], {}, SETTINGS)), tmp_path / "run")
    run(folder, cluster)
    lines = [json.loads(line) for line in (folder.path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    for line in lines:
        assert (line["drawn_groups"], line["underway"]) == (3, 2)
        assert line["trained_tokens"] > 0
        assert line["logprob_difference"] <= 1e-5 and line["logprob_difference_max"] <= 1e-4
    assert lines[0]["age_max"] == 0 and max(line["age_max"] for line in lines[1:]) >= 1
    for step, saved in enumerate(checkpoint.saved(folder.path), 1):
        place = load_state(saved / "problems.json", State)
        assert place.drawn >= 3 * step + 2 and len({problem.id for problem in place.underway}) == 2
