"""*The Era of Agentic Organization* (AsyncThink, arXiv:2510.26658), section by section, as a reader checks it.

The expected numbers are worked out by hand in the comments. A scripted engine speaks one word a decoding step.
"""

from __future__ import annotations

import random
from itertools import islice

import pytest
from longest_path import longest_path

from orgthink.credit.shared import advantages
from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.evaluation.grading import grade
from orgthink.grammar.actions import Answer, Fork, Join
from orgthink.grammar.asyncthink import read
from orgthink.measure.latency import concurrency, critical_path, timeline
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.organizations.prompts import prompt
from orgthink.organizations.votes import Parallel
from orgthink.record.episode import Episode, FormatError, Grade, Origin, Problem, Sampling
from orgthink.rewards.asyncthink import AsyncThinkReward, concurrency_reward
from orgthink.runtime import Backing, Limits, attempt
from orgthink.runtime.clock import run_virtual
from orgthink.tasks import task_named
from orgthink.tasks.task import Task
from orgthink.training.coldstart.pairs import pairs_of
from orgthink.training.coldstart.structures import random_plan, render_plan
from orgthink.training.recipes.registry import RECIPES
from orgthink.training.rows import policy_rows, row_of

COUNTDOWN = task_named("countdown")
PROBLEM: Problem = COUNTDOWN.problem([1, 2, 3, 4, 5], 10)  # type: ignore[attr-defined]
FOUR = "1 + 4 + 5 ; 2 + 3 + 5 ; 1 + 2 + 3 + 4 ; 5 * 4 / 2"


def played(*turns: Turn, capacity: int, organization: object = None, tokens: int = 1000) -> Episode:
    """The graded episode in which the agents say this; `when` is what their prompt contains."""
    engine = ScriptedEngine(list(turns))
    how = organization or AsyncThink()
    episode = run_virtual(attempt(how, PROBLEM, Backing(engine, Sampling(tokens)), limits=Limits(capacity)))  # type: ignore[arg-type]
    run_virtual(engine.aclose())
    return grade(episode, COUNTDOWN)


def organizer(text: str) -> Turn:
    return Turn(text, when="main process")


def worker(query: str, text: str) -> Turn:
    return Turn(text, when=f"Subtask: {query}\n")


def think(n: int) -> str:
    return " t" * n


def one_fork() -> Episode:
    """c = 2: a thought of 3, Fork 1 (3 words), a thought of 4, Join 1 (1 word); a thought of 2, and the answer."""
    return played(
        organizer(f"{think(3)} <FORK-1> q </FORK-1>{think(4)} <JOIN-1>"),
        organizer(f"{think(2)} <ANSWER> 1+4+5 </ANSWER>"),  # 2 + 3 words
        worker("q", f"{think(20)} <RETURN> r </RETURN>"),  # 20 + 3 words
        capacity=2,
    )


def two_forks() -> Episode:
    """c = 3: Fork 1 and Fork 2, joined in the other order."""
    return played(
        organizer(f"{think(2)} <FORK-1> a </FORK-1>{think(1)} <FORK-2> b </FORK-2>{think(5)} <JOIN-2>"),
        organizer(f"{think(1)} <JOIN-1>"),
        organizer(f"{think(1)} <ANSWER> 1+4+5 </ANSWER>"),
        worker("a", f"{think(30)} <RETURN> x </RETURN>"),  # 33 words
        worker("b", f"{think(4)} <RETURN> y </RETURN>"),  # 7 words
        capacity=3,
    )


# 2 Organizer-worker thinking protocol


@pytest.mark.parametrize("hyphen", ["-", ""], ids=["as in section 2", "as in appendix B"])
def test_2_2_the_organizer_thinks_forks_joins_and_answers(hyphen: str) -> None:
    text = f"t <FORK{hyphen}7> q </FORK{hyphen}7> t <JOIN{hyphen}7> r </JOIN{hyphen}7> t <ANSWER> 5 </ANSWER>"
    actions = [action for action in read(text) if isinstance(action, Fork | Join | Answer)]
    assert actions == [Fork("7", " q "), Join("7"), Answer(" 5 ")]


def test_2_2_what_a_worker_returns_is_appended_after_the_join_tag() -> None:
    assert "<JOIN-1> r </JOIN-1> t t <ANSWER>" in one_fork().root.text


def test_2_3_a_worker_gets_the_instruction_and_the_sub_query() -> None:
    asked = one_fork().traces[1].spans[0].text
    assert PROBLEM.instruction in asked and "Subtask: q" in asked
    assert PROBLEM.query not in asked, "not the question itself"


