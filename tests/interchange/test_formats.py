"""Rows in the formats of other trainers. Each is read back as its trainer reads it, and must say what the row says."""

from __future__ import annotations

import ast
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden.scale import make
from hypothesis import given
from hypothesis import strategies as st

from orgthink import interchange as formats
from orgthink.errors import UserError
from orgthink.interchange import areal, prime_rl, skyrl, slime, tinker, trl, verl
from orgthink.interchange.shared import check
from orgthink.training.policy_loss import token_weights
from orgthink.training.rows import PolicyRow

NEWEST = 7
"""Version of the newest weights."""

Reduction = Any
REDUCTIONS: list[Reduction] = ["token-mean", "episode-mean"]


def random_row(rng: random.Random, ages: str = "any") -> PolicyRow:
    """A row whose first token is its prompt. `ages` are `any`, `one` for the whole row, or `fresh`."""
    trained = (False, *(rng.random() < 0.5 for _ in range(rng.randrange(8))), True) + (False,) * rng.randrange(3)
    oldest = 0 if ages == "fresh" else NEWEST
    age = rng.randint(0, oldest)
    return PolicyRow(
        token_ids=tuple(rng.randrange(1 << 20) for _ in trained),
        trained=trained,
        logprobs=tuple(-rng.randrange(1 << 12) / (1 << 9) if on else 0.0 for on in trained),  # exact in 32 bits
        advantage=rng.randint(-32, 32) / 8,
        temperature=1.0,
        episode="e",
        agent="a",
        role="r",
        group="g",
        age=tuple((rng.randint(0, oldest) if ages == "any" else age) if on else 0 for on in trained),
    )


def minibatch(ages: str = "any", *, shared: bool = False) -> st.SearchStrategy[list[PolicyRow]]:
    """Rows of some groups, each of some episodes, each of some rows, which may share an advantage."""

    def made(seed: int) -> list[PolicyRow]:
        rng, rows = random.Random(seed), []
        for group in range(rng.randint(1, 2)):
            for episode in range(rng.randint(1, 3)):
                own = [random_row(rng, ages) for _ in range(rng.randint(1, 3))]
                for agent, row in enumerate(own):
                    named = replace(
                        row,
                        group=f"g{group}",
                        episode=f"g{group}|{episode}",
                        agent=f"agent/{agent}",
                        role=f"role {agent % 2}",
                    )
                    rows.append(replace(named, advantage=own[0].advantage) if shared else named)
        return rows

    return st.integers(0, 1 << 30).map(made)


def one(ages: int = 0, **fields: Any) -> PolicyRow:
    """A plain row: two tokens of a prompt, two sampled, one injected, one sampled."""
    trained = (False, False, True, True, False, True)
    row = PolicyRow(
        (5, 6, 7, 8, 9, 4), trained, (0.0, 0.0, -1.0, -2.0, 0.0, -0.5), 1.0, 1.0, "p|asyncthink|0", "organizer",
        "organizer", "p",
        tuple(ages if on else 0 for on in trained),
    )  # fmt: skip
    return replace(row, **fields)


def told(rows: Sequence[PolicyRow], reduction: Reduction) -> list[float]:
    """What each token of all rows counts: its advantage times its weight, 0 where nothing is trained."""
    each = zip(rows, token_weights(rows, reduction), strict=True)
    return [row.advantage * weight if on else 0.0 for row, weight in each for on in row.trained]


# The check


@given(minibatch())
def test_what_can_be_trained_passes(rows: list[PolicyRow]):
    check(rows)


NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"token_ids": (5, 6, 7, 8, 9)}, r"lengths \[5, 6\]"),
        ({"trained": (False, True)}, r"lengths \[2, 6\]"),
        ({"logprobs": (0.0,) * 7}, r"lengths \[6, 7\]"),
        ({"age": ()}, r"lengths \[0, 6\]"),
        ({"token_ids": (), "trained": (), "logprobs": (), "age": ()}, "nothing in it is trained"),
        ({"trained": (False,) * 6, "logprobs": (0.0,) * 6}, "nothing in it is trained"),
        ({"trained": (True,) * 6}, "first token is trained"),
        ({"token_ids": (5, 6, -7, 8, 9, 4)}, "token id -7"),
        ({"advantage": NAN}, "advantage is nan"),
        ({"advantage": -INF}, "advantage is -inf"),
        ({"advantage": 1e39}, "advantage is 1e\\+39"),
        ({"temperature": 0.0}, "temperature is 0.0"),
        ({"temperature": NAN}, "temperature is nan"),
        ({"temperature": INF}, "temperature is inf"),
        ({"logprobs": (0.0, 0.0, -1.0, NAN, 0.0, -0.5)}, "token 3 has log-probability nan"),
        ({"logprobs": (0.0, 0.0, -1.0, -INF, 0.0, -0.5)}, "token 3 has log-probability -inf"),
        ({"logprobs": (0.0, 0.0, -1.0, -2.0, -0.1, -0.5)}, "token 4 is not trained and has log-probability -0.1"),
        ({"age": (0, 0, 0, 0, 3, 0)}, "token 4 is not trained .* age 3"),
        ({"age": (0, 0, -1, 0, 0, 0)}, "token 2 has age -1"),
    ],
)
@pytest.mark.parametrize("target", make.TARGETS)
def test_no_target_takes_what_cannot_be_trained(target: str, fields: dict[str, Any], message: str):
    with pytest.raises(UserError, match=rf"^episode p\|asyncthink\|0, organizer: .*{message}") as caught:
        make.TARGETS[target]([one(), one(**fields)], "token-mean")
    assert "\n" not in str(caught.value)


# What each target reads


@given(minibatch(), st.sampled_from([0.7, 1.0]))
def test_verl_has_everything(rows: list[PolicyRow], temperature: float):
    rows = [replace(row, temperature=temperature) for row in rows]
    outputs = verl.outputs(rows, version=NEWEST, temperature=temperature)
    assert [read_verl(output, temperature) for output in outputs] == rows
    for output, row in zip(outputs, rows, strict=True):
        ages = [age for age, on in zip(row.age, row.trained, strict=True) if on]
        assert output["extra_fields"]["min_global_steps"] == NEWEST - max(ages)
        assert output["extra_fields"]["max_global_steps"] == NEWEST - min(ages)
        assert output["response_mask"][0] == 1
        assert output["reward_score"] == row.advantage


def read_verl(output: verl.Output, temperature: float) -> PolicyRow:
    before, extra = len(output["prompt_ids"]), output["extra_fields"]
    drawn_by = [NEWEST if version < 0 else version for version in extra["policy_versions"]]
    return PolicyRow(
        token_ids=(*output["prompt_ids"], *output["response_ids"]),
        trained=(False,) * before + tuple(bool(on) for on in output["response_mask"]),
        logprobs=(0.0,) * before + tuple(output["response_logprobs"]),
        advantage=extra["advantage"],
        temperature=temperature,
        episode=extra["episode"],
        agent=extra["agent"],
        role=extra["role"],
        group=extra["uid"],
        age=(0,) * before + tuple(NEWEST - version for version in drawn_by),
    )


@given(minibatch("one"))
def test_trl_has_all_but_names(rows: list[PolicyRow]):
    samples = trl.samples(rows, version=NEWEST, temperature=1.0)
    for sample, row in zip(samples, rows, strict=True):
        assert sample["input_ids"].tolist() == list(row.token_ids)
        assert sample["completion_mask"].tolist() == [int(on) for on in row.trained]
        assert sample["old_log_probs"].tolist() == list(row.logprobs)
        assert sample["advantage"] == row.advantage
        assert sample["model_version"] == NEWEST - max(row.age)
        assert {array.dtype for array in (sample["input_ids"], sample["completion_mask"])} == {np.dtype("int64")}
        assert sample["old_log_probs"].dtype == np.dtype("float32")
    same_number(rows, "group", [sample["group_id"] for sample in samples])


def same_number(rows: Sequence[PolicyRow], field: str, numbers: Sequence[int]) -> None:
    """Rows have one number if, and only if, they have one name."""
    pairs = {(getattr(row, field), number) for row, number in zip(rows, numbers, strict=True)}
    assert len(pairs) == len({name for name, _ in pairs}) == len(set(numbers))
    assert all(0 <= number < 1 << 63 for number in numbers)


@given(minibatch("fresh"), st.sampled_from(REDUCTIONS))
def test_tinker_s_sum_over_targets_is_our_loss(rows: list[PolicyRow], reduction: Reduction):
    data = tinker.data(rows, reduction=reduction)
    for datum, row in zip(data, rows, strict=True):
        inputs = datum["loss_fn_inputs"]
        assert {len(datum["model_input"]), *map(len, inputs.values())} == {len(row) - 1}  # type: ignore[arg-type]
        assert (*datum["model_input"], inputs["target_tokens"][-1]) == row.token_ids
        assert (datum["model_input"][0], *inputs["target_tokens"]) == row.token_ids
        assert (0.0, *inputs["logprobs"]) == row.logprobs
    counted = [value for datum in data for value in (0.0, *datum["loss_fn_inputs"]["advantages"])]
    assert counted == told(rows, reduction)


