"""Organizations, by name. A new one is one file, here or in a package of yours."""

from __future__ import annotations

from dataclasses import is_dataclass

from orgthink.runtime.attempt import Organization
from orgthink.util.registry import Registry

ORGANIZATIONS: Registry[type[Organization]] = Registry(
    "organization",
    "orgthink.organizations",
    {
        "sequential": "orgthink.organizations.sequential:Sequential",
        "parallel": "orgthink.organizations.parallel:Parallel",
        "asyncthink": "orgthink.organizations.asyncthink:AsyncThink",
        "verifier_corrector": "orgthink.organizations.verifier_corrector:VerifierCorrector",
        "huang-yang": "orgthink.organizations.huang_yang:HuangYang",
        "majority-vote": "orgthink.organizations.majority_vote:MajorityVote",
        "self-refine": "orgthink.organizations.self_refine:SelfRefine",
        "paramanager": "orgthink.organizations.paramanager:ParaManager",
        "tool-use": "orgthink.organizations.tool_use:ToolUse",
    },
    "a dataclass of its settings, one of them its name, with roles and run",
    lambda cls: (
        isinstance(cls, type) and is_dataclass(cls) and "name" in cls.__dataclass_fields__ and hasattr(cls, "run")
    ),
)
