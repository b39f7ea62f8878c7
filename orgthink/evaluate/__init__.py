"""Problems × organizations × samples → a run folder: plan, resolve, open, run, summarise.

The package can be called: `orgthink.evaluate(…)` is the function of `orgthink.api`, which has its name.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> Any:
        return importlib.import_module("orgthink.api").evaluate(*args, **options)


sys.modules[__name__].__class__ = _Callable
