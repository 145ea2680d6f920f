# Every target sets up what it needs into .venv/; a second call sets nothing up again.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-done
PORT ?= 9092
.DEFAULT_GOAL := help
.PHONY: help setup up test quick lint bench dist lock clean docs fallbacks

help:  ## show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): requirements/dev.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --require-hashes -r requirements/dev.lock
	$(BIN)/python -m pip install -q --no-deps --no-build-isolation -e .
	@touch $@

setup: $(STAMP)  ## make .venv with Moldau and its tools

up: setup  ## run a broker on localhost:9092 until Ctrl-C
	$(BIN)/moldau up --port $(PORT)

lint: setup  ## lint, types, import contracts
	$(BIN)/ruff check src tests
	$(BIN)/ruff format --check src tests
	$(BIN)/mypy
	$(BIN)/lint-imports

lock:  ## pin the dependencies anew, with hashes and no index address
	$(BIN)/pip-compile -q --strip-extras --generate-hashes --no-emit-index-url --no-emit-trusted-host --no-emit-find-links \
	  --allow-unsafe --extra dev -o requirements/dev.lock pyproject.toml
	$(BIN)/pip-compile -q --strip-extras --generate-hashes --no-emit-index-url --no-emit-trusted-host --no-emit-find-links \
	  -o requirements/base.lock pyproject.toml
