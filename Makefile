# Two commands on a fresh machine: `make run` and `make test`. Both set up .venv first when needed.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help setup run test bench deploy-demo lint clean

help:
	@echo "make run    set up, then run the main experiment on generated data (out/report.html)"
	@echo "make test   set up, then lint, type check and test"
	@echo "make bench  set up, then measure speed as ratios"
	@echo "make deploy-demo  set up, then run a federation of 5 devices on Flower, over TLS, on this machine"
	@echo "make clean  remove what the above made"

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

run: setup
	$(BIN)/fultr run

lint: setup
	$(BIN)/ruff check src tests
	$(BIN)/ruff format --check src tests
	$(BIN)/mypy

test: lint
	$(BIN)/pytest

bench: setup
	$(BIN)/fultr bench

deploy-demo: setup
	$(BIN)/fultr deploy demo

clean:
	rm -rf .venv out build .pytest_cache .mypy_cache .ruff_cache .hypothesis
