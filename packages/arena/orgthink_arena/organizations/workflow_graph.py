"""A workflow as data: a graph of agents, tools, votes, splits, maps, loops and branches. It is never code.

    {"nodes": {"draft": {"kind": "agent", "template": "sequential", "samples": 5},
               "answer": {"kind": "vote", "of": ["draft"]}},
     "output": "answer"}

A template is a text in which `{draft}` stands for the output of the node `draft`, `{draft.answer}` for the answer in
it, and so on (`VIEWS`). `{question}`, `{query}`, `{instruction}` and `{task}` are the problem's, `{part}` is the part
that a map works on, `{last}` the output of a loop's last round. Other braces are plain text. `workflow_json` reads and
checks graphs, `workflow` runs them; docs/arena.md describes the format.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Union

PROBLEM = ("question", "query", "instruction", "task")
"""Names that stand for something of the problem."""
PART, LAST = "part", "last"
"""Names that stand for the part of a map, and for the output of a loop's last round."""
VIEWS = ("answer", "status", "error", "verdict", "findings", "code", "json")
"""What `{node.VIEW}` takes from an output; `{node}` is its text."""

MOST_SPLIT = 1_000
"""Parts of a split; further ones are left out."""

_HOLE = re.compile(r"\{([a-z][a-z0-9_]*)(?:\.([a-z]+))?\}")
"""A placeholder: a name, and a view of it."""


class Closed:
    """Data without unknown fields."""

    __slots__ = ()
    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}


@dataclass(frozen=True, slots=True)
class Condition(Closed):
    """A condition on a text. Upper and lower case and space around it do not matter."""

    text: str
    """Template of the text."""
    equals: str | None = None
    """It holds if the text is this one."""
    contains: str | None = None
    """Or if the text contains this one."""
    negate: bool = False
    """It holds if it would not."""

    def holds(self, text: str) -> bool:
        """Whether it holds for a filled-in text."""
        text = text.strip().lower()
        if self.equals is not None:
            return (text == self.equals.strip().lower()) != self.negate
        return ((self.contains or "").strip().lower() in text) != self.negate


@dataclass(frozen=True, slots=True)
class AgentNode(Closed):
    """A model is asked, once or several times side by side."""

    template: str = ""
    """Name of a template of the prompt style; it takes its placeholders from `values`."""
    prompt: str = ""
    """Instead, the template itself."""
    values: dict[str, str] = field(default_factory=dict)
    """Templates of what the style's template has placeholders for, such as `solution`."""
    model: str = ""
    """Member of the pool; empty: the model of all."""
    role: str = "agent"
    """Its role in the record."""
    samples: int = 1
    """How many are asked the same."""
    kind: Literal["agent"] = "agent"


@dataclass(frozen=True, slots=True)
class ToolNode(Closed):
    """A tool is called."""

    tool: str
    """Its name."""
    arguments: dict[str, str]
    """Template of each argument. A list takes the outputs of a node, if the template is nothing else, or else lines."""
    kind: Literal["tool"] = "tool"


@dataclass(frozen=True, slots=True)
class VoteNode(Closed):
    """The most frequent answer of all samples of some nodes; ties go to the first."""

    of: tuple[str, ...]
    """Nodes."""
    kind: Literal["vote"] = "vote"


@dataclass(frozen=True, slots=True)
class FallbackNode(Closed):
    """The output of the first of some nodes that has an answer."""

    of: tuple[str, ...]
    """Nodes, the preferred one first."""
    kind: Literal["fallback"] = "fallback"


@dataclass(frozen=True, slots=True)
class TextNode(Closed):
    """A text, such as several outputs joined."""

    text: str
    """Its template."""
    kind: Literal["text"] = "text"


@dataclass(frozen=True, slots=True)
class SplitNode(Closed):
    """A text in parts: a question by a rule, or what an agent planned."""

    text: str
    """Its template."""
    separator: str = "\n"
    """Between two parts."""
    after: str = ""
    """Of each part only what follows this counts; a part without it is left out."""
    before: str = ""
    """Of each part only what precedes this counts; a part without it is left out."""
    kind: Literal["split"] = "split"

    def parts(self, text: str) -> list[str]:
        """The parts of a filled-in text that are not empty."""
        pieces = [piece for piece in text.split(self.separator) if self.after in piece]
        pieces = [piece.partition(self.after)[2] if self.after else piece for piece in pieces]
        pieces = [piece.partition(self.before)[0] if self.before else piece for piece in pieces if self.before in piece]
        return [piece.strip() for piece in pieces if piece.strip()][:MOST_SPLIT]


@dataclass(frozen=True, slots=True)
class NodeBlock(Closed):
    """Nodes that run as soon as what they need is there, side by side where nothing orders them."""

    nodes: dict[str, Node]
    """By their names, which are unique in the whole graph."""
    output: str
    """The node whose output is the block's."""


@dataclass(frozen=True, slots=True)
class MapNode(Closed):
    """A block for each part, side by side; their answers are joined."""

    over: str
    """The node whose outputs are the parts."""
    body: NodeBlock
    """What is done for each part, which is `{part}` there, and the question of templates of the style."""
    join: str = "\n"
    """Between two answers."""
    most: int = 8
    """Parts; further ones are left out."""
    kind: Literal["map"] = "map"


@dataclass(frozen=True, slots=True)
class LoopNode(Closed):
    """A block again and again. The output is that of the last round that had an answer, or the start."""

    body: NodeBlock
    """A round, in which `{last}` is the output of the one before."""
    until: Condition
    """On the outputs of a round; the loop ends when it holds."""
    start: str = ""
    """The node whose output the first round has as `{last}`; empty: nothing."""
    most: int = 2
    """Rounds at most."""
    kind: Literal["loop"] = "loop"


