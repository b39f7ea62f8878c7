"""ParaManager (arXiv:2604.17009), read as its method section: what the paper says, and the numbers worked out by hand.

One scripted episode is looked at throughout. Its manager has three rounds:

    1   add(3, 4), slow(), add(wrong="x")    OK 7, TIMEOUT after 5 s, PARSE_ERR
    2   fail(), standard_reasoner(…)         EXEC_ERR, OK
    3   final_answer()                       the summarizer answers 7
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from orgthink.credit.shared import advantages
from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.grammar.toolcall import CallStatus, ToolCall, read_reply, render_reply
from orgthink.measure.accuracy import mixed
from orgthink.measure.orchestration import calls_per_round, cost, requested_per_round, rounds, unique_tools
from orgthink.measure.usage import replies
from orgthink.organizations.paramanager import ParaManager
from orgthink.record.episode import Episode, Grade, Origin, Problem, Sampling, Span, Trace
from orgthink.rewards.paramanager import ParaManagerReward
from orgthink.runtime.agent import Backing, Result
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_virtual
from orgthink.tools.corpus import Passage
from orgthink.tools.python import python_tool
from orgthink.tools.search import search_tool
from orgthink.tools.toolbox import TOOLS, toolbox
from orgthink.training.rows import policy_row, row_of
from orgthink.util.errors import ToolError
from orgthink.view.picture import transcript

OK, PARSE_ERR, EXEC_ERR, TIMEOUT = CallStatus
PROBLEM = Problem("p", "math", "What is 3 + 4?", data={"answer": "7"})
HERE = str(Path(__file__).resolve())


async def add(a: int, b: int) -> str:
    """Adds."""
    return str(a + b)


async def slow() -> str:
    """Never comes back."""
    await asyncio.Event().wait()
    return ""


async def fail() -> str:
    """Fails."""
    raise ToolError("the server answered 503")


def says(*made: ToolCall) -> str:
    return render_reply("State, plan.", list(made))


FINAL = ToolCall("final_answer", {})
REPLIES = (
    says(ToolCall("add", {"a": 3, "b": 4}), ToolCall("slow", {}), ToolCall("add", {"wrong": "x"})),
    says(ToolCall("fail", {}), ToolCall("standard_reasoner", {"subtask": "Is it 7?"})),
    says(FINAL),
)


def played(*turns: str, **settings: object) -> Episode:
    """An episode of a manager that says this, over the three functions and an agent."""
    tools = (*(f"{HERE}:{name}" for name in ("add", "slow", "fail")), "standard_reasoner")
    chosen = {"tools": tools, "call_seconds": 5.0, "synthesis": "summarizer"} | settings
    manager = ParaManager(**chosen)  # type: ignore[arg-type]
    roles = {
        "manager": Backing(ScriptedEngine([Turn(text, seconds=0) for text in turns], model="small"), Sampling(500)),
        "summarizer": Backing(ScriptedEngine([Turn(r"It is \boxed{7}")], model="M_s"), Sampling(500)),
    }
    agent = Backing(ScriptedEngine([Turn(r"Yes: \boxed{7}", seconds=0)] * 9, model="agent"), Sampling(500))
    episode = run_virtual(attempt(manager, PROBLEM, agent, roles=roles, limits=Limits(9)))
    return replace(episode, grade=Grade(int(episode.answer == "7"), 1))


@cache
def example() -> Episode:
    return played(*REPLIES)


# 3.1 Unified Agent-as-Tool parallel orchestration


def test_eq_1_and_6_a_call_returns_a_value_and_a_status_and_each_is_judged_by_itself():
    first, second, third = rounds(example())
    assert [(r.name, r.status) for r in first.responses] == [("add", OK), ("slow", TIMEOUT), ("add", PARSE_ERR)]
    assert [(r.name, r.status) for r in second.responses] == [("fail", EXEC_ERR), ("standard_reasoner", OK)]
    assert first.responses[0].value == "7" and "wrong" in first.responses[2].value
    assert second.responses[0].value == "the server answered 503"
    assert third.ends and not third.responses


def test_eq_2_the_state_holds_the_problem_the_history_and_the_rounds_that_are_left():
    context = "".join(span.text for span in example().root.spans)
    assert context.index(PROBLEM.text) < context.index(REPLIES[0]) < context.index(REPLIES[1])
    assert [f"Rounds left: {left}." in context for left in (11, 10, 9)] == [True, True, False]


def test_eq_3_a_round_has_at_most_n_max_calls_and_there_are_at_most_h_rounds():
    five = says(*[ToolCall("add", {"a": 1, "b": i}) for i in range(5)])
    episode = played(five, five, rounds=2)
    assert [[r.status for r in one.responses] for one in rounds(episode)] == [[OK] * 4 + [PARSE_ERR]] * 2
    assert episode.answer == "7", "when the rounds are used up, the answer is synthesized all the same"


def test_calls_of_a_round_run_side_by_side():
    """Round 1 lasts as long as its slowest call, 5 s; the summarizer's three tokens take a second each."""
    assert example().seconds == 5 + 3


