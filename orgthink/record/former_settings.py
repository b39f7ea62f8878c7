"""Settings of runs from before a default or a name changed: a run goes on with what it began with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MANAGED = ("paramanager", "tool-use")
_JUDGED = ("verifier-corrector", "huang-yang", "self-refine")
_PROMPTED = (*_MANAGED, *_JUDGED, "sequential", "parallel", "majority-vote", "asyncthink")

_FORMER_DEFAULTS: dict[int, dict[str, dict[str, Any]]] = {
    2: {f"organization {name}": {"suite": {"corpus": "ledger"}} for name in _MANAGED},
    3: {
        **{f"organization {name}": {"reserve": 0.0, "faults": {"marked": True}} for name in _MANAGED},
        "reward paramanager": {"count": "executed"},
        "reward asyncthink": {"threshold": 0.6, "count": "joined", "malformed": True, "nested": True},
        "organization asyncthink": {"malformed": "error", "worker_context": "question"},
        "organization verifier-corrector": {"passes": 1, "rounds": 10, "attempts": 1},
        "mastered": {"of": "step"},
        "organization huang-yang": {"attempts": 1, "failures": 9}
        | dict.fromkeys(("review", "completeness", "rigorous"), False),
    },
}
"""Former defaults, by the version that changed them and by whose they are: `organization NAME`, `FIELD KIND` for a
class that its `kind` names, such as `reward asyncthink`, or `FIELD` for any other class."""


def name_former_defaults(settings: Any, version: int) -> None:
    """Change the settings: they get what an older version left out, where the default is another one today."""
    if not isinstance(settings, dict):
        return
    if version < 3:
        _name_former_prompts(settings)
    for changed, defaults in _FORMER_DEFAULTS.items():
        if version < changed:
            _fill(settings.get("settings"), defaults.get(f"organization {settings.get('organization')}", {}))
            for name, value in settings.items():
                if isinstance(value, dict):
                    _fill(value, defaults.get(f"{name} {value['kind']}" if "kind" in value else name, {}))
    for value in settings.values():
        name_former_defaults(value, version)


def _name_former_prompts(settings: dict[str, Any]) -> None:
    """In version 3 the prompts of the style `paper` were written anew; a run goes on with those that it began with."""
    if settings.get("organization") in _PROMPTED and isinstance(settings.get("settings"), dict):
        settings["settings"].setdefault("prompts", "paper")
    if settings.get("prompts") == "paper":
        settings["prompts"] = "paper-2"


def _fill(settings: Any, defaults: Mapping[str, Any]) -> None:
    if isinstance(settings, dict):
        for name, value in defaults.items():
            if isinstance(value, dict):
                _fill(settings.setdefault(name, {}), value)
            else:
                settings.setdefault(name, value)


def migrate_settings(settings: Any, places: Mapping[str, str]) -> Any:
    """JSON values of settings with former names replaced. `places` maps a former name to its new `part.name`."""
    if not (isinstance(settings, Mapping) and places.keys() & settings.keys()):
        return settings
    found = {name: value for name, value in settings.items() if name not in places}
    for former, place in places.items():
        if former in settings:
            part, _, name = place.partition(".")
            found[part] = {**found.get(part, {}), name: settings[former]}
    return found
