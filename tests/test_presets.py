"""What a model gets by default: what it was trained with, or what untrained models need."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orgthink.engines import EngineSpec
from orgthink.evaluation.specs import OrganizationSpec, organization_settings
from orgthink.util.errors import UserError

SERVER = EngineSpec("model", "http://localhost:8000/v1")


def _folder(path: Path, preset: dict[str, Any] | None) -> EngineSpec:
    if preset is not None:
        (path / "orgthink.json").write_text(json.dumps(preset))
    return EngineSpec(str(path))


def test_untrained_models_get_examples_and_tolerance(tmp_path: Path):
    for spec in (SERVER, _folder(tmp_path, None)):
        assert spec.prompts == "demonstrated"
        made = OrganizationSpec("asyncthink", organization_settings("asyncthink", spec)).named("a")
        assert vars(made)["prompts"] == "demonstrated" and vars(made)["tolerant"]
        assert organization_settings("sequential", spec) == {"prompts": "demonstrated"}
    served = EngineSpec("model", "http://localhost:8000/v1", tokenizer=str(tmp_path))
    assert organization_settings("asyncthink", served)["tolerant"]


@pytest.mark.parametrize(("preset", "style"), [({"prompts": "tagged"}, "tagged"), ({"capacity": 3}, "paper")])
def test_a_trained_model_gets_what_it_was_trained_with(tmp_path: Path, preset: dict[str, Any], style: str):
    spec = _folder(tmp_path, preset)
    assert spec.prompts == style
    assert organization_settings("asyncthink", spec) == {"prompts": style}


def test_the_user_decides():
    settings = organization_settings("asyncthink", SERVER, {"tolerant": False}, "paper")
    assert settings == {"prompts": "paper", "tolerant": False}
    with pytest.raises(UserError, match="unknown prompt style 'papr'"):
        organization_settings("asyncthink", SERVER, prompts="papr")
