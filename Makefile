# SeeUPO for stock verl. Every target sets up what it needs; a wrong variable value gives one clear line.
#   one run:  ALGO BENCH MODEL SCALE BACKEND SEED ARGS='key=value ...'
#   studies:  BENCH=a,b MODELS=a,b VARIANTS=a,b SEEDS=3 SCALE BACKEND WORKERS DRY=1 ARGS='key=value ...'
#   clusters: STUDY=table2 BENCH=a,b MODELS=a,b VARIANTS=a,b SCALE=paper GPU=H20 ARGS='key=value ...'
SHELL := /bin/bash
.DEFAULT_GOAL := help

ALGO ?= seeupo
MODEL ?= tiny-qwen3
SCALE ?= mini
SEED ?= 0
PYTHON ?= $(shell for p in python3.11 python3.12 python3.10 python3; do command -v $$p && break; done)
VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
STUDY_CLI := $(PY) -m seeupo_recipe.study
SELECT = $(if $(BENCH),--benchmarks '$(BENCH)') $(if $(MODELS),--models '$(MODELS)') \
    $(if $(VARIANTS),--variants '$(VARIANTS)') $(if $(SEEDS),--seeds '$(SEEDS)') $(if $(BACKEND),--backend '$(BACKEND)') \
    $(if $(WORKERS),--workers $(WORKERS)) $(if $(DRY),--dry) --scale '$(SCALE)' $(ARGS)
ABLATIONS := $(patsubst recipes/study/%.yaml,%,$(wildcard recipes/study/ablation-*.yaml recipes/study/baseline-*.yaml))
SHOWN := $(filter tables figures compare report,$(MAKECMDGOALS))
CLUSTER = $(PY) -m seeupo_recipe.cluster $(@) $(if $(STUDY),--study '$(STUDY)') $(if $(BENCH),--benchmarks '$(BENCH)') \
    $(if $(MODELS),--models '$(MODELS)') $(if $(VARIANTS),--rows '$(VARIANTS)') \
    $(if $(filter command environment,$(firstword $(origin SCALE))),--scale '$(SCALE)')
export OMP_NUM_THREADS ?= 1

.PHONY: help setup test test-slow test-appworld mutants smoke train warm-start setup-appworld \
    reproduce-table2 reproduce-table3 reproduce-table4 reproduce-table5 reproduce-figure4 reproduce-figure5 \
    ablation-order ablation-normalization $(ABLATIONS) study tables figures compare report verify-theory mutate-theory \
    export eval bench-bfcl bfcl-weaknesses bench \
    doctor plan dry-run gpu-smoke resolve-gpu clean

help:  ## Show this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-24s %s\n", $$1, $$2}'
	@sed -ns '/^title:/{F;s/^title: *//p}' $(ABLATIONS:%=recipes/study/%.yaml) | paste - - | \
	    awk -F '\t' '{gsub(/.*\/|[.]yaml/, "", $$1); gsub(/"/, "", $$2); printf "  %-24s %s\n", $$1, $$2}'

setup: $(READY)  ## Install the CPU profile into .venv (does nothing if it is up to date)

$(READY): pyproject.toml constraints-cpu.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if (3, 10) <= v < (3, 13) else "Python 3.10 to 3.12 is needed, found %d.%d: set PYTHON=..." % v[:2])'
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -c constraints-cpu.txt -e '.[cpu,dev]'
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps bfcl-eval==2026.3.23
	@touch $@

test: setup  ## Run the default tests (under 10 minutes on 2 cores)
	$(PY) -m pytest -m 'not slow'

test-slow: setup  ## Run the tests that take minutes: baselines through verl, kills, theory searches
	$(PY) -m pytest -m 'slow and not appworld'

test-appworld: setup  ## Run the tests on the real AppWorld engine (sets it up)
	$(PY) -m pytest -m appworld tests/envs/appworld

mutants: setup  ## Check that each one-line fault is caught by its named test
	$(PY) tests/mutants/run.py --all

smoke: setup  ## Train SeeUPO for two iterations through verl and compare it with the lab (under 4 minutes)
	$(PY) -m pytest tests/verl_plugin/test_end_to_end.py

train: setup  ## Train and evaluate one run: ALGO BENCH MODEL SCALE BACKEND SEED ARGS
	@$(STUDY_CLI) train --algorithm '$(ALGO)' --benchmark '$(or $(BENCH),vaulthop)' --model '$(MODEL)' \
	    --scale '$(SCALE)' --backend '$(or $(BACKEND),verl)' --seed '$(SEED)' $(ARGS)

warm-start: setup  ## Build the warm start of MODEL on BENCH (deterministic; the mini ones are committed)
	$(PY) -m seeupo_recipe.models.warm_start --model '$(MODEL)' --benchmark '$(or $(BENCH),vaulthop)' \
	    --out 'results/mini/warm_start/$(MODEL)/$(or $(BENCH),vaulthop)'