@dataclass(frozen=True, slots=True)
class BranchCase(Closed):
    """A case of a branch."""

    when: Condition
    """On the outputs before the branch."""
    body: NodeBlock
    """What is done if the condition holds."""


@dataclass(frozen=True, slots=True)
class BranchNode(Closed):
    """A router: the block of the first case whose condition holds."""

    cases: tuple[BranchCase, ...]
    """In their order."""
    otherwise: NodeBlock | None = None
    """What is done if none holds; `None`: nothing, which is a failure."""
    kind: Literal["branch"] = "branch"


@dataclass(frozen=True, slots=True)
class Graph(Closed):
    """A workflow. The answer in the output of its output node is the answer to the problem."""

    nodes: dict[str, Node]
    """By their names."""
    output: str
    """The node whose answer is the answer."""
    description: str = ""
    """What it does, in a line or two."""

    @property
    def block(self) -> NodeBlock:
        return NodeBlock(self.nodes, self.output)

    @property
    def calls(self) -> int:
        """Agents and tools that a run can call at most."""
        return _most(self.block, idle=0)

    @property
    def steps(self) -> int:
        """Nodes that a run works on at most, those without calls included; one in each round and part."""
        return _most(self.block, idle=1)


AnyNode = AgentNode | ToolNode | VoteNode | FallbackNode | TextNode | SplitNode | MapNode | LoopNode | BranchNode
"""One node."""


def _discriminated() -> Any:
    from pydantic import Field

    return Annotated[Union[AnyNode], Field(discriminator="kind")]  # noqa: UP007


if TYPE_CHECKING:
    Node = AnyNode
else:
    Node = _discriminated()


@lru_cache(maxsize=1024)  # each node is asked for them by all others of its block
def holes(template: str) -> tuple[tuple[str, str], ...]:
    """The different placeholders of a template: name and view, which may be empty."""
    return tuple(dict.fromkeys((found[1], found[2] or "") for found in _HOLE.finditer(template)))


def filled_pieces(template: str, value: Callable[[str, str], str]) -> Iterator[str]:
    """The texts of a template, with `value(name, view)` in the place of each placeholder. What is filled in is not
    searched. `value` is asked once for each."""
    values: dict[tuple[str, str], str] = {}
    at = 0
    for found in _HOLE.finditer(template):
        hole = found[1], found[2] or ""
        if hole not in values:
            values[hole] = value(*hole)
        yield template[at : found.start()]
        yield values[hole]
        at = found.end()
    yield template[at:]


def fill(template: str, value: Callable[[str, str], str]) -> str:
    """The same, as one text."""
    return "".join(filled_pieces(template, value))


def only_hole(template: str) -> tuple[str, str] | None:
    """The placeholder of a template that is nothing else."""
    found = _HOLE.fullmatch(template.strip())
    return None if found is None else (found[1], found[2] or "")


def conditions(node: AnyNode) -> tuple[Condition, ...]:
    """The conditions of a node."""
    match node:
        case LoopNode():
            return (node.until,)
        case BranchNode():
            return tuple(case.when for case in node.cases)
    return ()


def templates(node: AnyNode) -> tuple[str, ...]:
    """The templates of a node itself, without those of its blocks."""
    match node:
        case AgentNode():
            return (node.prompt, *node.values.values())
        case ToolNode():
            return tuple(node.arguments.values())
        case TextNode() | SplitNode():
            return (node.text,)
    return tuple(condition.text for condition in conditions(node))


def named(node: AnyNode) -> tuple[str, ...]:
    """The nodes that a node names in its fields, in addition to those in templates and blocks."""
    match node:
        case VoteNode() | FallbackNode():
            return node.of
        case MapNode():
            return (node.over,)
        case LoopNode() if node.start:
            return (node.start,)
    return ()


def blocks(node: AnyNode) -> tuple[NodeBlock, ...]:
    """The blocks of a node."""
    match node:
        case MapNode() | LoopNode():
            return (node.body,)
        case BranchNode():
            return (*(case.body for case in node.cases), *([] if node.otherwise is None else [node.otherwise]))
    return ()


def everywhere(block: NodeBlock | Graph) -> Iterator[tuple[str, AnyNode]]:
    """All nodes with their names, each before those of its blocks."""
    for name, node in block.nodes.items():
        yield name, node
        for inner in blocks(node):
            yield from everywhere(inner)


def uses(node: AnyNode) -> set[str]:
    """All names that a node and its blocks take something from; names of nodes within its blocks among them."""
    own = {name for template in templates(node) for name, _ in holes(template)} | set(named(node))
    return own.union(*(uses(inner) for block in blocks(node) for inner in block.nodes.values()))


def dependencies(block: NodeBlock) -> dict[str, list[str]]:
    """Node → nodes of the block that it waits for."""
    used = {name: uses(node) for name, node in block.nodes.items()}
    return {name: [other for other in block.nodes if other in used[name]] for name in block.nodes}


def _most(block: NodeBlock, idle: int) -> int:
    """Agents and tools that a run of a block calls at most, if a node without calls counts `idle`."""
    return sum(_most_of(node, idle) for node in block.nodes.values())


def _most_of(node: AnyNode, idle: int) -> int:
    match node:
        case AgentNode():
            return node.samples
        case ToolNode():
            return 1
        case MapNode() | LoopNode():
            return node.most * (idle + _most(node.body, idle))
        case BranchNode():
            return idle + max(_most(block, idle) for block in blocks(node))
    return idle
