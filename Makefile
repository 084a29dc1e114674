# Everything a user or CI runs. `make test` and `make demo` set up .venv on a bare machine (Python 3.11+, make, a C compiler).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# setuptools says at length what an editable installation is; whatever else it or pip says is shown.
QUIET := PYTHONWARNINGS='ignore:Editable installation'
# Tests wait more than they work: four of them keep two cores busy. The rest of one's share is taken by whoever is done.
WORKERS ?= 4
RUN = $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal
# Compiled modules are kept, whatever the environment says: each worker, and each Python that a test starts, reads them.
unexport PYTHONDONTWRITEBYTECODE
# What `make soak` soaks: all of it takes hours. SHARD=K/N: the K-th of N parts. SOAK: some paths only.
SOAK ?= tests
SHARD ?= 1/1
BENCHMARKS := $(notdir $(basename $(wildcard benchmarks/*.py)))

.PHONY: setup test demo bench bench-smoke lint soak costs browser completion lock release clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml setup.py constraints.txt
	@echo "setup: a Python environment in $(VENV), with what emq-ops and its tests need: about a minute, and 0.9 GB"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade -c constraints.txt pip setuptools
	$(QUIET) $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,test]'
	touch $@
	@echo "setup: done; 'make test' takes about five minutes on two cores"

test: setup
	$(RUN) -m "not soak and not browser and not completion"

soak: setup
	$(RUN) -m soak --shard $(SHARD) --durations 10 $(SOAK)

# What each test costs in processor time, dearest first; SOAK: some paths only.
costs: setup
	rm -f .costs
	$(RUN) -m "not soak and not browser" -p tests.support.costs --costs .costs $(SOAK)
	$(BIN)/python -m tests.support.costs .costs

browser: setup
	$(BIN)/python -m pytest -m browser

# Needs zsh and fish.
completion: setup
	$(BIN)/python -m pytest -m completion tests/cli/completion

demo: setup
	$(BIN)/python -m emq_ops.cli.main demo

bench: setup
	for b in $(BENCHMARKS); do $(BIN)/python -m benchmarks.$$b || exit 1; done

# Each benchmark at a tiny size: it still runs. Its figures say nothing.
bench-smoke: setup
	for b in $(BENCHMARKS); do $(BIN)/python -m benchmarks.$$b --smoke || exit 1; done

lint: setup
	$(BIN)/ruff check . && $(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache .importlinter

# What a release and an image are installed from, by `pip install --require-hashes`: every file of every version that
# constraints.txt names, by its hash.
EXTRAS := embedded postgres query http alerts
lock: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[release]'
	$(BIN)/pip-compile --quiet --generate-hashes --strip-extras --allow-unsafe --no-header --no-annotate \
		--no-emit-index-url --no-emit-trusted-host --no-emit-find-links $(EXTRAS:%=--extra %) \
		-c constraints.txt -o requirements.lock pyproject.toml

# dist/: the wheel, the sources, requirements.lock, and a bill of materials (CycloneDX) of what it names.
release: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[release]'
	rm -rf dist
	$(BIN)/python -m build --quiet --outdir dist .
	cp requirements.lock dist
	$(BIN)/cyclonedx-py requirements --output-reproducible --pyproject pyproject.toml -o dist/emq-ops.cdx.json requirements.lock

clean:
	rm -rf $(VENV) build dist *.egg-info
