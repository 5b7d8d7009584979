# Everything below works on a fresh clone: the first target that needs it sets up .venv from the lock file.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
UV := $(shell command -v uv 2>/dev/null)
PYTHON ?= $(shell command -v python3.11 || command -v python3)
# Test processes; the tests start real services, so more than the machine's cores gains nothing.
WORKERS ?= 2
ARGS ?=
PATHS := $(wildcard app tests benchmarks examples migrations monitoring)

.PHONY: help
help:  ## Say what can be made
	@awk -F':.*## ' '/^[a-z%<>-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(VENV)/.project  ## Make .venv from requirements.lock; nothing to do the second time

$(BIN)/python:
ifeq ($(UV),)
	@test -n "$(PYTHON)" && $(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || \
	  { echo "twincal needs Python 3.11 (make setup PYTHON=/path/to/python3.11), or uv on the PATH to fetch it" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
else
	$(UV) venv --quiet --python 3.11 $(VENV)
endif

$(VENV)/.packages: requirements.lock | $(BIN)/python
ifeq ($(UV),)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
else
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --require-hashes -r requirements.lock
endif
	@touch $@

# The build backend comes from the lock as well: no build isolation, nothing fetched here.
$(VENV)/.project: pyproject.toml $(VENV)/.packages
ifeq ($(UV),)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
else
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
endif
	@touch $@

.PHONY: demo
demo: setup  ## A simulated fleet, calibrated end to end on this machine (ARGS=--once exits at the end)
	@$(BIN)/twincal demo $(ARGS)

.PHONY: test
test: setup check  ## Set up, then check: what CI runs

.PHONY: check
check: lint types layers tests  ## Style, types, import layers and all tests with coverage

.PHONY: lint
lint: setup
	$(BIN)/ruff check $(PATHS)
	$(BIN)/ruff format --check $(PATHS)

.PHONY: types
types: setup
	$(BIN)/mypy

.PHONY: layers
layers: setup
	$(BIN)/lint-imports

.PHONY: tests
tests: setup  ## All tests (ARGS="-k name" picks some)
	$(BIN)/pytest --numprocesses $(WORKERS) --dist loadfile --cov --cov-report term:skip-covered $(ARGS)

.PHONY: format
format: setup  ## Write the style that lint checks
	$(BIN)/ruff check --fix $(PATHS)
	$(BIN)/ruff format $(PATHS)

.PHONY: bench
bench: setup  ## Every benchmark behind a performance claim
	@for file in benchmarks/[!_]*.py; do \
	  name=$$(basename "$$file" .py); echo "== $$name"; $(BIN)/python -m "benchmarks.$$name" $(ARGS); done

bench-%: setup  ## One benchmark: bench-rollout runs benchmarks/rollout.py
	@$(BIN)/python -m "benchmarks.$*" $(ARGS)

.PHONY: dashboards
dashboards: setup  ## Write Grafana's dashboards from monitoring/grafana
	@$(BIN)/python -m monitoring.grafana.generate

# Both files name versions and the hashes of every platform's files, never a host.
LOCK := pip compile pyproject.toml --quiet --python-version 3.11 --python-platform linux --generate-hashes --no-annotate \
	--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock"
.PHONY: lock
lock:  ## Resolve the dependencies of pyproject.toml anew (needs uv)
	@test -n "$(UV)" || { echo "make lock needs uv on the PATH" >&2; exit 1; }
	$(UV) $(LOCK) --all-extras --output-file requirements.lock
	$(UV) $(LOCK) --extra build --constraint requirements.lock --output-file requirements-service.lock

.PHONY: clean
clean:  ## Remove .venv and every cache (never .twincal, where data live)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage htmlcov