@given(minibatch("fresh"), st.sampled_from(REDUCTIONS))
def test_the_means_of_skyrl_s_tinker_server_are_our_loss(rows: list[PolicyRow], reduction: Reduction):
    data = tinker.data(rows, reduction=reduction, server="row-mean")
    targets = [datum["loss_fn_inputs"]["advantages"] for datum in data]
    counted = [value / len(of) / len(targets) for of in targets for value in (0.0, *of)]
    assert counted == pytest.approx(told(rows, reduction), rel=1e-12)


@given(minibatch("fresh"), st.sampled_from(REDUCTIONS))
def test_prime_rl_s_weighted_mean_is_our_loss(rows: list[PolicyRow], reduction: Reduction):
    rows = [replace(row, temperature=0.5 + i) for i, row in enumerate(rows)]
    samples = prime_rl.samples(rows, env_name="task", reduction=reduction)
    for sample, row in zip(samples, rows, strict=True):
        assert tuple(sample["token_ids"]) == row.token_ids
        assert tuple(sample["mask"]) == row.trained
        assert tuple(sample["logprobs"]) == row.logprobs
        assert sample["temperatures"] == [row.temperature] * len(row)
        assert sample["env_name"] == "task"
    weights = [sample["rl_weights"] or [float(on) for on in sample["mask"]] for sample in samples]
    members = sum(
        weight != 0 and on
        for of, row in zip(weights, rows, strict=True)
        for weight, on in zip(of, row.trained, strict=True)
    )
    each = zip(weights, samples, strict=True)
    counted = [w * a / members for of, sample in each for w, a in zip(of, sample["advantages"], strict=True)]
    assert counted == pytest.approx(told(rows, reduction), rel=1e-12)


@given(minibatch("fresh", shared=True))
def test_skyrl_s_broadcast_of_the_last_step_is_our_advantage(rows: list[PolicyRow]):
    output = skyrl.output(rows, temperature=1.0)
    assert {len(value) for value in output.values()} == {len(rows)}  # type: ignore[arg-type]
    last = output["is_last_step"]
    rewards = [reward for reward, ends in zip(output["rewards"], last, strict=True) if ends]
    trajectory = [0, *accumulate(last[:-1])]
    assert last[-1] and sum(last) == len({row.episode for row in rows})
    assert [rewards[i] for i in trajectory] == [row.advantage for row in rows]
    for i, row in enumerate(rows):
        before = len(output["prompt_token_ids"][i])
        assert (*output["prompt_token_ids"][i], *output["response_ids"][i]) == row.token_ids
        assert (*[0] * before, *output["loss_masks"][i]) == row.trained
        assert (*[0.0] * before, *output["rollout_logprobs"][i]) == row.logprobs
        assert output["trajectory_ids"][i]["instance_id"] == row.group
    names = [f"{of['instance_id']}_{of['repetition_id']}" for of in output["trajectory_ids"]]
    assert len({*zip(names, (row.episode for row in rows), strict=True)}) == len(set(names)) == sum(last)
    for group in {row.group for row in rows}:
        tries = {of["repetition_id"] for of in output["trajectory_ids"] if of["instance_id"] == group}
        assert tries == set(range(len(tries)))


@given(minibatch("one"), st.sampled_from(REDUCTIONS))
def test_slime_s_means_are_our_losses(rows: list[PolicyRow], reduction: Reduction):
    """The token-mean under --calculate-per-token-loss; else the mean over rollouts, each the mean over its tokens."""
    samples = slime.samples(rows, version=NEWEST, temperature=1.0)
    tokens: Counter[int] = Counter()
    for sample, row in zip(samples, rows, strict=True):
        before = len(row) - sample["response_length"]
        assert tuple(sample["tokens"]) == row.token_ids
        assert (*[0] * before, *sample["loss_mask"]) == row.trained
        assert (*[0.0] * before, *sample["rollout_log_probs"]) == row.logprobs
        assert sample["weight_versions"] == [str(NEWEST - max(row.age))]
        assert sample["metadata"] == {
            "episode": row.episode,
            "agent": row.agent,
            "role": row.role,
            "group": row.group,
        }
        tokens[sample["rollout_id"]] += sum(sample["loss_mask"])
    same_number(rows, "group", [sample["group_index"] for sample in samples])
    same_number(rows, "episode", [sample["rollout_id"] for sample in samples])
    assert [sample["index"] for sample in samples] == list(range(len(rows)))
    counted: list[float] = []
    for sample, row in zip(samples, rows, strict=True):
        share = len(tokens) * tokens[sample["rollout_id"]] if reduction == "episode-mean" else tokens.total()
        mask = [*[0] * (len(row) - sample["response_length"]), *sample["loss_mask"]]
        counted += [sample["reward"] * on / share for on in mask]
    assert counted == pytest.approx(told(rows, reduction), rel=1e-12)


