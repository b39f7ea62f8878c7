"""The kind of training that needs no gradients: evolution strategies over an adapter."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orgthink.engines import opener
from orgthink.models.decoder import Decoder
from orgthink.models.model_files import context_of
from orgthink.models.trainable import resolve_device
from orgthink.record.folder import RunFolder
from orgthink.training.evolution import EvolutionSettings, Population, evolve
from orgthink.training.recipes.base_model import FromModel, model_folder, require_same_problems
from orgthink.training.recipes.jobs import Report
from orgthink.training.rollout import SLOTS
from orgthink.util.errors import UserError


@dataclass(frozen=True, slots=True)
class Evolution(FromModel):
    """Evolution strategies over an adapter (`orgthink.training.evolution`), for any organization, task and reward."""

    settings: EvolutionSettings
    """Settings of the training."""
    slots: int = SLOTS
    """Requests that are decoded in one batch. Members, problems and workers share them."""

    def require(self) -> None:
        FromModel.require(self)
        if self.slots < 1:
            raise UserError(f"slots is {self.slots}: it must be at least 1")
        if self.lora is None or self.lora.dropout:
            raise UserError("evolution strategies train an adapter without dropout: --lora RANK")
        self.settings.require(context_of(model_folder(self.model)))

    def how(self, folder: Path) -> dict[str, Any]:
        return {**FromModel.how(self, folder), "device": "cpu"}  # only the sampler computes

    def run(self, folder: RunFolder, report: Report) -> Path:
        base = self.start_folder(folder)
        require_same_problems(folder, self.settings.rollout.task)
        model = self.open(base)
        if not isinstance(model, Decoder) or self.lora is None:
            raise UserError(f"{base}: transformers computes this architecture, which takes no adapters of members")
        how = {"slots": self.slots, "device": resolve_device(self.device), "template": self.template or None}
        sampler = asyncio.run(opener("local")(str(base), threaded=False, **how))
        population = Population(model, self.lora, sampler, base, self.settings, self.template)
        try:
            return evolve(population, self.settings, folder, report)
        finally:
            asyncio.run(sampler.aclose())
