"""Whom a manager asks, by the recorded episodes of its arena, and who would have been the best one to ask."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.shared.recorded import episodes_of
from orgthink.arena.config import Arena
from orgthink.arena.preparing import folder_of
from orgthink.episode import Episode
from orgthink.grammar.toolcall import ToolCall
from orgthink.measure.orchestration import rounds
from orgthink.organizations.paramanager import ids_of
from orgthink.store import RunFolder

PARTS = {
    "arithmetic-mini": "arithmetic-mini",
    "countdown-mini-single": "countdown-mini-single",
    "countdown-mini-two": "countdown-mini-single",
    "countdown-mini-four": "countdown-mini-single",
}
"""Task → the task of one of its parts, which is what a member is asked. No member solves a ledger alone."""
SAMPLED = ("sft-sampled", "paramanager-sampled")
"""Managers at T = 1, before and after reinforcement learning."""


def routing(runs: Path, arena: Arena) -> dict[str, Any]:
    """Shares of calls by member, and to the best member, of each manager and seed; and the best member for each task.

    `runs` is the folder of the arena, with its evaluations and, beside it, the members' attempts for the router's bank.
    """
    (bank,) = arena.methods["router"].preparations
    scores = _scores(folder_of(runs, arena, bank, 0) / "members", arena)
    best = {task: max(scores, key=lambda member: scores[member].get(part, 0.0)) for task, part in PARTS.items()}
    shares: dict[str, list[dict[str, Any]]] = {}
    for method in SAMPLED:
        shares[method] = []
        for seed in arena.seeds:
            episodes = episodes_of(runs, method, seed)
            shares[method].append(shares_of_calls(episodes, tuple(arena.pool), best))
    return {"best": best, "scores": scores, "shares": shares}


def _scores(members: Path, arena: Arena) -> dict[str, dict[str, float]]:
    """Member → task → share of training problems that it solves alone."""
    found: dict[str, dict[str, float]] = {}
    for member in arena.pool:
        right: defaultdict[str, list[bool]] = defaultdict(list)
        for episode in RunFolder.open(members / member).episodes():
            right[episode.problem.task].append(episode.grade is not None and episode.grade.all_correct)
        found[member] = {task: fmean(values) for task, values in right.items()}
    return found


def shares_of_calls(episodes: Iterable[Episode], members: tuple[str, ...], best: Mapping[str, str]) -> dict[str, Any]:
    """Shares of the calls of members, those of ids that nobody has left out."""
    names = ids_of(dict.fromkeys(members, ""), "fixed", next(iter(episodes)).problem)
    calls: Counter[str] = Counter()
    to_best: list[bool] = []
    for episode in episodes:
        for call in (call for each in rounds(episode) for call in each.reply.calls):
            member = names.get(call.arguments.get("model_id", "")) if isinstance(call, ToolCall) else None
            if member is not None:
                calls[member] += 1
                if episode.problem.task in best:
                    to_best.append(member == best[episode.problem.task])
    return {"members": {member: calls[member] / max(1, calls.total()) for member in members}, "best": fmean(to_best)}