def ends_trained(rows: list[PolicyRow]) -> list[PolicyRow]:
    """The rows without what follows their last trained token."""
    ends = [max(at for at, on in enumerate(row.trained) if on) + 1 for row in rows]
    names = ("token_ids", "trained", "logprobs", "age")
    return [
        replace(row, **{name: getattr(row, name)[:end] for name in names}) for row, end in zip(rows, ends, strict=True)
    ]


@given(minibatch().map(ends_trained))
def test_areal_carries_the_reward_back_to_every_trained_token(rows: list[PolicyRow]):
    found = areal.trajectories(rows, version=NEWEST, temperature=1.0)
    longest = max(map(len, rows))
    for name, array in found.items():
        assert array.shape == ((len(rows),) if name == "rewards" else (len(rows), longest))  # type: ignore[attr-defined]
    for i, row in enumerate(rows):
        own = {name: array[i][found["attention_mask"][i]].tolist() for name, array in found.items() if array.ndim == 2}  # type: ignore[attr-defined, index]
        assert found["attention_mask"][i].tolist() == [at < len(row) for at in range(longest)]
        assert tuple(own["input_ids"]) == row.token_ids
        assert tuple(own["loss_mask"]) == row.trained
        assert tuple(own["logprobs"]) == row.logprobs
        each = zip(row.age, row.trained, strict=True)
        assert own["versions"] == [NEWEST - age if on else -1 for age, on in each]
        assert carried_back(own["loss_mask"], found["rewards"][i].item()) == [row.advantage * on for on in row.trained]
        assert not found["loss_mask"][i][len(row) :].any() and (found["versions"][i][len(row) :] == -1).all()


def carried_back(mask: list[int], reward: float) -> list[float]:
    """Advantages of tokens by generalized advantage estimation without values, γ = λ = 1, skipping what is masked.

    It is computed where a token is predicted, one place before it; the reward is at the last such place.
    """
    predicts, advantage, found = [*mask[1:], 0], 0.0, []
    for at in reversed(range(len(mask) - 1)):
        gained = (reward if at == len(mask) - 2 else 0.0) + advantage
        advantage = gained if predicts[at] else advantage
        found.append(advantage if predicts[at] else 0.0)
    return [0.0, *reversed(found)]


# Refusals


EPISODE = [one(), one(agent="organizer/1")]
"""One episode of two rows."""


@pytest.mark.parametrize(
    ("hand_over", "message"),
    [
        (lambda rows: verl.outputs(rows, version=3, temperature=0.7), "temperature 1.0, and verl .* at 0.7"),
        (lambda rows: trl.samples(rows, version=3, temperature=0.7), "temperature 1.0, and TRL"),
        (lambda rows: tinker.data([replace(row, temperature=0.7) for row in rows]), "0.7, and Tinker .* at 1.0"),
        (lambda rows: skyrl.output(rows, temperature=0.7), "temperature 1.0, and SkyRL"),
        (lambda rows: slime.samples(rows, version=3, temperature=0.7), "temperature 1.0, and slime"),
        (lambda rows: areal.trajectories(rows, version=3, temperature=0.7), "temperature 1.0, and AReaL"),
        (lambda rows: verl.outputs(rows, version=3, temperature=1.0, reduction="episode-mean"), "has 2 rows, and verl"),
        (lambda rows: skyrl.output(rows, temperature=1.0, reduction="episode-mean"), "has 2 rows, and SkyRL"),
    ],
)
def test_what_a_target_cannot_hold_is_refused(hand_over: Callable[[Sequence[PolicyRow]], object], message: str):
    with pytest.raises(UserError, match=rf"^episode p\|asyncthink\|0, organizer: .*{message}"):
        hand_over(EPISODE)


