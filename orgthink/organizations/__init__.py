"""Organizations, by name. A new one is one file, here or in a package of yours."""

from __future__ import annotations

from dataclasses import dataclass, is_dataclass

from orgthink.runtime.organization import Organization
from orgthink.util.registry import Registry


class OrganizationRegistry(Registry[type[Organization]]):
    """Classes of organizations. A class without settings need not be declared a dataclass."""

    def _load(self, name: str) -> type[Organization]:
        cls = super()._load(name)
        return cls if is_dataclass(cls) else dataclass(eq=False)(cls)


ORGANIZATIONS = OrganizationRegistry(
    "organization",
    "orgthink.organizations",
    {
        "sequential": "orgthink.organizations.sequential:Sequential",
        "parallel": "orgthink.organizations.parallel:Parallel",
        "asyncthink": "orgthink.organizations.asyncthink:AsyncThink",
        "verifier-corrector": "orgthink.organizations.verifier_corrector:VerifierCorrector",
        "huang-yang": "orgthink.organizations.huang_yang:HuangYang",
        "majority-vote": "orgthink.organizations.majority_vote:MajorityVote",
        "self-refine": "orgthink.organizations.self_refine:SelfRefine",
        "paramanager": "orgthink.organizations.paramanager:ParaManager",
        "tool-use": "orgthink.organizations.tool_use:ToolUse",
    },
    "a subclass of orgthink.Organization",
    lambda cls: isinstance(cls, type) and issubclass(cls, Organization),
)
