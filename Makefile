# Everything is set up in .venv on first use. `make help` lists what there is.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# OpenMP threads that spin at barriers cost a factor of ten on a shared machine.
export OMP_WAIT_POLICY ?= passive
export HF_HUB_OFFLINE ?= 1

.DEFAULT_GOAL := help
.PHONY: help setup demo test check bench pocket test-vllm test-browser clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(VENV)/.ready  ## the virtual environment

$(VENV)/.ready: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "orgthink needs Python 3.11 or newer: make PYTHON=python3.11 …")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet torch==2.13.0
	$(BIN)/pip install --quiet -e ".[local,dev]"
	touch $@

demo: setup  ## three organizations on held-out problems, with a table and a page
	$(BIN)/orgthink demo

test: setup  ## the tests that need nothing else
	OMP_NUM_THREADS=1 $(BIN)/pytest

check: setup  ## format, lint, types
	$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/pyrefly check

bench: setup  ## speed, as ratios of two things measured in one run
	$(BIN)/python -m benchmarks

pocket: setup  ## train the shipped model again, from scratch
	$(BIN)/orgthink train pocket --out runs/pocket

clean:  ## remove environments and caches, keep runs
	rm -rf .venv .venv-* .pytest_cache .ruff_cache .hypothesis
