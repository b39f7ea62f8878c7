"""MarsRL (arXiv:2511.11373), read as its sections 2 and 3: what the paper says, and the numbers worked out by hand.

Where the paper refers to UloRL (arXiv:2507.19766) or is silent, that paper and the authors' released code are meant.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Literal

import pytest
import torch

from orgthink.credit.shared import advantages
from orgthink.engines.engine import Chunk, Context, Engine, FinishReason
from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.grammar.verdict import MARKDOWN, Verdict, read_report
from orgthink.organizations.prompts import prompt
from orgthink.organizations.verifier_corrector import VerifierCorrector
from orgthink.record.episode import Episode, Message, Origin, Problem, Sampling, Span
from orgthink.rewards.marsrl import MarsReward
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.clock import run_virtual
from orgthink.tasks.math import MATH
from orgthink.training.backend import Tokens, assess
from orgthink.training.marsrl.chain import Rules
from orgthink.training.marsrl.rollout import MarsRollout, choose
from orgthink.training.marsrl.settings import MarsSettings
from orgthink.training.masking import Mastered, mask_mastered
from orgthink.training.policy_loss import PolicyLoss, token_losses, token_weights
from orgthink.training.recipes.jobs import Mars
from orgthink.training.recipes.registry import RECIPES
from orgthink.training.rl import Batch, Clock
from orgthink.training.rows import PolicyRow
from papers.judgements import judgements

PROBLEM = Problem("p", "math", "What is 3 + 4?", data={"answer": "7"})
RIGHT, WRONG = "**Correctness**: Correct", "2 + 2 is not 5\n**Correctness**: Wrong"


def solution(answer: int) -> str:
    return f"let me think </think> It is <ANSWER>{answer}</ANSWER>"


def solved(*says: str, max_tokens: int = 100, rounds: int = 11, problem: Problem = PROBLEM) -> Episode:
    """An episode in which exactly this is said, in this order."""
    engine = ScriptedEngine([Turn(text) for text in says])
    backing = Backing(engine, Sampling(max_tokens))
    episode = run_virtual(attempt(VerifierCorrector(rounds=rounds), problem, backing))
    run_virtual(engine.aclose())
    return episode


# 2.1 The verifier-corrector reasoning system


def test_2_1_the_solver_gets_the_problem_alone():
    assert prompt("paper", "solver", PROBLEM) == (Message("user", "What is 3 + 4?"),)


def test_2_1_four_verifications_in_a_row_accept_a_solution():
    """Wrong, then corrected, then four passes: 1 + 1 + 1 + 4 = 7 agents beside the controller."""
    episode = solved(solution(6), WRONG, solution(7), *[RIGHT] * 4)
    assert (episode.answer, len(episode.traces) - 1) == ("7", 7)


@pytest.mark.parametrize("rounds", [11, 30])
def test_2_1_ten_failures_in_a_row(rounds):
    """The tenth correction is verified too: 1 + 10 = 11 verifications, one a draft: the solver's is the answer, even if
    the last of eleven passes. With more rounds the loop goes on after that pass."""
    failing = [solution(0), *[text for i in range(1, 11) for text in (WRONG, solution(i))]]
    gave_up = solved(*failing, WRONG, rounds=rounds)
    roles = Counter(trace.role for trace in gave_up.traces)
    assert (roles["verifier"], roles["corrector"], gave_up.answer) == (11, 10, "0")
    passes, answer = (4, "10") if rounds == 30 else (1, "0")
    assert solved(*failing, *[RIGHT] * passes, rounds=rounds).answer == answer


def test_2_1_else_the_draft_that_was_verified_most_often():
    """Eleven verifications: of the first draft 2, the second 3, the third 3, the fourth 3. The earliest of equals
    wins. Answer 3 is that of two drafts. None passes four times in a row."""
    says = [solution(1), RIGHT, WRONG, solution(2), RIGHT, RIGHT, WRONG, solution(3), RIGHT, RIGHT, WRONG]
    says += [solution(3), RIGHT, RIGHT, WRONG]
    assert sum(text in (RIGHT, WRONG) for text in says) == 11
    assert solved(*says).answer == "2"
    corrected = [solution(0), WRONG, solution(1), RIGHT, WRONG]
    assert solved(*corrected, "hm " * 30, max_tokens=20).answer == "1", "a correction that is cut off"


@pytest.mark.parametrize("said", ["70", r"As 21 and 49 are such bases, it is \boxed{70}.", "**Answer:** 70"])
def test_2_1_nothing_says_how_an_answer_is_written_so_each_form_counts(said):
    """The authors' solver gets the bare problem, and their grader its whole solution."""
    problem = MATH.problem("Find the sum of all integer bases b > 9 for which 17_b divides 97_b.", "70")
    assert prompt("paper", "solver", problem) == (Message("user", problem.query),)
    episode = solved(f"hm </think> {said}", *[RIGHT] * 4, problem=problem)
    assert MATH.grade(problem, episode.answer or "").all_correct and not episode.format_faults
    rules = Rules(MarsRollout("math", "paper"), MATH, MarsReward(), 0)
    assert rules.outcome(problem, {"0": episode.traces[1]}, "0").reward == 1