def test_2_4_the_organizer_decodes_on_while_a_worker_works() -> None:
    stretches = [(s.agent, s.start, s.end) for s in timeline(one_fork())]
    # It has forked after 3 + 3 = 6 steps and decodes 4 + 1 more, beside the worker's first 5. The worker is at it until
    # 6 + 23 = 29. Then the organizer decodes 2 + 3 words.
    assert ("organizer/1", 6, 29) in stretches
    assert [(s, e) for agent, s, e in stretches if agent == "organizer"][-1] == (29, 34)


# 3.1 Stage 1: cold-start format fine-tuning


def test_3_1_random_structures_never_have_more_than_c_minus_1_workers_and_take_many_shapes() -> None:
    rng = random.Random(0)
    shapes = set()
    for _ in range(200):
        plan, active = random_plan(rng, 4), 0
        for step in plan:
            active += {"fork": 1, "join": -1}.get(step.action, 0)
            assert 0 <= active <= 3
        assert active == 0
        shapes.add(render_plan(plan))
    assert len(shapes) > 50, "not the two topologies that a teacher prefers"


def test_3_1_an_inference_trace_becomes_2_n_q_plus_1_pairs() -> None:
    # 4.2: n_q = 1 gives 3 pairs, n_q = 2 gives 5: the organizer's n_q + 1 stretches, and n_q workers.
    assert [len(pairs_of(episode, "teacher")) for episode in (one_fork(), two_forks())] == [3, 5]


# 3.2 Stage 2: reinforcement learning: the reward


@pytest.mark.parametrize(
    ("answer", "n_c"),
    [
        (FOUR, 4),
        ("1 + 4 + 5 ; 5 + 4 + 1", 1),  # the same numbers and operators: one unique solution
        ("1 + 2 + 3 ; 1 + 4 + 5 ; 2 + 3 + 5", 2),  # the first is wrong, which costs it only
        ("1. 1 + 4 + 5\n2. $2 + 3 + 5 = 10$\n3. `1 + 2 + 3 + 4`\n4. 10 = 5 \\times 4 \\div 2", 4),
        ("5 * 2", 0),  # two numbers: three to six are asked for
    ],
)
def test_3_2_r_a_is_the_share_of_unique_correct_solutions(answer: str, n_c: int) -> None:
    graded = COUNTDOWN.grade(PROBLEM, answer)
    assert graded == Grade(n_c, 4)
    assert graded.score == n_c / 4  # R_A = min(n_c, n_s) / n_s


def test_3_2_r_a_is_1_at_most() -> None:
    # n_c = 5, n_s = 4: min(5, 4) / 4 = 1
    graded = COUNTDOWN.grade(PROBLEM, f"{FOUR} ; 5 * (4 - 2)")
    assert (graded.correct, graded.required, graded.score, graded.all_correct) == (5, 4, 1, True)


def test_3_2_sixteen_expressions_are_graded() -> None:
    # Ours, against guessing. 8 wrong and 7 repeated expressions take 15 places, and unreadable lines and false
    # equations none. So 2+3+5 takes the 16th place and counts, and 1+2+3+4 would be the 17th.
    lines = (
        ["1 + 2 + 3"] * 8 + ["1 + 4 + 5"] * 7 + ["hm, what now", "1 + 2 + 4 = 10"] * 3 + ["2 + 3 + 5", "1 + 2 + 3 + 4"]
    )
    assert COUNTDOWN.grade(PROBLEM, "\n".join(lines)) == Grade(2, 4)
    assert COUNTDOWN.grade(PROBLEM, "\n".join(lines[1:])) == Grade(3, 4)


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("<FORK-1> a </FORK-1> <FORK-1> b </FORK-1>", FormatError.DUPLICATE_FORK),  # (1)
        ("<FORK-1> a </FORK-1> <FORK-2> b </FORK-2> <FORK-3> c </FORK-3>", FormatError.POOL_OVERFLOW),  # (2), c = 3
        ("<JOIN-1>", FormatError.UNKNOWN_JOIN),  # (3)
        ("so that is it", FormatError.NO_ANSWER),  # (4)
        ("so <ANSWER> </ANSWER>", FormatError.NO_ANSWER),
        (r"so \boxed{ }", FormatError.NO_ANSWER),
    ],
)
def test_3_2_the_four_format_errors_earn_r_fe(said: str, kind: FormatError) -> None:
    workers = [
        worker(query, think(99)) for query in "ab" if f"> {query} <" in said and not (query == "b" and "1> b" in said)
    ]
    episode = played(organizer(said), *workers, capacity=3)
    assert [fault.kind for fault in episode.format_faults] == [kind]
    assert AsyncThinkReward(format_error=-0.7)(episode).total == -0.7


