"""A second simulation of organizations on replicas, every single step by itself. It shares no code with the first."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from orgthink.training.cluster.simulation.engine import EngineModel
from orgthink.training.cluster.simulation.program import (
    AgentProgram,
    DecodeTokens,
    ForkChild,
    JoinChild,
    ReadTokens,
    WaitSeconds,
)


def critical_path(program: AgentProgram) -> int:
    """Sequential decoding steps from the start to the end, as in Eq. 4 of AsyncThink. Prompts and waiting take none."""
    now, ends = 0, []
    for operation in program.operations:
        match operation:
            case DecodeTokens(tokens):
                now += tokens
            case ForkChild(child):
                ends.append(now + critical_path(child))
            case JoinChild(fork):
                now = max(now, ends[fork])
    return now


@dataclass(eq=False)
class Node:
    """An agent."""

    program: AgentProgram
    episode: int
    known: int
    unread: int
    at: int = 0
    children: list[Node] = field(default_factory=list)
    waits: Node | None = None
    parent: Node | None = None
    over: bool = False
    home: int | None = None
    state: str = "idle"
    """`idle`, `coming`, `waiting`, `reading` or `decoding`."""
    left: int = 0
    reserved: int = 0


class Stepwise:
    """Times are compared exactly, so they should be integers."""

    def __init__(self, programs: list[AgentProgram], model: EngineModel, replicas: int) -> None:
        self.model, self.now = model, 0
        self.queues: list[list[Node]] = [[] for _ in range(replicas)]
        """Live requests of each replica, in order of arrival."""
        self.ends: list[Any] = [None] * replicas
        """When the step of a replica ends; `None` if there is none."""
        self.rows: list[list[Node]] = [[] for _ in range(replicas)]
        """Agents that sample a token in the current step."""
        self.takes: list[dict[Node, int]] = [{} for _ in range(replicas)]
        """Tokens read in the current step."""
        self.timers: list[tuple[Any, Any]] = []
        self.homes: list[int] = []
        """Replica of each agent that has one."""
        self.busy = self.sampled = self.read = 0
        self.finished = [0] * len(programs)
        self.roots = [self.start(program, i, None) for i, program in enumerate(programs)]

    def run(self) -> Stepwise:
        while self.timers or any(end is not None for end in self.ends):
            self.now = min([time for time, _ in self.timers] + [end for end in self.ends if end is not None])
            for replica in range(len(self.ends)):
                if self.ends[replica] == self.now:
                    self.deliver(replica)
            while due := [timer for timer in self.timers if timer[0] == self.now]:
                self.timers.remove(due[0])
                due[0][1]()
            for replica in range(len(self.ends)):
                if self.ends[replica] is None:
                    self.begin(replica)
        return self

    def start(self, program: AgentProgram, episode: int, parent: Node | None) -> Node:
        node = Node(program, episode, program.cached, program.prompt - program.cached, parent=parent)
        self.timers.append((self.now, lambda: self.go(node)))
        return node

    def begin(self, replica: int) -> None:
        queue, model = self.queues[replica], self.model
        for node in queue:
            if node.state == "waiting":
                batch = [other for other in queue if other.state in ("reading", "decoding")]
                reserved = sum(other.reserved for other in batch)
                if len(batch) >= model.slots or reserved + node.reserved > model.cache:
                    break
                node.state = "reading"
        self.rows[replica] = rows = [node for node in queue if node.state == "decoding"]
        takes, left, seen = {}, model.chunk, 0
        for node in queue:
            if node.state == "reading" and left:
                takes[node] = min(left, node.unread)
                left -= takes[node]
                seen += sum(node.known + i + 1 for i in range(takes[node]))
        self.takes[replica] = takes
        if rows or takes:
            context = sum(node.known for node in rows)
            read = sum(takes.values())
            seconds = model.fixed + (model.prefill if takes else 0)
            seconds += model.request * sum(node.unread == tokens for node, tokens in takes.items())
            seconds += max(
                roof.base + roof.row * len(rows) + roof.context * context + roof.read * read + roof.seen * seen
                for roof in (model.memory, model.compute)
            )
            self.ends[replica] = self.now + seconds
            self.busy += seconds

    def deliver(self, replica: int) -> None:
        rows, takes = self.rows[replica], self.takes[replica]
        self.ends[replica] = None
        for node, tokens in takes.items():
            self.read += tokens
            node.known, node.unread = node.known + tokens, node.unread - tokens
        done = [node for node in takes if not node.unread]
        self.sampled += len(rows) + len(done)
        for node in [*rows, *done]:
            node.known, node.left = node.known + 1, node.left - 1
        for node in done:
            if node.state == "reading":
                node.state = "decoding"
        for node in [node for node in self.queues[replica] if node.state == "decoding" and node.left == 0]:
            if node.state == "decoding" and node.left == 0:
                self.go(node)

    def go(self, node: Node) -> None:
        while not node.over and node.at < len(node.program.operations):
            operation = node.program.operations[node.at]
            node.at += 1
            if isinstance(operation, DecodeTokens):
                node.left = operation.tokens
                if node.state != "decoding":
                    self.request(node)
                return
            if isinstance(operation, ForkChild):
                node.children.append(self.start(operation.child, node.episode, node))
            elif isinstance(operation, JoinChild):
                if not node.children[operation.fork].over:
                    self.leave(node)
                    node.waits = node.children[operation.fork]
                    return
            else:
                self.leave(node)
                if isinstance(operation, WaitSeconds):
                    self.timers.append((self.now + operation.seconds, lambda: self.go(node)))
                    return
                node.unread += operation.tokens
        if not node.over:
            self.end(node)

    def request(self, node: Node) -> None:
        cached = node.known if node.home is None else node.known - 1
        cached -= cached % self.model.block
        total = node.known + node.unread
        cached = min(cached, total - 1)
        node.known, node.unread = cached, total - cached
        rest = 0
        for operation in node.program.operations[node.at - 1 :]:
            if isinstance(operation, ReadTokens | WaitSeconds):
                break
            rest += operation.tokens if isinstance(operation, DecodeTokens) else 0
        node.reserved, node.state = total + rest, "coming"
        self.timers.append((self.now + self.model.turnaround, lambda: self.arrive(node)))

    def arrive(self, node: Node) -> None:
        if not node.over:
            if node.home is None:
                loads = [(len(queue), self.homes.count(i)) for i, queue in enumerate(self.queues)]
                node.home = loads.index(min(loads))
                self.homes.append(node.home)
            node.state = "waiting"
            self.queues[node.home].append(node)

    def leave(self, node: Node) -> None:
        if node.state in ("waiting", "reading", "decoding"):
            assert node.home is not None
            self.queues[node.home].remove(node)
        node.state = "idle"

    def end(self, node: Node) -> None:
        node.over = True
        self.leave(node)
        for child in node.children:
            if not child.over:
                self.end(child)
        if node.parent is None:
            self.finished[node.episode] = self.now
        elif node.parent.waits is node:
            node.parent.waits = None
            self.go(node.parent)