def test_2_1_a_solver_that_is_cut_off_in_its_thoughts_is_asked_up_to_three_times():
    thoughts = "hm " * 30
    assert solved(thoughts, thoughts, solution(7), *[RIGHT] * 4, max_tokens=20).answer == "7"
    assert solved(thoughts, thoughts, thoughts, max_tokens=20).answer is None


# 2.2 GRPO


def test_eq_1_advantage():
    """Two of eight are right: mean 1/4, variance 1/4 * 3/4 = 3/16, so (1 - 1/4) / sqrt(3/16) = sqrt(3)."""
    found = advantages([1, 1, 0, 0, 0, 0, 0, 0])
    assert found is not None
    assert found[:2] == pytest.approx([math.sqrt(3)] * 2) and found[2:] == pytest.approx([-1 / math.sqrt(3)] * 6)
    assert advantages([1.0] * 8) is None, "a group without variance teaches nothing"


def test_eq_2_and_3_clipped_surrogate():
    """Ratios 1.5, 1.5, 0.5, 0.5 with epsilon 0.2, advantages 2, -2, 2, -2:
    min(3, 2.4), min(-3, -2.4), min(1, 1.6), min(-1, -1.6)."""
    ratios, advantage = torch.tensor([1.5, 1.5, 0.5, 0.5]), torch.tensor([2.0, -2.0, 2.0, -2.0])
    found = token_losses(ratios.log(), torch.zeros(4), advantage, PolicyLoss(clip_low=0.2, clip_high=0.2))
    assert found.losses_N.tolist() == pytest.approx([-2.4, 3.0, -1.0, 1.6])


# 2.3 UloRL


def row(*logprobs: float, advantage: float, episode: str, positive: bool) -> PolicyRow:
    """An output of so many tokens after a prompt of one."""
    ids, zeros = tuple(range(len(logprobs) + 1)), (0,) * (len(logprobs) + 1)
    trained, drawn = (False, *[True] * len(logprobs)), (0.0, *logprobs)
    names = (episode, "solver", "solver", "p")
    return PolicyRow(ids, trained, drawn, advantage, 1.0, *names, zeros, positive=positive)


def test_2_3_well_mastered_positive_tokens_are_masked_while_entropy_is_low():
    """Probabilities 0.995, 0.5 and 0.999; tau is 0.99. Nats a token: (0.005 + 0.693 + 0.001) / 3 = 0.233. A wrong
    output keeps all of its tokens. Eq. 10 divides by all six tokens, masked or not: a sixth each."""
    drawn = (math.log(0.995), math.log(0.5), math.log(0.999))
    right, wrong = (
        row(*drawn, advantage=1, episode="a", positive=True),
        row(*drawn, advantage=-1, episode="b", positive=False),
    )
    masked = mask_mastered([right, wrong], Mastered(entropy=0.3))
    assert [one.trained for one in masked] == [(False, False, True, False), (False, True, True, True)]
    assert token_weights(masked, "token-mean") == [1 / 6, 1 / 6]
    assert mask_mastered([right, wrong], Mastered(entropy=0.2)) == [right, wrong], "its entropy is above 0.2"


