"""A platform for verl without GPUs: gloo between processes, and rollout servers that run the local engine.

For tests and trials on a laptop. VERL_USE_EXTERNAL_MODULES names this module: it must be imported before the rest of
verl, which looks up its platform once.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Iterator
from contextlib import aclosing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import ray
import torch
from torch.distributed.fsdp import CPUOffloadPolicy
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry, set_platform

NAME = "orgthink_cpu"
"""Name of the rollout servers in verl's settings."""


class _Device(types.ModuleType):
    """Stands in for torch.cuda: answers verl's queries, and ignores its commands."""

    _answers = types.MappingProxyType(
        {"is_available": True, "device_count": 1, "current_device": 0, "get_device_name": "CPU", "mem_get_info": (0, 0)}
    )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "device":
            return lambda *_: nullcontext()
        answer = 0 if "memory" in name else self._answers.get(name)
        return lambda *_, **__: answer


@PlatformRegistry.register(platform="cpu")
class Cpu(PlatformBase):
    """verl's interface of a platform."""

    device_name = property(lambda self: "cpu")
    vendor_name = property(lambda self: "cpu")
    device_module = property(lambda self: _Device("cpu"))

    def is_available(self) -> bool:
        return True

    def current_device(self) -> Any:
        return "cpu"

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None: ...

    def synchronize(self, device_index: int | None = None) -> None: ...

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None: ...

    def empty_cache(self) -> None: ...

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "ORGTHINK_VISIBLE_CPUS"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None: ...

    def profiler_stop(self) -> None: ...

    def ray_resource_name(self) -> str:
        return "GPU"  # verl accepts no other resource

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> None:
        return None


def _install() -> None:
    """Make this the platform of the process."""
    set_platform(Cpu())
    init_process_group = torch.distributed.init_process_group

    def init_gloo(backend: str | None = None, *args: Any, **options: Any) -> Any:
        """verl names a backend for CPUs and one for the platform's device; torch refuses two backends for CPUs."""
        return init_process_group("gloo" if backend and "gloo" in backend else backend, *args, **options)

    torch.distributed.init_process_group = init_gloo


_install()

from verl.workers.engine import EngineRegistry  # noqa: E402  # looks up the platform
from verl.workers.engine.fsdp import transformer_impl as fsdp  # noqa: E402
from verl.workers.rollout import base as rollouts  # noqa: E402
from verl.workers.rollout.base import BaseRollout  # noqa: E402
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry, TokenOutput  # noqa: E402

from orgthink.engines.engine import Context  # noqa: E402
from orgthink.engines.local.engine import LocalEngine  # noqa: E402
from orgthink.record.episode import Origin, Sampling, Span  # noqa: E402

EngineRegistry.register(model_type="language_model", backend=["fsdp", "fsdp2"], device="cpu")(fsdp.FSDPEngineWithLMHead)

# verl offloads the reference to pinned memory, which needs a GPU.
fsdp.CPUOffloadPolicy = lambda pin_memory: CPUOffloadPolicy(pin_memory=False)


class RolloutServer:
    """A rollout server. It decodes on its event loop."""

    def __init__(self, folder: str) -> None:
        torch.set_num_threads(1)
        self._engine = LocalEngine.open(Path(folder), threaded=False)
        self._open = asyncio.Event()
        self._open.set()
        self._underway = 0

    async def generate(
        self, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any], **others: Any
    ) -> TokenOutput:
        numbers = {name: sampling_params[name] for name in ("max_tokens", "temperature", "top_p")}
        stop, seed = tuple(sampling_params.get("stop", ())), sampling_params.get("seed")
        sampling = Sampling(**numbers, stop=stop, seed=seed)
        context = Context((), [Span(Origin.PROMPT, "", len(prompt_ids), tuple(prompt_ids))])
        ids: list[int] = []
        logprobs: list[float] = []
        version, reason = None, "aborted"
        await self._open.wait()
        self._underway += 1
        try:
            async with aclosing(self._engine.stream(context, sampling)) as stream:
                async for chunk in stream:
                    if version not in (None, chunk.policy_version):
                        raise RuntimeError("weights changed during a request")
                    version = chunk.policy_version
                    ids += chunk.token_ids or ()
                    logprobs += chunk.logprobs or ()
                    reason = "aborted" if chunk.finish is None else "completed"
                    if not self._open.is_set():
                        break
        finally:
            self._underway -= 1
        extra = {"global_steps": None if version is None else int(version)}
        return TokenOutput(token_ids=ids, log_probs=logprobs, stop_reason=reason, extra_fields=extra)

    async def abort_all_requests(self, reject_request: bool = False) -> None:
        """End every request at its next token; later ones wait until `resume_generation`."""
        self._open.clear()
        while self._underway:
            await asyncio.sleep(0.01)

    async def resume_generation(self) -> None:
        self._open.set()

    async def update_weights(self, weights: dict[str, torch.Tensor], version: int) -> None:
        await self._engine.update_weights(weights, str(version))

    async def nothing(self, *_: Any, **__: Any) -> None:
        """A server on a CPU has no memory to release."""

    wake_up = sleep = clear_kv_cache = release_kv_cache = resume_kv_cache = start_profile = stop_profile = nothing


class Replica(RolloutReplica):
    """One server for each training process, on the same node."""

    async def launch_servers(self) -> None:
        node = await self.workers[0].__ray_call__.remote(lambda worker: ray.get_runtime_context().get_node_id())
        self._server_address = f"{NAME}_{self.replica_rank}"
        folder = self.model_config["path"] if isinstance(self.model_config, dict) else self.model_config.path
        server: Any = ray.remote(max_concurrency=1000)(RolloutServer)
        affinity = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
        placed = server.options(name=self._server_address, num_cpus=0.1, scheduling_strategy=affinity)
        self._server_handle = placed.remote(folder)
        self.servers = [self._server_handle]


class Adapter(BaseRollout):
    """A worker's connection to its server."""

    async def resume(self, tags: list[str]) -> None: ...

    async def release(self) -> None: ...

    async def update_weights(self, weights: Any, wire_format: str = "named_tensors", **options: Any) -> None:
        """Send all weights, gathered, under Hugging Face names."""
        state = {name: (w.full_tensor() if hasattr(w, "full_tensor") else w).detach().clone() for name, w in weights}
        server = ray.get_actor(f"{NAME}_{torch.distributed.get_rank()}")
        await server.update_weights.remote(state, options["global_steps"] or 0)


rollouts._ROLLOUT_REGISTRY[NAME, "async"] = f"{__name__}.Adapter"
RolloutReplicaRegistry.register(NAME, lambda: Replica)
