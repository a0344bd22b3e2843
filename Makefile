# make          checks and the whole test suite
# make demo     set up, then from sbatch to a GPU node and back on this machine
# make test     set up, then the whole test suite      make quick: without the slow half
# make check    ruff and mypy --strict
# make bench    every benchmark
# make setup    Debian packages and .venv              make clean: undo what lies in the tree

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SHELL := /bin/bash

.PHONY: all setup packages demo test quick check bench clean
.DEFAULT_GOAL := all

all: check test

setup: packages $(READY)

packages:
	@tools/install-packages

$(READY): pyproject.toml tools/make-venv
	@tools/make-venv $(VENV)
	@touch $@

demo: setup
	@$(BIN)/cm-scale demo

# Real clusters wait for seconds that must not be another test's: they have both cores for themselves.
REAL := cli contract e2e lab slurm test_benchmarks.py

# What only computes is tried side by side.
test: quick
	@$(BIN)/pytest -m slow --numprocesses 2 --dist loadfile $(addprefix --ignore=tests/,$(REAL))
	@$(BIN)/pytest -m slow $(addprefix tests/,$(REAL))

quick: setup
	@$(BIN)/pytest -m "not slow" --numprocesses 2 --dist loadfile

check: $(READY)
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy

bench: setup
	@for each in benchmarks/*.py; do $(BIN)/python $$each --json || exit; done

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
