"""Organizations, by name. A new one is one file, and one line here."""

from __future__ import annotations

from orgthink.organizations.asyncthink import AsyncThink
from orgthink.organizations.majority_vote import MajorityVote
from orgthink.organizations.parallel import Parallel
from orgthink.organizations.paramanager import ParaManager
from orgthink.organizations.self_refine import SelfRefine
from orgthink.organizations.sequential import Sequential
from orgthink.organizations.tool_use import ToolUse
from orgthink.organizations.verifier_corrector import HuangYang, VerifierCorrector
from orgthink.runtime.attempt import Organization

ORGANIZATIONS: dict[str, type[Organization]] = {
    "sequential": Sequential,
    "parallel": Parallel,
    "asyncthink": AsyncThink,
    "verifier_corrector": VerifierCorrector,
    "huang-yang": HuangYang,
    "majority-vote": MajorityVote,
    "self-refine": SelfRefine,
    "paramanager": ParaManager,
    "tool-use": ToolUse,
}