setup-appworld: setup  ## Install AppWorld into .venv-appworld and build the mini tasks (DATA=official: the real data)
	$(PY) scripts/setup_appworld.py --data '$(or $(DATA),mini)'

reproduce-table2: setup  ## Table 2: methods compared (base, PPO, GRPO, GSPO, RLOO, SeeUPO)
reproduce-table3: setup  ## Table 3: what an iteration costs
reproduce-table4: setup  ## Table 4: update order (= ablation-order)
reproduce-table5: setup  ## Table 5: advantage normalisation (= ablation-normalization)
reproduce-figure4: setup  ## Figure 4: training curves
reproduce-figure5: setup  ## Figure 5: training curves by update order
ablation-order: setup  ## Update order: reverse, natural, random
ablation-normalization: setup  ## Advantage normalisation: batch, group, none
reproduce-table2 reproduce-table3 reproduce-table4 reproduce-table5 reproduce-figure4 reproduce-figure5:
	@$(STUDY_CLI) run $(@:reproduce-%=%) $(SELECT)
ablation-order ablation-normalization:
	@$(STUDY_CLI) run $@ $(SELECT)

$(ABLATIONS): setup
	@$(STUDY_CLI) run $@ $(SELECT)

study: setup  ## Run any study: STUDY=name of recipes/study, or the path of a YAML file
	@$(STUDY_CLI) run '$(STUDY)' $(SELECT)

tables: setup  ## Rebuild every table from the records (trains nothing)
figures: setup  ## Redraw every figure from the records (trains nothing)
compare: setup  ## Judge the paper's claims by the records (trains nothing)
report: setup  ## Write one HTML page with everything (trains nothing)
tables figures compare report:
	@$(if $(filter $@,$(firstword $(SHOWN))),$(STUDY_CLI) $(SHOWN) --scale '$(SCALE)' $(ARGS),:)

doctor: setup  ## Check this machine for the paper's cells: a page of pass and fail (SCALE=paper, STUDY=table2)
plan: setup  ## Memory, tokens, disk and hours of the paper's cells on GPU=H20; refuses what cannot fit
dry-run: setup  ## Check every cell of the paper, then train small stand-ins on the CPU (15 minutes)
doctor dry-run:
	@$(CLUSTER) $(ARGS)
plan:
	@$(CLUSTER) $(if $(GPU),--gpu '$(GPU)') $(ARGS)

gpu-smoke:  ## Train a small random Qwen3 on one GPU for a few iterations (at most 8 minutes)
	@scripts/gpu_smoke.sh

resolve-gpu:  ## Resolve the GPU profile from the package index and rewrite constraints-gpu.txt
	@PYTHON='$(PYTHON)' scripts/resolve_gpu.sh

verify-theory: setup  ## Check the paper's lemmas and theorems in exact games (3 minutes)
	$(PY) -m seeupo_recipe.theory

mutate-theory: setup  ## Perturb every theory check; each must then fail
	$(PY) -m seeupo_recipe.theory --mutate

export: setup  ## Write the trained policy of RUN as a Hugging Face checkpoint (OUT: where; ITERATION: verl)
	@$(PY) -m seeupo_recipe.export '$(RUN)' $(if $(OUT),--out '$(OUT)') $(if $(ITERATION),--iteration '$(ITERATION)')

eval: setup  ## avg@K and pass@K of MODEL (name, folder or endpoint URL) on BENCH: K SPLIT TASKS CONCURRENCY OUT ARGS
	@$(PY) -m seeupo_recipe.study.evaluation --bench '$(or $(BENCH),vaulthop)' --model '$(MODEL)' --k '$(or $(K),4)' \
	    $(if $(SPLIT),--split '$(SPLIT)') $(if $(TASKS),--tasks '$(TASKS)') $(if $(MODEL_NAME),--model-name '$(MODEL_NAME)') \
	    $(if $(CONCURRENCY),--concurrency '$(CONCURRENCY)') $(if $(OUT),--out '$(OUT)') $(ARGS)

bench-bfcl: setup  ## BFCL adapter: steps and checks per second, and its cost over the bare executor
	$(PY) scripts/bench_bfcl.py $(ARGS)

bfcl-weaknesses: setup  ## What BFCL's official checker lets pass, measured on its reference solutions
	$(PY) scripts/bfcl_weaknesses.py $(ARGS)

bench: bench-bfcl  ## Cost of an update phase, method against method, after bench-bfcl (13 minutes; QUICK=1: two)
	$(PY) scripts/bench_cost.py $(if $(QUICK),--quick)

clean:  ## Remove .venv; records and checkpoints stay
	rm -rf $(VENV)