def test_eq_7_the_summarizer_sees_problem_history_and_the_last_reasoning():
    writer = example().traces[-1]
    prompt = writer.spans[0].text
    assert writer.model == "M_s" and example().answer == "7"
    assert all(text.strip() in prompt for text in (PROBLEM.text, *REPLIES))


# 3.2 Supervised initialization


WRITTEN = Trace(
    "manager",
    "manager",
    None,
    (
        Span(Origin.PROMPT, "q", 1, (0,)),
        Span(Origin.SAMPLED, "y", 1, (1,), (math.log(0.5 / 1.1),), sampling=Sampling(9)),
        Span(Origin.INJECTED, "o", 2, (2, 2)),
        Span(Origin.SAMPLED, "z", 1, (3,), (math.log(0.3 / 1.1),), sampling=Sampling(9)),
    ),
)
"""A manager's context by token: it wrote 1 and 3, with probabilities of 0.5 / 1.1 and 0.3 / 1.1 then."""


def test_eq_9_only_what_the_manager_wrote_is_trained():
    row = row_of(WRITTEN)
    assert row.token_ids == (0, 1, 2, 2, 3)
    assert row.trained == (False, True, False, False, True)


# 3.3 Reinforcement learning. The paper's thresholds: θ_par = 1.25, θ_tool = 3, L_tar = 12,288, C_tar = 8


def test_eq_10_to_18_the_reward_of_the_example():
    score = ParaManagerReward()(example())
    assert score.task == 1  # Eq. 11: the answer is right
    assert score.format == 1  # Eq. 12: three rounds, all in the template; wrong arguments are no matter of form
    assert score.parallel == 1  # Eq. 14: 2 ≥ 1.25, see below
    # Eq. 15: add, slow, fail, standard_reasoner; final_answer does not count: 4 ≥ 3
    assert unique_tools(example()) == 4 and score.tools == 1
    assert score.diversity == 1  # Eq. 13
    # Eq. 17 and Table 7: tools cost 0, the reasoner 1, final_answer 1: 2 ≤ 8
    assert cost(example()) == 2 and score.cost == 1
    assert score.length == 1  # Eq. 16: a few hundred tokens
    assert score.total == 1 + 1 + 1 + 1  # Eq. 10


@pytest.mark.parametrize(
    ("count", "theta_par", "expected"),
    [("requested", 2.0, 1), ("requested", 2.01, 0), ("executed", 1.66, 1), ("executed", 1.67, 0)],
)
def test_eq_14_refused_calls_are_among_the_n_t(count: Any, theta_par: float, expected: float):
    """n = 3, 2 and 1, one of which was refused (ν = 0): 6 / 3 = 2 calls a round. Ours, without it: 5 / 3."""
    assert requested_per_round(example()) == 2 and calls_per_round(example()) == 5 / 3
    assert ParaManagerReward(count=count, theta_par=theta_par)(example()).parallel == expected


@pytest.mark.parametrize("beside", [1, 4, 5])
def test_eq_14_calls_beside_final_answer_are_not_made_and_earn_nothing(beside: int):
    """An action is calls or `final_answer` (Eq. 3). Beyond n_max it ends the rounds too."""
    episode = played(says(*[ToolCall("add", {"a": 3, "b": 4})] * beside, FINAL))
    assert not unique_tools(episode) and rounds(episode)[0].ends and episode.answer == "7"
    assert requested_per_round(episode) == calls_per_round(episode) == 1
    assert ParaManagerReward()(episode).parallel == 0


