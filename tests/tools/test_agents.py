"""Agents as tools: what they are asked, whose tokens they are, and what becomes of their replies."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.record.episode import Episode, Message, Problem, Sampling, Status, StopReason
from orgthink.runtime.agent import Backing, Result
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import BudgetExhausted, Limits
from orgthink.runtime.clock import run_virtual
from orgthink.runtime.deadline import DeadlineMissed
from orgthink.runtime.organization import Organization
from orgthink.runtime.session import Session
from orgthink.tools.agents import SAMPLES, agents, code_in
from orgthink.tools.search import retriever_named, search_tool
from orgthink.tools.tool import Desk, FunctionTool, Tool, status_of
from orgthink.tools.toolbox import FINAL, TOOLS, Suite, described, listed, pool_text, resources, toolbox
from orgthink.util.errors import Failure, UserError

PROBLEM = Problem("p", "countdown", "countdown 3 4 5 = 12")
PRICES = str(Path(__file__).parents[1] / "data" / "prices")
programs: list[str] = []
"""What the toy sandbox ran in the latest episode."""


async def python(code: str) -> Result | str:
    """Runs a toy program."""
    programs.append(code)
    match code.strip().partition(" "):
        case ("fail", _, rest):
            return Result(rest, Status.ERROR, error="exit code 1")
        case ("late", _, _):
            return Result("", Status.TIMEOUT, error="stopped after 10 s")
        case ("break", _, _):
            raise Failure("no sandbox")
        case (_, _, rest):
            return rest


PYTHON, SEARCH = FunctionTool(python), search_tool(retriever_named(PRICES), topk=1)


def tools(*models: str, brief: bool = False) -> dict[str, Tool]:
    return toolbox(TOOLS, models, PYTHON, SEARCH, brief=brief)


def asked(template: str, problem: Problem) -> tuple[Message, ...]:
    return (Message("user", f"{template}: {problem.text}"),)


@dataclass(frozen=True)
class One(Organization):
    """An organization that makes a single call, as it was checked; its answer is what became of it."""

    tool: Tool
    arguments: Mapping[str, Any]
    models: Mapping[str, str]
    seconds: float | None = None
    name: str = "one"

    roles: ClassVar[tuple[str, ...]] = ()

    async def run(self, problem: Problem, session: Session) -> str | None:
        root, desk = session.controller(), Desk(session, problem, asked, self.models)
        arguments = self.tool.parameters.check(self.arguments)
        child = self.tool.agent(arguments, desk)
        work = lambda child: self.tool.work(child, arguments, desk)  # noqa: E731
        result = await session.call(root, "1.1", child, work, seconds=self.seconds)
        return json.dumps([status_of(result), result.text or result.error or result.status])


def called(
    tool: Tool,
    turns: Sequence[str | Turn],
    *,
    models: Mapping[str, str] | None = None,
    engines: Mapping[str, ScriptedEngine] | None = None,
    max_tokens: int = 100,
    **arguments: Any,
) -> tuple[str, str, Episode]:
    """Status and value of a call for which exactly these turns are asked for, and the episode."""
    programs.clear()
    engine = ScriptedEngine([Turn(turn) if isinstance(turn, str) else turn for turn in turns])
    roles = {name: Backing(one, Sampling(max_tokens)) for name, one in (engines or {}).items()}
    organization, backing = One(tool, arguments, models or {}), Backing(engine, Sampling(max_tokens))
    episode = run_virtual(attempt(organization, PROBLEM, backing, roles=roles, limits=Limits(capacity=9)))
    for one in (engine, *(engines or {}).values()):
        run_virtual(one.aclose())
    status, value = json.loads(episode.answer or "[]")
    return status, value, episode


# What they are asked


@pytest.mark.parametrize("name", ["standard_reasoner", "critical_reviewer", "knowledge_searcher", "code_reasoner"])
@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ({}, f"{PROBLEM.text}"),
        ({"subtask": ""}, f"{PROBLEM.text}"),
        ({"subtask": "add 3 {and} 4"}, "add 3 {and} 4"),
    ],
)
def test_who_is_asked_nothing_in_particular_is_asked_the_problem(name: str, arguments: dict[str, str], shown: str):
    _, _, episode = called(tools()[name], ["<code>print 3</code> <query>copper</query>"], **arguments)
    agent = episode.traces[1]
    assert (agent.role, agent.spans[0].text) == (name, f"{name}: {shown}")


@pytest.mark.parametrize(
    ("arguments", "model"), [({}, "slow"), ({"model_id": "m2"}, "slow"), ({"model_id": "m1"}, "fast")]
)
def test_the_model_that_is_asked_for_answers_or_else_the_first(arguments: dict[str, str], model: str):
    known = {"m2": "slow", "m1": "fast"}
    engines = {model: ScriptedEngine([Turn("<ANSWER>7</ANSWER>")], model=model)}
    _, _, episode = called(tools(*known)["standard_reasoner"], [], models=known, engines=engines, **arguments)
    assert episode.traces[1].model == model


def test_without_a_pool_the_model_is_that_of_the_role():
    engines = {"standard_reasoner": ScriptedEngine([Turn("<ANSWER>7</ANSWER>")], model="own")}
    for arguments in ({}, {"model_id": "controller"}):
        _, _, episode = called(tools()["standard_reasoner"], [], engines=engines, **arguments)
        assert episode.traces[1].model == "own"
        engines = {"standard_reasoner": ScriptedEngine([Turn("<ANSWER>7</ANSWER>")], model="own")}


def test_what_they_take_is_told_and_checked():
    parameters = tools("b", "a")["code_reasoner"].parameters
    subtask, model = parameters.schema["properties"]["subtask"], parameters.schema["properties"]["model_id"]
    assert (subtask["type"], subtask["default"], model["enum"], model["default"]) == ("string", "", ["b", "a"], "b")
    assert subtask["description"] and model["description"] and "required" not in parameters.schema
    assert parameters.check({}) == {}
    for wrong in ({"model_id": "c"}, {"subtask": 3}, {"task": "x"}, {"subtask": None}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            parameters.check(wrong)
    assert tools("b", "a")["ensemble_solver"].parameters.check({}) == {}
    with pytest.raises(ValueError, match="subtask"):
        tools()["ensemble_solver"].parameters.check({"subtask": "x"})


def test_the_suite_is_that_of_table_7():
    costs = {name: tool.cost for name, tool in tools().items()}
    assert costs == {
        **dict.fromkeys(("standard_reasoner", "critical_reviewer", "knowledge_searcher", "code_reasoner"), 1),
        **{"search": 0, "python": 0, "ensemble_solver": 4},
    }
    assert list(costs) == list(TOOLS)
    assert [tool.name for tool in agents(["a"], PYTHON, SEARCH)] == [name for name in TOOLS if costs[name]]
    assert all(tool.name == name and tool.description.endswith(".") for name, tool in tools().items())
    told = described(tools("a"))
    assert [json.loads(line) for line in listed(told).splitlines()] == list(told) and told[-1]["name"] == FINAL
    assert pool_text([("m1", "fast"), ("m2", "slow")]) == "m1: fast\nm2: slow"
    with pytest.raises(UserError, match="unknown tool 'pyton': did you mean python"):
        toolbox(["pyton"], (), PYTHON, SEARCH, brief=False)


# What they say


@pytest.mark.parametrize("name", ["standard_reasoner", "critical_reviewer"])
@pytest.mark.parametrize(
    ("brief", "says", "status", "value"),
    [
        (False, "mull </think> as 3 + 4 = 7 <ANSWER>7</ANSWER>", "OK", "as 3 + 4 = 7 <ANSWER>7</ANSWER>"),
        (True, "mull </think> as 3 + 4 = 7 <ANSWER> 7 </ANSWER>", "OK", "7"),
        (False, "no tags here", "OK", "no tags here"),
        (True, "no tags here", "EXEC_ERR", "no answer in the reply"),
        (True, "<ANSWER>9</ANSWER> </think> thoughts do not count", "EXEC_ERR", "no answer in the reply"),
        (False, "mull </think>", "EXEC_ERR", "no answer in the reply"),
        (False, "o " * 200, "EXEC_ERR", "truncated"),
        (True, "<ANSWER>7</ANSWER> " + "o " * 200, "EXEC_ERR", "truncated"),
    ],
)
def test_what_a_reasoner_hands_back(name: str, brief: bool, says: str, status: str, value: str):
    assert called(tools(brief=brief)[name], [says])[:2] == (status, value)


@pytest.mark.parametrize(
    ("says", "code"),
    [
        ("<code>print 3</code>", "print 3"),
        ("first <code>print 3</code> no, <code>\nprint 4\n</code> so", "\nprint 4\n"),
        ("<code>a <code> b</code>", "a <code> b"),
        ("</code> <code>print 3</code> <code>cut off", "print 3"),
        ("<code>\n```python\nprint 3\n```\n</code>", "print 3\n"),
        ("<code>\n```\nprint 3\n```\n</code> <code>```py\nprint 4\n```</code>", "print 4\n"),
        ("so\n```python\nprint 3\n```\nand\n```py\nprint 4\n```", "print 4\n"),
        ("```\nprint 3\n```", "print 3\n"),
        ("```json\n{}\n``` ```python\nprint 3\n```", "print 3\n"),
        ("<code></code>", ""),
        ("<code>print 3", None),
        ("```python\nprint 3", None),
        ("```json\n{}\n```", None),
        ("print 3", None),
        ("<code>" * 100_000, None),  # the square of this would take minutes
        ("<think> perhaps <code>print 3</code> or not </think> I cannot", None),
        ("perhaps ```py\nprint 3\n``` </think> I cannot", None),
        ("<think> perhaps <code>print 3</code>", None),
        ("<think> perhaps <code>print 3</code> </think> <code>print 4</code>", "print 4"),
        ("perhaps <code>print 3 </think> so <code>print 4</code>", "print 4"),
    ],
)
def test_a_coders_last_block_is_run(says: str, code: str | None):
    status, value, episode = called(tools(brief=True)["code_reasoner"], [Turn(says, seconds=0)], max_tokens=10**6)
    if code is None:
        assert (status, value, programs, len(episode.traces)) == ("EXEC_ERR", "no <code> in the reply", [], 2)
    else:
        assert programs == [code] and status == "OK"
        assert [(t.agent, t.role, t.cost) for t in episode.traces[2:]] == [("controller/1.1/python", "python", 0.0)]


@pytest.mark.parametrize(
    ("code", "status", "value"),
    [
        ("print 3", "OK", "3"),
        ("fail Traceback", "EXEC_ERR", "Traceback"),
        ("fail", "EXEC_ERR", "exit code 1"),
        ("late", "TIMEOUT", "stopped after 10 s"),
        ("break", "EXEC_ERR", "no sandbox"),
    ],
)
def test_what_a_program_prints_comes_back_alone_or_before_how_it_came_about(code: str, status: str, value: str):
    says = f"mull </think> let us see <code>{code}</code>"
    assert called(tools(brief=True)["code_reasoner"], [says])[:2] == (status, value)
    whole = called(tools()["code_reasoner"], [says])[:2]
    reply = f"let us see <code>{code}</code>"
    assert whole == (status, f"<execution_result>\n{value}\n</execution_result>\n{reply}")


def test_what_a_searcher_finds_comes_back():
    says = '<query>\n- copper lyon\n"salt oslo"\n</query> and <query>copper riga; salt riga</query>'
    status, value, episode = called(tools(brief=True)["knowledge_searcher"], [says])
    lines = value.splitlines()
    assert status == "OK" and [line.partition(":")[0] for line in lines] == [
        *("copper lyon", "salt oslo", "copper riga", "salt riga")
    ]
    assert all(query in line.partition(":")[2].replace(" in ", " ") for query, line in zip(
        ("copper lyon", "salt oslo", "copper riga", "salt riga"), lines, strict=True))  # fmt: skip
    assert [trace.agent for trace in episode.traces[1:]] == ["controller/1.1", "controller/1.1/search"]
    _, whole, _ = called(tools()["knowledge_searcher"], [f"mull </think> {says}"])
    assert whole == f"<search_result>\n{value}\n</search_result>\n{says}"


def test_a_query_that_was_only_thought_of_is_not_searched():
    says = "<think> <query>salt oslo</query>? no </think> <query>copper lyon</query>"
    status, value, _ = called(tools(brief=True)["knowledge_searcher"], [says])
    assert status == "OK" and "lyon" in value and "oslo" not in value


@pytest.mark.parametrize(
    "says",
    [
        *("copper lyon", "<query></query>", "<query>\n - \n;</query>", "<query>copper lyon"),
        *("<think> <query>copper lyon</query> </think> no", "<query>copper lyon</query> </think> no"),
    ],
)
def test_a_searcher_without_a_query_fails(says: str):
    assert called(tools()["knowledge_searcher"], [says])[:2] == ("EXEC_ERR", "no <query> in the reply")


@given(
    st.text() | st.lists(st.sampled_from(["<code>", "</code>", "```", "\n", "x", "<query>", "</query>"])).map("".join)
)
def test_any_reply_is_a_result(says: str):
    for name in ("code_reasoner", "knowledge_searcher", "standard_reasoner"):
        status, _, episode = called(tools()[name], [Turn(says, seconds=0)], max_tokens=10_000)
        assert status in ("OK", "EXEC_ERR") and episode.error is None


# What a function does


@pytest.mark.parametrize(
    ("raised", "said", "logged"),
    [
        (ValueError("no such\ntown"), "ValueError: no such town", True),
        (UserError("name a corpus"), "UserError: name a corpus", True),
        (TimeoutError("late"), "TimeoutError: late", True),
        (Failure("gone"), "gone", False),
    ],
)
def test_whatever_a_function_raises_is_a_failed_call(raised: Exception, said: str, logged: bool, caplog: Any):
    async def broken(town: str) -> str:
        """Breaks."""
        raise raised

    status, value, episode = called(FunctionTool(broken), [], town="Lyon")
    assert (status, value, episode.error) == ("EXEC_ERR", said, None)
    assert [record.getMessage() for record in caplog.records] == ["tool broken failed"] * logged


async def plan(day: date, steps: tuple[int, int]) -> str:
    """Plans a day."""
    return f"{day.year} {steps[0] + steps[1]}"


def test_a_function_gets_what_its_type_hints_say():
    assert called(FunctionTool(plan), [], day="2024-02-29", steps=[1, 2])[:2] == ("OK", "2024 3")


@pytest.mark.parametrize("language", ["python", "Python", "python3", "py", ""])
def test_the_program_is_the_last_block_of_python_not_its_output(language: str):
    blocks = f"First:\n```{language}\nprint(1)\n```\nBetter:\n```{language}\nprint(6 * 7)\n```\n"
    assert code_in(blocks) == "print(6 * 7)\n"
    assert code_in(f"<code>\n{blocks}</code>") == "print(6 * 7)\n"
    if language:
        assert code_in(f"{blocks}Expected output:\n```\n42\n```\n") == "print(6 * 7)\n"


def test_what_is_no_text_is_a_failed_call():
    async def three() -> Any:
        """Counts."""
        return 3

    def four() -> Any:
        """Counts, and is not awaited."""
        return "4"

    assert called(FunctionTool(three), [])[:2] == ("EXEC_ERR", "TypeError: it returned int, not a text")
    assert called(FunctionTool(four), [])[0] == "EXEC_ERR"


@pytest.mark.parametrize("limit", [BudgetExhausted("forks", 2, 2), DeadlineMissed()])
async def test_limits_are_no_fault_of_a_function(limit: Exception):
    async def limited() -> str:
        """Reaches a limit."""
        raise limit

    with pytest.raises(type(limit)):
        await FunctionTool(limited).work(None, {}, None)  # type: ignore[arg-type]  # it looks at neither


# What is opened


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        (("standard_reasoner", "critical_reviewer", "ensemble_solver"), None),
        (("search",), "no folder"),
        (("standard_reasoner", "knowledge_searcher"), "no folder"),
        (("python",), "unknown sandbox"),
        (("code_reasoner",), "unknown sandbox"),
        (TOOLS, "unknown sandbox"),
    ],
)
def test_only_what_the_tools_work_with_is_opened(names: tuple[str, ...], missing: str | None):
    nothing = Suite(sandbox="none", corpus="/nowhere")
    if missing is None:
        assert list(toolbox(names, (), *resources(nothing, names), brief=False)) == list(names)
        return
    with pytest.raises(UserError, match=missing):
        resources(nothing, names)


# The ensemble


def voted(*answers: str | Turn, **settings: Any) -> tuple[str, str, Episode]:
    turns = [f"so <ANSWER>{answer}</ANSWER>" if isinstance(answer, str) else answer for answer in answers]
    return called(tools()["ensemble_solver"], turns, **settings)


@pytest.mark.parametrize(
    ("answers", "winner"),
    [
        (["3+4+5", "3*4", "3*4", "5"], "3*4"),
        (["3*4", "4*3", "5", "6"], "3*4"),  # two spellings are one solution
        (["3+4+5", "3*4", "3*4", "3+4+5"], "3+4+5"),  # among equals the one that was offered first
    ],
)
def test_the_ensemble_says_what_most_of_its_samples_say(answers: list[str], winner: str):
    status, value, episode = voted(*answers)
    assert (status, value) == ("OK", winner)
    thinkers = episode.traces[2:]
    assert len(thinkers) == SAMPLES == 4 and {trace.role for trace in thinkers} == {"standard_reasoner"}
    assert {trace.spans[0].text for trace in thinkers} == {f"standard_reasoner: {PROBLEM.text}"}
    assert {trace.start for trace in thinkers} == {0.0} and episode.traces[1].model is None
    assert {trace.cost for trace in thinkers} == {0.0}, "the call pays for them, and they are known to cost no more"


def test_who_fails_or_is_cut_off_has_no_vote():
    failing = [
        Turn("<ANSWER>9</ANSWER>", fails="gone"),
        Turn("</think> <ANSWER>3+4+5</ANSWER> " + "o " * 200),
        Turn("hm"),
    ]
    assert voted(*failing, "3*4")[:2] == ("OK", "3*4")
    assert voted(*failing, Turn("hm"))[:2] == ("EXEC_ERR", "no_return")


def test_a_spent_budget_leaves_the_votes_that_were_cast():
    organization, engine = One(tools()["ensemble_solver"], {}, {}), ScriptedEngine([Turn("<ANSWER>3*4</ANSWER>")] * 2)
    limits = Limits(9, forks=3)  # the call is the first
    episode = run_virtual(attempt(organization, PROBLEM, Backing(engine, Sampling(100)), limits=limits))
    assert json.loads(episode.answer or "[]") == ["EXEC_ERR", "3*4"], "cut short, with what it had"
    call, *thinkers = episode.traces[1:]
    assert len(thinkers) == 2 and call.stop is StopReason.BUDGET and "forks" in str(call.error)


@pytest.mark.parametrize(
    ("answers", "winner"),
    [(["3*4", "5", "3*4"], "3*4"), (["5", "3*4", "4*3"], "3*4"), (["5"], "5"), ([], "timeout")],
)
def test_a_deadline_leaves_the_votes_that_were_cast(answers: list[str], winner: str):
    done = [Turn(f"<ANSWER>{answer}</ANSWER>") for answer in answers]
    hanging = [Turn("<ANSWER>9</ANSWER> hm", hangs=True)] * (SAMPLES - len(answers))
    engine = ScriptedEngine([*done, *hanging])
    organization = One(tools()["ensemble_solver"], {}, {}, seconds=10)
    episode = run_virtual(attempt(organization, PROBLEM, Backing(engine, Sampling(100)), limits=Limits(9)))
    assert json.loads(episode.answer or "[]") == ["TIMEOUT", winner]
    call, *thinkers = episode.traces[1:]
    assert call.stop is StopReason.DEADLINE and len(thinkers) == SAMPLES


def test_the_samples_of_an_ensemble_are_drawn_differently():
    class Seeded(ScriptedEngine):
        seeds: ClassVar[list[int | None]] = []

        def stream(self, context: Any, sampling: Sampling) -> Any:
            self.seeds.append(sampling.seed)
            return super().stream(context, sampling)

    engine = Seeded([Turn("<ANSWER>3*4</ANSWER>")] * 4)
    organization = One(tools()["ensemble_solver"], {}, {})
    run_virtual(attempt(organization, PROBLEM, Backing(engine, Sampling(100, seed=1)), limits=Limits(9)))
    assert len(set(engine.seeds)) == SAMPLES and None not in engine.seeds
