# Every command a person or a machine needs. Each makes the environment first, so the first call on a fresh machine with
# Python 3.11+ does all the set-up. `make` alone lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

# Some shells forbid Python to write bytecode; every import would then compile its module again.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
PROMPT ?= What is 17 * 23? Use the calculator.

.PHONY: help
help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: env ## run an agent that calls a tool, and list its kept session; without a key the model runs here
	@echo "run: an agent answers a prompt, calls a tool, and its session is kept and listed"
	@$(BIN)/perdure run "$(PROMPT)"
	@$(BIN)/perdure sessions list

.PHONY: check
check: env ## the minute before a commit: ruff, mypy, and the tests of what changed
	@$(BIN)/python -m scripts.check

.PHONY: test
test: env parts ## run everything on one Python: linters, type checkers, layers, tests, budgets
	@$(BIN)/python -m scripts.test_here

.PHONY: env
env: ## make or renew .venv (PYTHON=... to choose the interpreter)
	@scripts/env

.PHONY: parts
parts: env
	@$(BIN)/python -m scripts.system_parts

.PHONY: lint
lint: env ## ruff, mypy and basedpyright (both strict), import-linter
	@$(BIN)/python -m scripts.test_here style types layers

.PHONY: unit
unit: env ## the tests alone, or some jobs of them: make unit JOBS="core stores"
	@$(BIN)/python -m scripts.test_here $(or $(JOBS),unit)

.PHONY: others
others: env ## the tests on each other installed Python from 3.11 on
	@scripts/test-on-others

.PHONY: faults
faults: env ## the long searches for faults
	@echo "faults: the tests marked 'faults' and the property-based ones, in their longest form"
	@PERDURE_SEARCH=long $(BIN)/python -m pytest -m "faults or hypothesis" --timeout=0

.PHONY: mutants
mutants: env ## change the source a little, many times, and see whether the tests notice: make mutants OF="stores" COUNT=60 SEED=7
	@$(BIN)/python -m scripts.mutants $(OF) --count $(or $(COUNT),40) $(if $(SEED),--seed $(SEED))

.PHONY: house
house: env ## measure the house beside its goals: sizes, cycles, public names, what a run passes; of another checkout: ROOT=...
	@$(BIN)/python -m scripts.house $(ROOT)

.PHONY: peers
peers: env
	@$(BIN)/python -m bench.peers.environments

.PHONY: bench
bench: env peers ## measure, compare with other libraries, and print the tables of docs/performance.md
	@echo "bench: CPU time, and ratios to a loop written by hand in the same run"
	@$(BIN)/python -m bench
	@echo "bench: the same agent by hand, with Perdure, and with six other libraries (several minutes)"
	@$(BIN)/python -m bench.peers

.PHONY: docs
docs: env site-env ## run every example of the documentation, check its links, and build the site into build/site
	@echo "docs: the examples and links of the documentation, and its site"
	@$(BIN)/python -m pytest -q tests/docs
	@$(BIN)/python -m scripts.site.build

.PHONY: pictures
pictures: env parts ## draw the pictures of the documentation again: the event tree, a run, the chat, the trace page
	@$(BIN)/python -m scripts.pictures

.PHONY: site-env
site-env: env
	@[ -x .venv-docs/bin/python ] || $(BIN)/python -m venv .venv-docs
	@cmp -s scripts/site/requirements.txt .venv-docs/done || { echo "docs: installing what builds the site (half a minute)"; \
	  .venv-docs/bin/python -m pip install --quiet --disable-pip-version-check -r scripts/site/requirements.txt 2>/dev/null \
	  && cp scripts/site/requirements.txt .venv-docs/done \
	  || { rm -rf .venv-docs; echo "docs: Sphinx cannot be installed here; is the package index reachable?" >&2; exit 1; }; }

.PHONY: lock
lock: env ## resolve the dependencies anew and write constraints.txt
	@$(BIN)/python -m scripts.lock

.PHONY: clean
clean: ## remove the environments and what the tools left behind
	@echo "clean: environments, caches and reports"
	@rm -rf .venv .venv-3.* .venv-bench .venv-docs .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
