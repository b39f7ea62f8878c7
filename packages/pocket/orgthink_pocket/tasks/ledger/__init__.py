"""`ledger-mini`: expressions in which some numbers are prices to look up.

The text files next to this module have the prices, one file a town; they are also a small corpus for search. A model
cannot know the prices of `test` problems without it: no `train` problem mentions them.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from orgthink.record.episode import Problem
from orgthink.tasks.task import Split, in_split
from orgthink_pocket.tasks.arithmetic import OPERANDS, Arithmetic, expression

FOLDER = Path(__file__).parent
"""Folder of the price files."""
LOOKED_UP = (1, 3)
"""Fewest and most prices of a problem."""

PRICE = re.compile(r"([a-z]+) in ([a-z]+) costs (\d+) coins")
"""A price in the corpus: item, town, coins."""

_NAME = re.compile(r"[a-z]+ [a-z]+")


class Entry(NamedTuple):
    """A price."""

    item: str
    """The item."""
    town: str
    """The town."""
    coins: int
    """Its price there."""

    @property
    def name(self) -> str:
        """Name in terse questions."""
        return f"{self.item} {self.town}"


@cache
def entries() -> tuple[Entry, ...]:
    """Every price of the corpus."""
    found = (price for file in sorted(FOLDER.glob("*.txt")) for price in PRICE.findall(file.read_text()))
    return tuple(Entry(item, town, int(coins)) for item, town, coins in found)


def named(question: str) -> list[str]:
    """Names of the prices in a terse question, such as `copper lyon`, in order, without repetitions."""
    return list(dict.fromkeys(_NAME.findall(question)))


@cache
def _by_coins(split: Split) -> dict[int, list[Entry]]:
    """Coins → prices of a split. A fifth of the prices, by a hash of their names, is held out for `test`."""
    prices: defaultdict[int, list[Entry]] = defaultdict(list)
    for entry in entries():
        if in_split(entry.name, split):
            prices[entry.coins].append(entry)
    return dict(prices)


class Ledger(Arithmetic):
    """Questions about the figures of made-up companies, which a search finds. The answer is a number."""

    name = "ledger-mini"

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        rng = random.Random(f"{self.name} {split} {seed}")
        prices = _by_coins(split)
        while True:
            found = expression(rng, rng.randint(*OPERANDS))
            if found is None:
                continue
            tokens, value = found
            priced = [at for at, token in enumerate(tokens) if token.isdigit() and prices.get(int(token))]
            count = rng.randint(*LOOKED_UP)
            if len(priced) < count:
                continue
            prices_at = {at: rng.choice(prices[int(tokens[at])]) for at in rng.sample(priced, count)}
            yield self.ledger_problem(tokens, prices_at, value)

    def ledger_problem(self, tokens: list[str], prices: dict[int, Entry], value: int) -> Problem:
        """An expression of these tokens; `prices` replaces the tokens at its keys, `value` is the answer."""
        terse = [prices[at].name if at in prices else token for at, token in enumerate(tokens)]
        long = {at: f"(price of {price.item} in {price.town})" for at, price in prices.items()}
        words = [long.get(at, token) for at, token in enumerate(tokens)]
        return Problem(
            id=f"{self.name}/{'-'.join(terse).replace(' ', '_')}",
            task=self.name,
            text=f"Compute {' '.join(words)} with the prices of the ledger, in coins.\n"
            "Write only the number in the answer.",
            data={
                "expression": " ".join(tokens),
                "value": value,
                "prices": [[prices[at].item, prices[at].town] for at in sorted(prices)],
            },
        )


LEDGER_MINI = Ledger()
