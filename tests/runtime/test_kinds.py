"""The three kinds of organization on one set of primitives: in one stream (test_session), a fixed loop, and rounds."""

from __future__ import annotations

import asyncio
import json
import re

from longest_path import longest_path
from scripts import play, words

from orgthink.engines.scripted import Turn
from orgthink.measure.latency import critical_path
from orgthink.record.episode import CONTROLLER, Message, Origin, Status, StopReason
from orgthink.runtime.agent import Result
from orgthink.runtime.budget import Limits


def ask(text: str) -> tuple[Message, ...]:
    return (Message("user", text),)


class Loop:
    """Solver → verifier → corrector, as MarsRL has it: until the verifier passes the solution or rounds are spent."""

    name = "loop"

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    async def run(self, problem, session):
        controller = session.controller()

        async def say(role: str, text: str) -> Result:
            return await session.call(controller, role, session.agent(role, ask(text)), self._work)

        solution = await say("solver", f"solve {problem.text}")
        for _ in range(self.rounds):
            verdict = await say("verifier", f"verify {solution.text}")
            if verdict.text.endswith("pass"):
                break
            solution = await say("corrector", f"correct {solution.text} given {verdict.text}")
        return solution.text

    async def _work(self, agent) -> Result:
        return Result((await agent.complete()).strip())


SOLVER = Turn("s s first", when="solve main question")
REJECT = Turn("v fail", when="verify s s first")
CORRECTOR = Turn("c c c second", when="correct s s first given v fail")
ACCEPT = Turn("v v pass", when="verify c c c second")


def test_loop_until_the_verifier_passes():
    episode = play(Loop(5), [SOLVER, REJECT, CORRECTOR, ACCEPT]).episode
    assert episode.answer == "c c c second"
    assert [trace.role for trace in episode.traces] == [CONTROLLER, "solver", "verifier", "corrector", "verifier"]
    assert [trace.agent.split("/")[-1] for trace in episode.traces[1:]] == [
        "solver", "verifier", "corrector", "verifier#2",
    ]  # fmt: skip
    assert [trace.steps for trace in episode.traces] == [0, 3, 2, 4, 3]
    assert episode.root.model is None and not episode.root.spans
    assert [edge.child for edge in episode.root.forks] == [edge.child for edge in episode.root.joins]
    assert critical_path(episode) == longest_path(episode) == 12 == episode.seconds


class Rounds:
    """A manager decodes a round, its calls to agents and to code run beside each other, then it reads what came back.

    A call is `call name argument ;`, the end `final answer`, as ParaManager has it in JSON.
    """

    name = "rounds"

    async def run(self, problem, session):
        manager = session.agent("manager", ask(f"manage {problem.text}"))
        while True:
            said = await manager.complete()
            calls = re.findall(r"call (\w+) (\w+) ;", said)
            if not calls or manager.stop is not StopReason.DONE:
                return said.partition("final ")[2] or None
            for i, (name, argument) in enumerate(calls):
                if name == "python":
                    session.fork(manager, str(i), session.code("python"), self._python(argument))
                else:
                    session.fork(manager, str(i), session.agent(name, ask(f"{name} {argument}")), self._agent)
            results = [await session.join(manager, str(i)) for i in range(len(calls))]
            manager.inject(f" {json.dumps([[str(r.status), r.text] for r in results])} ")

    async def _agent(self, agent) -> Result:
        return Result((await agent.complete()).strip())

    def _python(self, argument: str):
        async def work(agent) -> Result:
            await asyncio.sleep(4)
            return Result(str(int(argument) ** 2)) if argument.isdigit() else Result("", Status.ERROR)

        return work


ROUNDS = [
    Turn("m call python 12 ; call reasoner x ; call python y ; call reviewer z ;", when="manage main question"),
    Turn(words("r", 6), when="reasoner x"),
    Turn("boo", when="reviewer z", fails="no reviewer today"),
    Turn("m m call reasoner again ;", when='[["ok", "144"], ["ok", "r r r r r r"], ["error", ""], ["error", ""]]'),
    Turn("r r", when="reasoner again"),
    Turn("m final 7", when='[["ok", "r r"]]'),
]


def test_rounds_of_parallel_calls():
    played = play(Rounds(), ROUNDS, Limits(capacity=3))
    episode = played.episode
    manager, square, reasoner, bad, reviewer, again = episode.traces
    assert episode.answer == "7" and episode.stop is StopReason.DONE
    assert [trace.role for trace in episode.traces[1:]] == ["python", "reasoner", "python", "reviewer", "reasoner"]
    assert (square.returned, square.model, square.steps, square.spans) == ("144", None, 0, ())
    assert (square.start, square.end) == (17, 21), "code runs beside the agents"
    assert (reasoner.start, reasoner.end, reasoner.returned) == (17, 23, "r r r r r r")
    assert bad.status is Status.ERROR and bad.stop is StopReason.DONE and bad.returned is None
    assert (reviewer.status, reviewer.error) == (Status.ERROR, "no reviewer today")
    assert again.agent == "manager/0#2"
    assert [span.origin for span in manager.spans] == [
        Origin.PROMPT, *[Origin.SAMPLED, Origin.INJECTED] * 2, Origin.SAMPLED,
    ]  # fmt: skip
    assert [fork.at for fork in manager.forks] == [17, 17, 17, 17, 23]
    assert [join.at for join in manager.joins] == [17, 17, 17, 17, 23]
    assert manager.turns == 3
    assert critical_path(episode) == longest_path(episode) == 17 + 6 + 6 + 2 + 3 == episode.seconds
