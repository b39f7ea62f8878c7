"""Things of a test under a name, as if an installed package offered them."""

from __future__ import annotations

from typing import Any

import pytest

from orgthink.util.registry import Registry


def register(patch: pytest.MonkeyPatch, registry: Registry[Any], **things: Any) -> None:
    """Put things into a registry for as long as the patch lasts."""
    for name, thing in things.items():
        patch.setitem(registry._own, name, f"{__name__}:{name}")
        patch.setitem(registry._loaded, name, thing)