def test_2_3_sais_and_pois_importance_ratios():
    """An output of two segments, a token each. Older weights drew the first with probability 0.2; the newest give it
    0.3, and the second 0.5 (the sampler recorded 0.48). After an update they have 0.36 and 0.55. Advantage 1, clipped
    at 1.28.

    SAIS (UloRL, Eq. 8), relative to the weights that drew a segment: 0.36 / 0.2 = 1.8, clipped, and 0.55 / 0.5 = 1.1.
    POIS, relative to the newest weights: 0.36 / 0.3 = 1.2 and 1.1. Before the update: 1.5, clipped, and 1; 1 and 1.
    """

    def found(old: Literal["trainer", "pois"], *now: float) -> tuple[object, int]:
        drawn, newest = torch.tensor([0.2, 0.48]).log(), torch.tensor([0.3, 0.5]).log()
        age, halves = torch.tensor([1, 0]), torch.tensor([0.5, 0.5])
        tokens = Tokens(drawn, newest, age, torch.ones(2), halves, [2], ["output"])
        loss = PolicyLoss(clip_low=0.2, clip_high=0.28, old=old)
        total, signals = assess(tokens, loss, torch.tensor(now).log(), torch.zeros(2))
        return pytest.approx(total.item()), signals.clipped

    assert found("trainer", 0.36, 0.55) == (-(1.28 + 1.1) / 2, 1)
    assert found("pois", 0.36, 0.55) == (-(1.2 + 1.1) / 2, 0)
    assert found("trainer", 0.3, 0.5) == (-(1.28 + 1) / 2, 1)
    assert found("pois", 0.3, 0.5) == (-1, 0)


# 3.2 Agentic verifiable rewards


@pytest.mark.parametrize(
    ("report", "of_a_right_solution", "of_a_wrong_one"),
    [
        ("**Correctness**: Correct", 1, 0),
        ("**Correctness**: Wrong", 0, 1),
        ("**Correctness**: The solution is correct.", 0, 0),
        ("**Correctness**: Incorrect", 0, 0),
        ("I cannot tell.", 0, 0),
    ],
)
def test_3_2_a_verifier_is_rewarded_for_the_truth_of_its_verdict(report, of_a_right_solution, of_a_wrong_one):
    verdict, reward = read_report(report, MARKDOWN).verdict, MarsReward()
    assert (reward.verdict(verdict, True), reward.verdict(verdict, False)) == (of_a_right_solution, of_a_wrong_one)


def test_3_2_seven_wrong_verdicts_and_one_that_cannot_be_read_teach_nothing():
    reward = MarsReward()
    assert advantages([reward.verdict(Verdict.WRONG, True)] * 7 + [reward.verdict(Verdict.UNPARSED, True)]) is None


def test_3_2_what_comes_of_a_wrong_verdict_does_not_make_it_right():
    """The paper's example: a right solution is called wrong, and what the corrector makes of it is right too."""
    episode = solved(solution(7), WRONG, solution(7), *[RIGHT] * 4)
    first, *others = judgements(episode, MARKDOWN)
    assert (first.right, first.agrees) == (True, False) and all(one.agrees for one in others)


# 3.3 Agentic pipeline parallelism, and 3.4 sampling


@pytest.mark.parametrize("seed", range(5))
def test_3_4_two_outputs_are_chosen(seed):
    """Eight outputs, three of them positive."""
    outputs, positive = list("abcdefgh"), [True, True, True, False, False, False, False, False]

    def taken(strategy, role) -> list[bool]:
        return [one in "abc" for one in choose(strategy, role, outputs, positive, 2, Random(seed))]

    assert taken("adaptive", "verifier") == [False, False], "wrong solutions first"
    assert taken("adaptive", "corrector") == [True, True], "right findings first"
    assert sorted(taken("balanced", "verifier")) == [False, True]
    assert len(taken("random", "verifier")) == 2


