# Everything a user or CI runs. `make test` and `make demo` set up .venv on a bare machine (Python 3.11+, make, a C compiler).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2
# setuptools says at length what an editable installation is; whatever else it or pip says is shown.
QUIET := PYTHONWARNINGS='ignore:Editable installation'
# What `make soak` soaks: everything, or some paths (CI takes a bounded part).
SOAK ?= tests

.PHONY: setup test demo bench lint soak browser clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml setup.py constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade -c constraints.txt pip setuptools
	$(QUIET) $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	touch $@

test: setup
	$(BIN)/python -m pytest -n $(WORKERS) -m "not soak and not browser"

soak: setup
	$(BIN)/python -m pytest -n $(WORKERS) -m soak $(SOAK)

browser: setup
	$(BIN)/python -m pytest -m browser

demo: setup
	$(BIN)/python -m emq_ops.cli.main demo

bench: setup
	for b in benchmarks/*.py; do PYTHONPATH=. $(BIN)/python $$b || exit 1; done

lint: setup
	$(BIN)/ruff check . && $(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache .importlinter

clean:
	rm -rf $(VENV) build dist *.egg-info
