"""The pocket models that call tools: in their larger vocabulary, pieces of a call's JSON are tokens.

The text of a call is the same as for any model (`orgthink.grammar.toolcall`); the tokens only make it shorter to write.
A model may still misplace a piece, and then the call cannot be read.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from tokenizers import AddedToken, Tokenizer

from orgthink.grammar.toolcall import CallStatus
from orgthink.models.qwen3 import Qwen3
from orgthink.tools.toolbox import FINAL, TOOLS
from orgthink_pocket import model as pocket
from orgthink_pocket.tasks.ledger import entries

MODELS = tuple(f"m{i}" for i in range(1, 7))
"""Possible ids of models of a pool."""
WORDS = (
    "<reasoning>", "</reasoning>", "<code>", "</code>", "<query>", "</query>", "print",
    "left", "final", "look", "compute", "ask", "answers", "reviewer", "coder", "finder",
    "ledger", "in", "costs", "coins", "review", "code", "nothing", "found", "injected", "fault",
)  # fmt: skip
"""Words of managers and their agents; the names of the ledger follow."""
PIECES = (
    '<tool_call>\n{"name": "',
    '", "arguments": {"model_id": "',
    '", "arguments": {"code": "print(',
    '", "arguments": {"query_list": ["',
    '", "arguments": {}}\n</tool_call>\n',
    '", "subtask": "',
    '", "',
    ')"}}\n</tool_call>\n',
    '"}}\n</tool_call>\n',
    '"]}}\n</tool_call>\n',
    '<tool_response>\n{"name": "',
    *(f'", "status": "{status}", "value": "' for status in CallStatus),
    '"}\n</tool_response>\n',
    "\\n",
    "==",
    "True",
    "False",
    *TOOLS,
    FINAL,
    *MODELS,
)
"""Pieces of calls and responses: tokens without a space before them."""


def vocabulary() -> list[str]:
    """All tokens in the order of their ids; those of the pocket models come first."""
    names = dict.fromkeys(name for entry in entries() for name in (entry.item, entry.town))
    return list(dict.fromkeys([*pocket.vocabulary(), *WORDS, *names, *PIECES]))


def build_tokenizer() -> Tokenizer:
    """One token per word or piece. Pieces match first, anywhere in the text; the rest of a split word is unknown."""
    words = [word for word in vocabulary() if word not in PIECES]
    tokenizer = pocket.build_tokenizer(words)
    tokenizer.add_tokens([AddedToken(piece, normalized=False) for piece in PIECES])
    return tokenizer


CONFIG = replace(pocket.CONFIG, vocab_size=len(vocabulary()))
"""The architecture of the pocket model with the larger vocabulary."""


POOL = {"pocket-mars": "arithmetic", "pocket": "countdown", "pocket-tools": "code review"}
"""Frozen models of the pocket manager and their descriptions; the first is the default. They differ in skill and cost:
at countdown `pocket` is right far more often than `pocket-mars`, and writes three times as many tokens."""
AGENT_TOKENS = 352
"""Most tokens of an agent of the pool; `pocket` finds no solution of a countdown later."""
USING: dict[str, Any] = {"rounds": 5, "response_tokens": 32, "suite": {"corpus": "ledger"}, "reserve": 0.0}
"""Settings of models that call tools, such that episodes fit the context of a pocket model. They have not learned to
answer before they are done, so nothing is kept for that."""
MANAGING: dict[str, Any] = {**USING, "rounds": 12, "aliases": True, "brief": True, "echo": True}
"""Settings of managers, without their pool. With one call a round, the rounds suffice to call four agents, check their
answers and call again."""

Lessons = Literal["tools", "manager"]
"""The taught role: a model that uses tools itself, or a manager."""

TASKS = ["arithmetic-mini", "countdown-mini-single", "countdown-mini-four", "ledger-mini"]
"""What all models that call tools know."""

MADE_FOR: dict[Lessons, dict[str, Any]] = {
    "tools": {"tasks": TASKS, "max_tokens": 256, "renew": True, "organizations": {"tool-use": USING}},
    "manager": {
        "tasks": TASKS,
        "capacity": 9,
        "max_tokens": 128,
        "renew": True,
        "organizations": {"paramanager": {"pool": POOL, **MANAGING}},
        "roles": {name: {"model": name, "max_tokens": AGENT_TOKENS} for name in POOL},
    },
}
"""Entries of orgthink.json beside the prompt style."""


def write_folder(folder: Path, lessons: Lessons = "manager") -> None:
    """Write a model folder without the weights."""
    pocket.write_folder(folder, CONFIG, build_tokenizer(), MADE_FOR[lessons])


def widened(base: Path, seed: int) -> Qwen3:
    """The weights of a pocket model, with random embeddings, drawn from `seed`, for the new tokens."""
    known, model = Qwen3.load(base), Qwen3(CONFIG)
    model.initialise(torch.Generator().manual_seed(seed))
    weights = known.to_hf()
    for name, weight in model.to_hf().items():
        rows = weights[name]
        weights[name] = rows if rows.shape == weight.shape else torch.cat([rows, weight[len(rows) :]])
    model.from_hf(weights)
    return model