def test_3_2_eq_1_is_the_mean_number_of_workers_that_decode() -> None:
    assert concurrency(one_fork(), "workers") == pytest.approx(23 / 34)  # T = 34 by Eq. 4, see 4.1
    assert concurrency(two_forks(), "workers") == pytest.approx((33 + 7) / 42)  # T = 42


def test_3_2_eq_2_is_cut_off_at_tau() -> None:
    # η / c = (23 / 34) / 2 = 0.338
    assert concurrency_reward(one_fork(), threshold=0.5) == pytest.approx(23 / 34 / 2 / 0.5)
    assert concurrency_reward(one_fork(), threshold=0.3) == 1


def test_3_2_an_organizer_that_never_forks_has_no_concurrency() -> None:
    alone = played(organizer(f"{think(9)} <ANSWER> {FOUR} </ANSWER>"), capacity=2)
    assert concurrency(alone, "workers") == concurrency_reward(alone) == 0
    assert AsyncThinkReward()(alone).total == 1  # R_A alone


def test_3_2_eq_3_is_accuracy_plus_lambda_times_concurrency() -> None:
    # One of four solutions: R_A = 0.25. R_η = 0.338 / 0.5. λ = 0.1.
    reward = AsyncThinkReward(weight=0.1, threshold=0.5)
    assert reward(one_fork()).total == pytest.approx(0.25 + 0.1 * (23 / 34 / 2 / 0.5))


def test_3_2_an_episode_has_one_advantage_relative_to_its_group() -> None:
    # Rewards 1, 1, 0, 0: mean 0.5, standard deviation 0.5.
    assert advantages([1.0, 1.0, 0.0, 0.0]) == (1, 1, -1, -1)


def test_3_2_the_join_tag_is_trained_and_what_it_brings_is_masked() -> None:
    episode = one_fork()
    prompt_span, sampled, injected, _ = episode.root.spans
    assert sampled.text.endswith("<JOIN-1>") and injected.text == " r </JOIN-1>" and injected.origin is Origin.INJECTED
    # After the prompt: 3 + 3 + 4 + 1 = 11 words up to the Join tag, 2 that it brings, then 2 + 3 = 5.
    mask = (False,) * prompt_span.tokens + (True,) * 11 + (False,) * 2 + (True,) * 5
    assert row_of(episode.root).trained == mask
    organizer_row, worker_row = policy_rows(episode, advantage=0.5)
    assert organizer_row.trained == mask and sum(worker_row.trained) == 23
    assert organizer_row.advantage == worker_row.advantage == 0.5, "all traces share the advantage"


# 4.1 Evaluation metrics: Eq. 4


def test_4_1_critical_path_of_one_fork() -> None:
    # f_1 = 3 + 3 + 4 + 1 = 11, before the Fork's end 3 + 3 = 6, the sub-query takes 23:
    # l_1 = max(0 + 11, 0 + 6 + 23) = 29; f_2 = 2 + 3 = 5; l_2 = 34
    assert critical_path(one_fork()) == longest_path(one_fork()) == 34


def test_4_1_critical_path_of_joins_in_another_order() -> None:
    # f_1 = 2 + 3 + 1 + 3 + 5 + 1 = 15; before Fork 1 ends 5, before Fork 2 ends 9.
    # l_1 = max(15, 9 + 7) = 16       (Join 2)
    # l_2 = max(16 + 2, 5 + 33) = 38  (Join 1; f_2 = 1 + 1)
    # l_3 = 38 + 4 = 42               (f_3 = 1 + 3)
    assert critical_path(two_forks()) == longest_path(two_forks()) == 42


# 4.2 Multi-solution countdown


def test_4_2_the_test_set_is_100_targets_with_4_sets_of_numbers_each() -> None:
    problems = list(islice(COUNTDOWN.problems("test", 0), 400))
    targets = [problem.data["target"] for problem in problems]
    assert len({problem.id for problem in problems}) == 400
    assert {targets.count(target) for target in targets} == {4} and len(set(targets)) == 100
    assert all(1 <= target <= 1000 for target in targets)
    assert all(1 <= number <= 100 for problem in problems for number in problem.data["numbers"])
    train = {problem.data["target"] for problem in islice(COUNTDOWN.problems("train", 0), 50)}
    assert not train & set(targets), "training has other targets: 25 sets for each of 900, which makes 22,500"


