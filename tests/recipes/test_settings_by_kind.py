"""Rewards and credits of a recipe are named; their settings go with the name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orgthink.rewards.asyncthink import AsyncThinkReward
from orgthink.rewards.paramanager import ParaManagerReward
from orgthink.training.recipes.registry import RECIPES, adjusted
from orgthink.util.errors import UserError
from orgthink.util.settings import plain, typed

RECIPE = RECIPES["asyncthink-qwen3-countdown"]
PLUGIN = Path(__file__).parents[1] / "plugin" / "dice.py"


def settings(*given: str):
    return adjusted(RECIPE, {}, given).settings


@pytest.mark.parametrize(
    ("given", "reward"),
    [
        (["reward.weight=0.1"], AsyncThinkReward(weight=0.1)),
        (["reward=asyncthink"], AsyncThinkReward()),
        (["reward.kind=paramanager"], ParaManagerReward()),
        (["reward=paramanager", "reward.gate=none"], ParaManagerReward()),
        (["reward.kind=paramanager", "reward.gate=correct"], ParaManagerReward(gate="correct")),
        (['reward={"kind": "paramanager", "task": 2}'], ParaManagerReward(task=2.0)),
        (["reward.weight=0.1", "reward.kind=paramanager"], ParaManagerReward()),
        (["reward.weight=0.1", "reward.kind=asyncthink"], AsyncThinkReward(weight=0.1)),
    ],
)
def test_which_reward_it_is(given: list[str], reward: object):
    assert settings(*given).reward == reward


def test_a_reward_and_a_credit_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(PLUGIN.parent)
    found = settings("reward=dice.py:Variety", "reward.weight=0.5", "credit.kind=dice.py:Ranks")
    data = json.loads(json.dumps(plain(found)))
    assert data["reward"] == {"kind": f"{PLUGIN}:Variety", "weight": 0.5}
    assert data["credit"] == {"kind": f"{PLUGIN}:Ranks", "size": 1.0}
    monkeypatch.chdir(tmp_path)
    assert typed(type(found), data, "config.json") == found


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("reward.wieght=1", "reward has no 'wieght': did you mean weight?"),
        ('reward={"kind": "paramanager", "weight": 1}', "reward has no 'weight'"),
        ('rollout.limits={"capcity": 2}', "rollout.limits has no 'capcity': did you mean capacity?"),
        ('rollout.organization={"organization": "asyncthink", "settings": {"tolrant": 1}}', "did you mean tolerant?"),
        ("reward.kind=asincthink", "did you mean asyncthink?"),
        ("reward=none", "unknown reward 'none'"),
        ("credit.kind=nobody.py:X", "there is no file nobody.py"),
        (f"credit={PLUGIN}:Variety", "does not fit here: it is not derived from EpisodeCredit"),
        (f"reward={PLUGIN}:Varieti", "did you mean Variety?"),
        ("credit.delta=-1", "delta is -1"),
        ("credit.normalise=perhaps", "credit.normalise"),
        ("normalize=std", "a policy training has no 'normalize'"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_line_that_names_the_nearest(given: str, words: str):
    with pytest.raises(UserError, match=r"^--set") as caught:
        settings(given)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_a_mapping_takes_a_name_that_it_does_not_have_yet():
    """vLLM's settings are not known here, and those of the recipe remain."""
    job = adjusted(RECIPE, {}, ["sampler_settings.max_model_len=4096", "sampler_settings.hf_overrides.a=true"])
    assert job.sampler_settings == {
        "gpu_memory_utilization": 0.3, "max_model_len": 4096, "hf_overrides": {"a": True},
    }  # fmt: skip
    own = ["engine.model=helper", "sampling.max_tokens=9"]
    models = adjusted(RECIPE, {}, [f"rollout.models.worker.{one}" for one in own]).settings.rollout.models
    assert models["worker"].engine.model == "helper" and models["worker"].sampling.max_tokens == 9
    with pytest.raises(UserError, match=r"rollout\.models\.worker has no 'sampled': did you mean sampling"):
        settings("rollout.models.worker.sampled=1")
