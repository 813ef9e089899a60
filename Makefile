# Two commands matter: `make serve` and `make test`. Both set everything up by themselves, in .venv.
PYTHON ?= python3
BIN := .venv/bin

# Tests start hundreds of Python processes, and pytest rewrites every test module in each worker: without bytecode files
# each of them compiles everything anew. An environment that forbids such files is overruled here, and only here.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help serve docs check test every browser servers conformance lint types quick fuzz soak bench format clean
.DEFAULT_GOAL := help

help:  ## Say what can be made
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 13

# A stamp per kind of install: the second run of any target installs nothing.
.venv/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "callboard needs Python 3.11 or newer; name one with: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv .venv
	@touch $@

.venv/.installed: .venv/.created pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

# uv takes 6 s for what pip takes 40; pip does it where uv cannot: uv reads no pip.conf.
.venv/.installed-dev: .venv/.created pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt -e '.[dev]' \
	  || $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@ .venv/.installed

serve: .venv/.installed  ## Install, and run callboard
	@$(BIN)/callboard serve --admin 8001

browser:  ## Install Chromium, in which the tests look at pages, if there is none
	@sh tests/install-browser || true  # the tests of pages will fail, and say so; all others run

servers:  ## Install redis-server, nginx, haproxy and tmux, for the tests, if they are not there
	@sh tests/install-servers || true  # those tests will fail, and say so; all others run

test: browser servers lint  ## Install what tests need (Chromium, Redis, nginx, haproxy, tmux too); lint, types and every test
	@$(MAKE) --no-print-directory -j 2 types every  # mypy uses one core, and the workers of pytest often wait

every: .venv/.installed-dev
	$(BIN)/pytest -n 5 --dist worksteal  # five for two cores: many tests wait for processes

# Whole rooms, and one file of each transport; pytest fails if one of them is no longer there.
QUICK := tests/test_house.py tests/codecs tests/supervisor tests/actors \
  tests/transports/server/test_stdio.py tests/transports/server/http/test_modern.py \
  tests/transports/server/websocket/test_sockets.py tests/transports/client/test_process.py

check: .venv/.installed-dev  ## Lint, types and the tests of codecs, supervisor, actors and one of each transport, quickly
	@$(MAKE) --no-print-directory -j 3 --output-sync=target lint types quick

quick: .venv/.installed-dev
	$(BIN)/pytest -q -n 2 --dist worksteal --hypothesis-profile=quick $(QUICK)

conformance: .venv/.installed-dev  ## The official conformance suite: the server by every door, the broker and the client, scenario by scenario
	$(BIN)/python -m tests.conformance.run

lint: .venv/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.installed-dev
	$(BIN)/mypy

fuzz: .venv/.installed-dev  ## A million mutated frames for each codec, 2,000 odd backends, 20,000 odd clients, all codecs at length
	CALLBOARD_FUZZ=1000000 $(BIN)/pytest -n 2 tests/fuzz --ignore tests/fuzz/test_pipes.py
	CALLBOARD_FUZZ=1000000 $(BIN)/pytest -s tests/fuzz/test_pipes.py
	$(BIN)/pytest -n 2 --hypothesis-profile=long tests/codecs tests/config tests/server/signature

soak: .venv/.installed-dev  ## The long forms: every promise about faults with its figure, in a table at the end
	CALLBOARD_RACES=5000 CALLBOARD_CHAOS=4000 $(BIN)/pytest -n 2 tests/actors/test_lifecycle.py tests/supervisor/test_chaos.py
	CALLBOARD_LONG=1 CALLBOARD_RACES=100 $(BIN)/pytest -s tests/soak tests/test_promises.py tests/test_tree_truth.py tests/actors/test_lifecycle.py

bench: .venv/.installed-dev  ## Every benchmark beside its peers: writes docs/benchmarks.md, in 18 minutes
	$(BIN)/python -m benchmarks.report

docs: .venv/.installed-dev  ## Build the documentation as a site, in build/site: to be read offline, with a search
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "read it: build/site/index.html"

format: .venv/.installed-dev  ## Let ruff format and fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## Remove .venv and caches
	rm -rf .venv build .mypy_cache .pytest_cache .ruff_cache .hypothesis
