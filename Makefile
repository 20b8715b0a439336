# Two commands on a fresh machine: `make run` and `make test`. Both set up .venv first when needed.
PYTHON ?= python3
BIN := .venv/bin
# Two workers, each with whole files: what tests of one file share is made once.
PYTEST := $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart 0

.PHONY: help setup run check test bench deploy-demo app-demo docs lint clean

help:
	@echo "make run    set up, then run the main experiment on generated data (out/report.html)"
	@echo "make check  set up, then lint, type check and all tests that are quick and start no process (2 minutes)"
	@echo "make test   set up, then lint, type check and all tests (15 minutes)"
	@echo "make bench  set up, then measure speed as ratios"
	@echo "make deploy-demo  set up, then run a federation of 5 devices on Flower, over TLS, on this machine"
	@echo "make app-demo  set up, then let five people search their own files, and a federation learn from it (3 minutes)"
	@echo "make docs   set up, then build the documentation site (out/site/index.html), with the notebooks' results"
	@echo "make clean  remove what the above made"

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

run: setup
	$(BIN)/fultr run --rounds 150

lint: setup
	$(BIN)/ruff check src tests docs/_site
	$(BIN)/ruff format --check src tests docs/_site
	$(BIN)/mypy

check: lint
	$(PYTEST) -m 'not slow and not process and not deployment'

test: lint
	$(PYTEST)

bench: setup
	$(BIN)/fultr bench

deploy-demo: setup
	$(BIN)/fultr deploy demo

app-demo: setup
	$(BIN)/fultr search demo

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo out/site/index.html

clean:
	rm -rf .venv out build .pytest_cache .mypy_cache .ruff_cache .hypothesis