def test_eq_12_the_share_of_rounds_in_the_template():
    """The second of three rounds has no reasoning: 2 / 3."""
    bare = render_reply(None, [ToolCall("fail", {})])
    assert ParaManagerReward()(played(REPLIES[0], bare, says(FINAL))).format == pytest.approx(2 / 3)


def test_eq_13_either_half_of_diversity_is_earned_alone():
    """Two adds, then the end: 3 / 2 ≥ 1.25 calls a round, one tool. Three tools in three rounds, the end: 4 / 4."""
    sums, fails, waits = ToolCall("add", {"a": 3, "b": 4}), ToolCall("fail", {}), ToolCall("slow", {})
    wide = ParaManagerReward()(played(says(sums, sums), says(FINAL)))
    assert (wide.parallel, wide.tools, wide.diversity, wide.total) == (1, 0, 1 / 2, 3.5)
    varied = ParaManagerReward()(played(says(sums), says(fails), says(waits), says(FINAL)))
    assert (varied.parallel, varied.tools, varied.diversity, varied.total) == (0, 1, 1 / 2, 3.5)


@pytest.mark.parametrize(("length_target", "expected"), [(1000, 1), (800, 0.75), (625, 0.4), (500, 0), (400, 0)])
def test_eq_16_the_length_reward_falls_from_the_target_to_twice_the_target(length_target: int, expected: float):
    """L = 700 + 100 + 50 + 80 + 30 + 40 = 1000; at L_tar = 800 it is (1600 - 1000) / 800 = 0.75."""
    manager, *others = example().traces
    lengths = (700, 100, 50, 80, 30, 40)
    spans = [replace(s, tokens=n, token_ids=None) for s, n in zip(manager.spans, lengths, strict=True)]
    episode = replace(example(), traces=(replace(manager, spans=tuple(spans)), *others))
    assert ParaManagerReward(length_target=length_target)(episode).length == pytest.approx(expected)


@pytest.mark.parametrize(("cost_target", "expected"), [(2, 1.0), (1.6, 0.75), (1.25, 0.4), (1, 0.0)])
def test_eq_17_the_cost_reward_does_so_too(cost_target: float, expected: float):
    """C = 2: at C_tar = 1.6 it is (3.2 - 2) / 1.6 = 0.75, at 1.25 (2.5 - 2) / 1.25 = 0.4."""
    score = ParaManagerReward(cost_target=cost_target)(example())
    assert score.cost == pytest.approx(expected) and score.efficiency == pytest.approx((1 + expected) / 2)


def test_eq_12_and_14_of_a_manager_that_answers_at_once():
    """One round in which it only ends: n_1 = 1 < 1.25, no tool; 1 + 1 + 0 + (1 + 1) / 2 = 3."""
    score = ParaManagerReward()(played(says(FINAL)))
    assert (score.parallel, score.tools, score.total) == (0, 0, 3)
    assert not read_reply(says(FINAL).replace("<reasoning>", "")).well_formed


def test_eq_19_advantages_are_relative_to_the_group():
    """Rewards 4, 3, 3, 2: mean 3, standard deviation sqrt(0.5)."""
    found = advantages([4, 3, 3, 2], delta=0.0)
    assert found == pytest.approx((math.sqrt(2), 0, 0, -math.sqrt(2)))
    assert advantages([4, 3, 3, 2], delta=0.5) == pytest.approx(
        (1 / (math.sqrt(0.5) + 0.5), 0, 0, -1 / (math.sqrt(0.5) + 0.5))
    )
    assert advantages([3, 3]) is None


