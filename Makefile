# Everything happens in .venv, made from the pinned versions of constraints.txt.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-captum fuzz lint bench results docs clean

test: .venv/ready lint
	$(BIN)/pytest -n 2

# 3,300 random networks against every method, a quarter of an hour at most; the same every time
fuzz: .venv/ready
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz

# Captum's own tests on our classes: CAPTUM is a checkout of its repository
test-captum: .venv/ready
	$(BIN)/python tests/captum_conformance.py $(or $(CAPTUM),$(error say where Captum is checked out: make test-captum CAPTUM=folder))

lint: .venv/ready
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

demo: .venv/ready
	$(BIN)/ig2 demo --out out/demo

docs: .venv/ready
	$(BIN)/sphinx-build --fail-on-warning --keep-going -q docs out/docs

bench: .venv/ready
	$(BIN)/python -m bench

# the paper's experiments on real data: DATA holds imagenet-val, imagenet-pool, pets, mnist, trec,
# wafer, celeba; what is stored is kept, and a run that was stopped goes on
results: .venv/ready
	$(BIN)/python -m bench.results --data $(or $(DATA),$(error say where the data are: make results DATA=folder))

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv out .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
