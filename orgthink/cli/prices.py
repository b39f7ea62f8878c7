"""Prices of models from a file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from orgthink.measure.usage import Price
from orgthink.util.errors import UserError
from orgthink.util.settings import require_known
from orgthink.util.tabular import json_object, toml_tables
from orgthink.util.validation import typed


def read_prices(file: Path | None) -> dict[str, Price]:
    """The prices in a TOML or JSON file, by model; none without a file. UserError that names the file."""
    if file is None:
        return {}
    values = json_object(file) if file.suffix == ".json" else toml_tables(file)
    prices = typed(dict[str, Price], values, file)
    try:
        require_known(dict[str, Price], values)
    except UserError as error:
        raise UserError(f"{file}: {error}") from None
    if not prices:
        raise UserError(f"{file} names no model")
    return prices


def unpriced(models: Iterable[str | None], prices: Mapping[str, Price]) -> str | None:
    """That dollars are not known, because these models are not among those with a price."""
    unknown = [model for model in dict.fromkeys(models) if model is not None and model not in prices]
    return f"no price of {', '.join(unknown)}: dollars are unknown" if prices and unknown else None