class Roles(Engine):
    """A word a second. Solvers and correctors are wrong, each in its own words; verifiers find the error."""

    model, native_calls = "roles", False

    def __init__(self) -> None:
        self.version = "0"

    def prompt(self, messages: tuple[Message, ...]) -> Span:
        text = "\n".join(message.content for message in messages)
        return Span(Origin.PROMPT, text, 1, (0,))

    def injection(self, text: str, around: tuple[str, str] = ("", "")) -> tuple[str, tuple[int, ...]]:
        return text.join(around), (0,)

    def turn(self, context: Context, text: str) -> tuple[str, tuple[int, ...]]:
        return text, (0,)

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        luck, verifies = Random(sampling.seed), "Final Verdict" in context.spans[0].text
        ending = WRONG if verifies else f"<ANSWER>{luck.choice([6, 7])}</ANSWER>"
        words = [" </think>", f" {luck.random()}", *[" so"] * luck.randrange(20), f"\n{ending}", ""]
        for place, word in enumerate(words, 1):
            await asyncio.sleep(1)
            yield Chunk((word,), (place,), (-0.5,), None if word else FinishReason.EOS, self.version)

    async def aclose(self) -> None: ...


def trained(folder: Path, steps: int, **changes) -> list[tuple[Batch, list[Episode]]]:
    """The batch and the episodes of each step."""
    (folder / "rows.jsonl").write_text(json.dumps({"problem": "What is 3 + 4?", "answer": "7"}) + "\n")
    plan = MarsRollout(f"math:{folder / 'rows.jsonl'}", "paper", max_input=10**6, **changes)
    source, engine = Mars(MarsSettings(plan, steps=steps, learning_rate=1e-6)).source(), Roles()

    async def collected() -> list[tuple[Batch, list[Episode]]]:
        found = []
        async with source.working():
            for step in range(steps):
                engine.version = str(step)
                episodes = list[Episode]()
                found.append((await source.collect(engine, step, Clock(), episodes.append), episodes))
        return found

    return run_virtual(collected())


def test_3_3_a_problem_gives_at_most_72_outputs_in_five_streams(tmp_path):
    """8 solutions; then two inputs of 8 outputs for each of the four others: 8 + 4 * 16 = 72. Groups share an input."""
    chain = [next(e for e in episodes if e.sample == 0) for _, episodes in trained(tmp_path, 5, problems=1)]
    assert len({trace.agent for episode in chain for trace in episode.traces if trace.parent}) == 72
    inputs = Counter({t.agent: t.spans[0].text for e in chain for t in e.traces if t.parent}.values())
    assert set(inputs.values()) == {8} and len(inputs) == 9


def test_3_3_figure_3a_at_each_step_a_new_problem_enters_and_each_chain_goes_on_by_one_agent(tmp_path):
    """Outputs take one tick. Tick 1 trains the solver's group; tick 2 that of a new problem's solver, and two of the
    first problem's verifiers; and so on, until all five agents work at once, 1 + 4 * 2 = 9 groups."""
    batches = [batch for batch, _ in trained(tmp_path, 6, problems=1)]
    assert [batch.metrics["groups"] for batch in batches] == [1, 3, 5, 7, 9, 9]
    reached = [[stream for stream, right in batch.metrics["right"].items() if right is not None] for batch in batches]
    in_order = ["solver", "verifier-1", "corrector-1", "verifier-2", "corrector-2"]
    assert reached == [in_order[: tick + 1] for tick in range(5)] + [in_order]
    assert all(batch.metrics["age_max"] in (0, None) for batch in batches), "by the weights of its own tick"


# 4.1 Training details


def test_4_1_hyperparameters():
    recipe = RECIPES["marsrl-qwen3"]
    assert isinstance(recipe, Mars)
    plan, settings = recipe.settings.rollout, recipe.settings
    assert (plan.problems, plan.group, plan.temperature) == (128, 8, 0.85)
    assert (plan.max_tokens, plan.segment, plan.max_input) == (65_536, 16_384, 32_768)
    assert 4 * 16_384 == 65_536 and plan.strategy == "adaptive" and plan.take == 2
    assert settings.rate(0) == settings.rate(199) == 1e-6, "constant"
    assert settings.loss.old == "pois" and settings.mastered == Mastered(entropy=0.2, probability=0.99)
    assert settings.reward == MarsReward(right=1, wrong=0, unparsed=0)
    assert plan == replace(plan, roles=("solver", "verifier", "corrector"))
