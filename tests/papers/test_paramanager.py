"""ParaManager (arXiv:2604.17009), read as its method section: what the paper says, and the numbers worked out by hand.

One scripted episode is looked at throughout. Its manager has three rounds:

    1   add(3, 4), slow(), add(wrong="x")    OK 7, TIMEOUT after 5 s, PARSE_ERR
    2   fail(), standard_reasoner(…)         EXEC_ERR, OK
    3   final_answer()                       the summarizer answers 7
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from orgthink.credit.shared import advantages
from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.episode import Episode, Grade, Origin, Problem, Sampling
from orgthink.errors import ToolError
from orgthink.grammar.toolcall import CallStatus, ToolCall, read_reply, render_reply
from orgthink.measure.accuracy import mixed
from orgthink.measure.orchestration import calls_per_round, cost, rounds, trajectory_tokens, unique_tools
from orgthink.measure.usage import replies
from orgthink.organizations.paramanager import ParaManager
from orgthink.rewards.paramanager import ParaManagerReward
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_virtual
from orgthink.tools.agents import agents
from orgthink.tools.tool import FunctionTool
from orgthink.training.rows import row_of
from orgthink.view.transcript import transcript

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


def test_eq_9_only_what_the_manager_wrote_is_trained():
    row = row_of(example().root)
    written = sum(span.tokens for span in example().root.spans if span.origin is Origin.SAMPLED)
    assert sum(row.trained) == written and len(row) == trajectory_tokens(example())


# 3.3 Reinforcement learning. The paper's thresholds: θ_par = 1.25, θ_tool = 3, L_tar = 12,288, C_tar = 8


def test_eq_10_to_18_the_reward_of_the_example():
    score = ParaManagerReward()(example())
    assert score.task == 1  # Eq. 11: the answer is right
    assert score.format == 1  # Eq. 12: three rounds, all in the template; wrong arguments are no matter of form
    # Eq. 14: executed are 2 of round 1 (the third was refused), 2 of round 2, and final_answer: 5 / 3 ≥ 1.25
    assert calls_per_round(example()) == pytest.approx(5 / 3) and score.parallel == 1
    # Eq. 15: add, slow, fail, standard_reasoner; final_answer does not count: 4 ≥ 3
    assert unique_tools(example()) == 4 and score.tools == 1
    assert score.diversity == 1  # Eq. 13
    # Eq. 17 and Table 7: tools cost 0, the reasoner 1, final_answer 1: 2 ≤ 8
    assert cost(example()) == 2 and score.cost == 1
    assert score.length == 1  # Eq. 16: a few hundred tokens
    assert score.total == 1 + 1 + 1 + 1  # Eq. 10


@pytest.mark.parametrize(
    ("length_target", "expected"),
    [(1.0, 1.0), (1 / 1.25, 0.75), (1 / 1.5, 0.5), (1 / 2, 0.0), (1 / 3, 0.0)],
)
def test_eq_16_the_length_reward_falls_from_the_target_to_twice_the_target(length_target: float, expected: float):
    """L = 1.25 L_tar: (2 L_tar - 1.25 L_tar) / L_tar = 0.75."""
    episode = example()
    tokens = trajectory_tokens(episode)
    score = ParaManagerReward(length_target=length_target * tokens)(episode)  # type: ignore[arg-type]
    assert score.length == pytest.approx(expected)


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


def test_eq_20_to_22_the_ratio_is_that_of_the_whole_masked_sequence():
    """Three tokens of ratios 1.1, 1.2 and 0.9 make 1.188: with A = 1 the loss is -1.188, at 1.5 clipped to -1.28."""
    torch = pytest.importorskip("torch")
    from orgthink.training.policy_loss import PolicyLoss, token_losses

    loss = PolicyLoss(ratio="sequence", reduction="episode-mean")  # clip 0.2 / 0.28 (Table 5)
    old, one = torch.zeros(3), torch.ones(3)

    def lost(*ratios: float) -> list[float]:
        return token_losses(torch.tensor(ratios).log(), old, one, loss, lengths=[3]).losses_N.tolist()

    assert lost(1.1, 1.2, 0.9) == pytest.approx([-1.188] * 3)
    assert lost(1.5, 1.0, 1.0) == pytest.approx([-1.28] * 3)


# 4.2 Data collection


def test_problems_are_those_with_mixed_outcomes():
    def graded(problem: str, right: int, of: int = 8) -> list[Episode]:
        one = replace(example(), problem=replace(PROBLEM, id=problem))
        return [replace(one, grade=Grade(int(i < right), 1)) for i in range(of)]

    assert mixed([*graded("always", 8), *graded("sometimes", 3), *graded("never", 0)]) == ["sometimes"]


# Appendix E, Table 7


def test_table_7_what_calls_cost():
    code = FunctionTool(add)
    units = {tool.name: tool.cost for tool in agents(("a",), code, code)} | {"python": code.cost}
    assert units == {
        "standard_reasoner": 1,
        "critical_reviewer": 1,
        "knowledge_searcher": 1,
        "code_reasoner": 1,
        "ensemble_solver": 4,
        "python": 0,
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
