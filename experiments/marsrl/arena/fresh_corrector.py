"""What is the corrector worth? In its place the solver answers anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from orgthink.organizations.verifier_corrector import VerifierCorrector


@dataclass(frozen=True)
class FreshCorrector(VerifierCorrector):
    """Solver and verifier. A rejected solution is not corrected: the problem is solved again, and nobody sees it."""

    templates: ClassVar[Mapping[str, str]] = {"corrector": "solver"}
    name: str = "fresh-corrector"