@pytest.mark.parametrize(
    ("ratios", "advantage", "expected"),
    [
        ((1.1, 1.2, 0.9), 1, -1.188),  # 1.1 · 1.2 · 0.9 = 1.188, within 0.8 to 1.28
        ((1.5, 1.0, 1.0), 1, -1.28),  # min(1.5, 1.28)
        ((0.5, 1.0, 1.0), 1, -0.5),  # min(0.5, 0.8)
        ((1.5, 1.0, 1.0), -1, 1.5),  # -min(-1.5, -1.28)
        ((0.5, 1.0, 1.0), -1, 0.8),  # -min(-0.5, -0.8)
        ((1.5, 0.5, 1.0), -1, 0.8),  # 0.75, although one token alone is above and one below
    ],
)
def test_eq_20_and_21_the_ratio_of_the_whole_sequence_is_clipped(
    ratios: tuple[float, ...], advantage: float, expected: float
):
    torch = pytest.importorskip("torch")
    from orgthink.training.policy_loss import PolicyLoss, token_losses

    loss = PolicyLoss(ratio="sequence", reduction="episode-mean")  # clip 0.2 / 0.28 (Table 5)
    found = token_losses(
        torch.tensor(ratios).log(), torch.zeros(3), torch.full((3,), float(advantage)), loss, lengths=[3]
    )
    assert found.losses_N.tolist() == pytest.approx([expected] * 3)


def test_eq_20_what_the_manager_was_told_is_masked_from_the_ratio():
    """Both written tokens are 1.1 times as probable as they were: 1.21. The response has 0.001 a token, and no say."""
    torch = pytest.importorskip("torch")
    from orgthink.training.backend import EmbeddedBackend
    from orgthink.training.policy_loss import PolicyLoss

    class Chain(torch.nn.Module):
        """Probability of each token after each."""

        device = torch.device("cpu")

        def __init__(self) -> None:
            super().__init__()
            after = [[0.25, 0.5, 0.125, 0.125], [0.499, 0.25, 0.001, 0.25], [0.6, 0.099, 0.001, 0.3], [0.25] * 4]
            self.table = torch.nn.Parameter(torch.tensor(after).log())

        def hidden(self, ids: Any, positions: Any, mask: Any) -> Any:
            return self.table[ids]

        packs_rows = True
        mixed_precision = False
        head_weights = torch.eye(4), None

    row = policy_row(WRITTEN, episode="e", group="p", advantage=1.0)
    backend = EmbeddedBackend(Chain(), None, Path())  # type: ignore[arg-type]
    loss = PolicyLoss(ratio="sequence", reduction="episode-mean")
    signals = backend.forward_backward([replace(row, weight=1 / 2)], loss)  # two trained tokens weigh 1
    assert signals.tokens == 2 and signals.loss == pytest.approx(-1.21)


# 4.2 Data collection


def test_problems_are_those_with_mixed_outcomes():
    def graded(problem: str, right: int, of: int = 8) -> list[Episode]:
        one = replace(example(), problem=replace(PROBLEM, id=problem))
        return [replace(one, grade=Grade(int(i < right), 1)) for i in range(of)]

    assert mixed([*graded("always", 8), *graded("sometimes", 3), *graded("never", 0)]) == ["sometimes"]


# Appendix E, Table 7


def test_table_7_what_calls_cost():
    class Nothing:
        """Neither runs nor finds anything."""

        async def run(self, code: str) -> Result:
            raise ToolError("nothing runs")

        async def retrieve(self, queries: Sequence[str], topk: int) -> list[list[Passage]]:
            raise ToolError("nothing is found")

    tools = toolbox(TOOLS, ("a",), python_tool(Nothing()), search_tool(Nothing()), brief=False)
    assert {name: tool.cost for name, tool in tools.items()} == {
        "standard_reasoner": 1,
        "critical_reviewer": 1,
        "knowledge_searcher": 1,
        "search": 0,
        "code_reasoner": 1,
        "python": 0,
        "ensemble_solver": 4,
    }


def test_beside_the_papers_account_every_reply_of_every_model_counts_one():
    """Three replies of the manager, one of the agent, one of the summarizer."""
    assert replies(example()) == 5


# Appendix D


def test_a_case_study_is_an_episode_as_text_in_order_of_time():
    text = transcript(example())
    order = [PROBLEM.text, "State, plan.", "manager/1.1 [add, ok]:\n7", "manager/1.2 [slow, timeout]", "manager/2.2",
             "manager/answer [summarizer, M_s]:", "Answer: 7 (1 of 1 correct)"]  # fmt: skip
    places = [text.index(words) for words in order]
    assert places == sorted(places)