def test_4_2_the_recipe() -> None:
    settings = RECIPES["asyncthink-qwen3-countdown"].settings
    assert (settings.learning_rate, settings.rollout.problems, settings.rollout.group) == (1e-6, 64, 32)
    assert (settings.rollout.limits.capacity, settings.rollout.max_tokens) == (2, 2048)
    assert settings.rollout.limits.max_tokens == 8192 and settings.steps == 180  # 4.5
    said = {"capacity": 2, "max_tokens": 2048, "renew": True}
    assert settings.made_for == {"prompts": "paper", **said}, "it is evaluated as it was trained"
    assert settings.reward == AsyncThinkReward(accuracy="fraction", count="workers")
    alone = RECIPES["asyncthink-qwen3-countdown-sequential"].settings.reward
    assert (alone.weight, alone.format_error) == (0, 0), "the baseline is rewarded for its answer only"
    format_sft = RECIPES["asyncthink-qwen3-countdown-sft"].settings
    assert (format_sft.steps, format_sft.learning_rate, format_sft.batch_rows) == (1000, 1e-6, 128)


def test_4_2_a_join_renews_the_budget() -> None:
    # 14 words a segment: 3 + 3 + 4 + 1 = 11 up to the Join, and again 10 + 3 = 13 after it, together 24.
    episode = played(
        organizer(f"{think(3)} <FORK-1> q </FORK-1>{think(4)} <JOIN-1>"),
        organizer(f"{think(10)} <ANSWER> 1+4+5 </ANSWER>"),
        worker("q", f"{think(5)} <RETURN> r </RETURN>"),
        capacity=2,
        tokens=14,
    )
    assert episode.root.steps == 24 and episode.answer == "1+4+5"


def test_4_2_parallel_thinking_takes_the_four_most_frequent_solutions_of_two_samples() -> None:
    # 1+4+5 and 2+3+5 have two votes; of those with one, the first two that were offered are left.
    first, second = "1+4+5 ; 2+3+5 ; 1+2+3+4 ; 9+9+9", "2+3+5 ; 1+4+5 ; 5*4/2"
    episode = played(
        Turn(f"<ANSWER> {first} </ANSWER>"),
        Turn(f"<ANSWER> {second} </ANSWER>"),
        capacity=2,
        organization=Parallel(),
    )
    assert episode.answer is not None and episode.answer.split("\n") == ["1+4+5", "2+3+5", "1+2+3+4", "9+9+9"]


# 4.3 Math reasoning


def test_4_3_the_recipes() -> None:
    settings = RECIPES["asyncthink-qwen3-math"].settings
    assert (settings.learning_rate, settings.rollout.problems, settings.rollout.group) == (1e-6, 128, 8)
    assert (settings.rollout.limits.capacity, settings.rollout.max_tokens) == (4, 512)
    assert settings.reward.accuracy == "all"  # 3.2: binary for one answer
    format_sft = RECIPES["asyncthink-qwen3-math-sft"].settings
    assert (format_sft.steps, format_sft.learning_rate, format_sft.batch_rows) == (400, 2e-6, 128)
    for name, tokens in (("l1k", 1024), ("l2k", 2048)):
        baseline = RECIPES[f"asyncthink-qwen3-math-sequential-{name}"].settings
        assert baseline.rollout.organization.organization == "sequential"
        assert (baseline.rollout.max_tokens, baseline.rollout.limits.max_tokens) == (tokens, tokens)
        assert (baseline.rollout.problems, baseline.rollout.group) == (128, 8)
        assert (baseline.reward.weight, baseline.reward.format_error) == (0, 0), "rewarded for its answer only"


# 4.4 Generalization to an unseen task


def test_4_4_a_sudoku_is_right_if_it_is_valid_and_keeps_its_clues() -> None:
    sudoku: Task = task_named("sudoku")
    problem = sudoku.problem([[1, 0, 0, 4], [0, 4, 1, 0], [2, 0, 4, 0], [0, 0, 0, 1]], "hard")  # type: ignore[attr-defined]
    assert sudoku.grade(problem, "1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 1").all_correct
    assert not sudoku.grade(problem, "2 1 3 4\n3 4 1 2\n1 2 4 3\n4 3 2 1").all_correct  # valid, with other clues


# Appendix B Prompt templates


def test_b_the_prompts_have_the_paper_s_slots() -> None:
    (asked,) = prompt("paper", "organizer", PROBLEM, capacity=4)
    slots = [
        PROBLEM.instruction,
        "<FORKi>",
        "</FORKi>",
        "<JOINi>",
        "<ANSWER>",
        "</ANSWER>",
        "3 subtasks",
        PROBLEM.query,
    ]
    places = [asked.content.index(slot) for slot in slots]
    assert places == sorted(places), "in the paper's order; 3 is the capacity minus one"
    (asked,) = prompt("paper", "worker", PROBLEM, query="try 5")
    places = [asked.content.index(slot) for slot in (PROBLEM.instruction, "Subtask: try 5", "<RETURN>", "</RETURN>")]
    assert places == sorted(places)
