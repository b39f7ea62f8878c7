"""The chains of a problem whose countdowns may need each other."""

from __future__ import annotations

from orgthink_pocket.base.countdown import links

from orgthink.episode import Problem


def chains_of(problem: Problem) -> list[list[str]]:
    """The names of each chain, in turn."""
    needs = links(problem)
    chains: list[list[str]] = []
    for part in problem.data["parts"]:
        chain = next((chain for chain in chains if chain[-1] == needs.get(part["name"])), None)
        if chain is None:
            chains.append(chain := [])
        chain.append(part["name"])
    return chains
