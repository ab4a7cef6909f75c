# SeeUPO for stock verl: every target sets up what it needs. Wrong variable values give one clear line.
#   ALGO BENCH MODEL SCALE BACKEND SEED SEEDS ARGS    e.g. make train ALGO=grpo BENCH=vaulthop SEED=3
SHELL := /bin/bash
.DEFAULT_GOAL := help

ALGO ?= seeupo
BENCH ?= vaulthop
MODEL ?= tiny-qwen3
SCALE ?= mini
BACKEND ?= verl
SEED ?= 0
ARGS ?=
PYTHON ?= $(shell for p in python3.11 python3.12 python3.10 python3; do command -v $$p && break; done)
VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM := false
export HF_HUB_OFFLINE ?= $(if $(filter mini,$(SCALE)),1,)

.PHONY: help setup test smoke train warm-start clean-venv

help:  ## Show this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-26s %s\n", $$1, $$2}'

setup: $(READY)  ## Install the CPU profile into .venv (does nothing if it is up to date)

$(READY): pyproject.toml constraints-cpu.txt
	@$(PYTHON) -c 'import sys; assert (3, 10) <= sys.version_info < (3, 13), "Python 3.10 to 3.12 is needed, found %d.%d: set PYTHON=..." % sys.version_info[:2]'
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -c constraints-cpu.txt -e '.[cpu,dev]'
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps bfcl-eval==2026.3.23
	@touch $@

test: setup  ## Run the default tests (under 10 minutes on 2 cores)
	$(PY) -m pytest -m 'not slow'

train: setup  ## Train and evaluate one run: ALGO BENCH MODEL SCALE BACKEND SEED ARGS='key=value ...'
	@$(PY) -m seeupo_recipe.study train --algorithm '$(ALGO)' --benchmark '$(BENCH)' --model '$(MODEL)' \
	    --scale '$(SCALE)' --backend '$(BACKEND)' --seed '$(SEED)' $(ARGS)

warm-start: setup  ## Build the warm start of MODEL on BENCH (deterministic; the mini ones are committed)
	$(PY) -m seeupo_recipe.models.warm_start --model '$(MODEL)' --benchmark '$(BENCH)' \
	    --out 'results/mini/warm_start/$(MODEL)/$(BENCH)'

clean-venv:  ## Remove .venv
	rm -rf $(VENV)
