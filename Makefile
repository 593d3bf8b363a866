# Everything happens in .venv, made from the pinned versions of constraints.txt.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint test-slow bench clean

test: .venv/ready lint
	$(BIN)/pytest -n 2

lint: .venv/ready
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

test-slow: .venv/ready
	$(BIN)/pytest -m slow

demo: .venv/ready
	$(BIN)/python demo/demo.py

bench: .venv/ready
	$(BIN)/python -m bench

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv out .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