@pytest.mark.parametrize("target", ["tinker", "prime_rl", "skyrl"])
def test_old_tokens_need_a_field_that_says_so(target: str):
    hand_over = make.TARGETS[target]
    with pytest.raises(UserError, match=r"organizer: some of its tokens are 2 updates old"):
        hand_over([one(), one(ages=2)], "token-mean")
    assert hand_over([one()], "token-mean")


@pytest.mark.parametrize("target", ["trl", "slime"])
def test_a_row_of_several_versions_needs_one_a_token(target: str):
    mixed = one(age=(0, 0, 2, 2, 0, 1))
    with pytest.raises(UserError, match="organizer: drawn by versions 1, 2, and"):
        make.TARGETS[target]([mixed], "token-mean")
    assert make.TARGETS[target]([one(ages=2)], "token-mean")


@pytest.mark.parametrize("target", ["verl", "trl", "slime", "areal"])
def test_no_token_is_older_than_the_first_weights(target: str):
    with pytest.raises(UserError, match="organizer: some of its tokens are 4 updates old, and the newest version is 3"):
        make.TARGETS[target]([one(ages=4)], "token-mean")


@pytest.mark.parametrize("target", ["trl", "areal"])
def test_a_mean_over_tokens_is_none_over_episodes(target: str):
    with pytest.raises(UserError, match="averages over tokens: use reduction=token-mean"):
        make.TARGETS[target]([one()], "episode-mean")


@pytest.mark.parametrize("target", ["verl", "skyrl"])
def test_a_mean_over_rows_is_one_over_episodes_of_one_row(target: str):
    rows = [one(), one(episode="p|asyncthink|1")]
    assert make.TARGETS[target](rows, "episode-mean") == make.TARGETS[target](rows, "token-mean")


@pytest.mark.parametrize("other", [{"advantage": 0.5}, {"group": "q"}])
def test_skyrl_has_one_advantage_an_episode(other: dict[str, Any]):
    with pytest.raises(
        UserError, match=r"\|0, organizer/1: its advantage or group is not that of organizer, and SkyRL"
    ):
        skyrl.output([one(), one(agent="organizer/1", **other)], temperature=1.0)


@pytest.mark.parametrize(
    ("names", "what"),
    [(["p|0", "p|1", "p|0"], "episode"), (["p|0", "q|0", "p|1"], "group")],
)
def test_skyrl_takes_neighbours(names: list[str], what: str):
    rows = [one(episode=name, group=name[0]) for name in names]
    with pytest.raises(
        UserError, match=f"^episode {names[-1].replace('|', '.')}, .* the rows of a {what} as neighbours"
    ):
        skyrl.output(rows, temperature=1.0)
    assert skyrl.output(sorted(rows, key=lambda row: (row.group, row.episode)), temperature=1.0)


def test_areal_puts_the_reward_on_the_last_token():
    row = one(trained=(False, False, True, True, False, False), logprobs=(0.0, 0.0, -1.0, -2.0, 0.0, 0.0))
    with pytest.raises(UserError, match="organizer: its last token is not trained, and AReaL"):
        areal.trajectories([row], version=3, temperature=1.0)


def test_areal_clips_large_rewards():
    assert areal.trajectories([one(advantage=-20.0)], version=3, temperature=1.0)
    with pytest.raises(UserError, match=r"organizer: its advantage is 20\.5, and AReaL clips"):
        areal.trajectories([one(advantage=20.5)], version=3, temperature=1.0)


def test_prime_rl_keeps_a_name_for_itself():
    with pytest.raises(UserError, match="'all'"):
        prime_rl.samples([one()], env_name="all")


@pytest.mark.parametrize("target", make.TARGETS)
def test_no_rows_are_an_empty_list_or_refused(target: str):
    if target in ("skyrl", "areal"):
        with pytest.raises(UserError, match="empty batch"):
            make.TARGETS[target]([], "token-mean")
    else:
        assert make.TARGETS[target]([], "token-mean") == []


# The files


@pytest.mark.parametrize("name", [*(f"{target}.json" for target in make.TARGETS), "verl_problem.json"])
def test_the_golden_files_are_what_the_fixed_episodes_become(name: str):
    """After a change on purpose: `python tests/golden/scale/make.py`."""
    assert (make.HERE / name).read_text() == make.files()[name]


def test_no_trainer_is_imported():
    """These run where none of them is installed."""
    known = {"orgthink", "numpy", "__future__", "collections", "dataclasses", "hashlib", "itertools", "typing"}
    for file in Path(formats.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = (
                    [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
                )
                assert {name.split(".")[0] for name in names} <= known, file
