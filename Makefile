# FleetGP. `make demo` and `make test` need only make and Python 3.11 or newer; everything else they fetch themselves.
#
#   make demo ARGS="--headless --seconds 30"      flags for the demo
#   make test ARGS="-k journal"                   flags for pytest
#   make test WORKERS=0                           all in one process; otherwise files go to as many workers as there are cores
#   make VENV=/tmp/venv PYTHON=python3.13 test    another environment, another Python

.POSIX:
.SUFFIXES:
.DEFAULT_GOAL := help
.PHONY: help demo test check format lint layers types docs docs-check install wheel clean

VENV = .venv
PYTHON =
ARGS =
WORKERS = auto

BIN = $(VENV)/bin
INPUTS = pyproject.toml constraints.txt
PIP_INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
CODE = fleetgp edge_agent coordinator broker_bridge dashboard simulator

help:  ## this list
	@echo "FleetGP: streams watched at the edge. Start with 'make demo'."
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | while IFS='|' read -r name what; do printf '%-18s %s\n' "$$name" "$$what"; done

demo: $(VENV)/.installed-demo  ## a whole fleet on this machine: broker, devices, agents, coordinator, bridge, dashboard
	@$(BIN)/fleetgp demo $(ARGS)

test: $(VENV)/.installed-dev  ## all tests (those in a browser are skipped by name where no Chromium is)
	@$(BIN)/python -m pytest -n $(WORKERS) --maxprocesses 4 --dist loadfile --no-loadscope-reorder $(ARGS)

check: format lint layers types docs-check  ## seconds: format, lint, import rules, types, generated docs in step

format: $(VENV)/.installed-dev
	@$(BIN)/ruff format --check .

lint: $(VENV)/.installed-dev
	@$(BIN)/ruff check .

layers: $(VENV)/.installed-dev
	@$(BIN)/lint-imports

types: $(VENV)/.installed-dev
	@$(BIN)/mypy

docs-check: $(VENV)/.installed-dev
	@$(BIN)/python .ci/document.py --check

docs: $(VENV)/.installed-dev  ## write docs/settings.md and docs/wire.md anew from the code
	@$(BIN)/python .ci/document.py

install: $(VENV)/.installed-dev  ## the environment for developers, in .venv

wheel: $(VENV)/.installed-dev  ## dist/fleetgp-*.whl
	@$(BIN)/python -m build --wheel --outdir dist .

clean:  ## remove environments, caches and builds; data of programs (fleetgp-data) stays
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find $(CODE) tests -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps make a second run quick, and a change of pyproject.toml or constraints.txt install again.
$(VENV)/.installed-demo: $(BIN)/python $(INPUTS)
	@test -e $(VENV)/.installed-dev -o -e $@ || echo "Installing FleetGP into $(VENV) (once; a minute or so) ..."
	@$(PIP_INSTALL) --editable '.[demo]'
	@touch $@

$(VENV)/.installed-dev: $(BIN)/python $(INPUTS)
	@echo "Installing FleetGP and its tools into $(VENV) ..."
	@$(PIP_INSTALL) --editable '.[dev]'
	@touch $(VENV)/.installed-demo $@

# Newest first would be daring: the versions that constraints.txt was made with come first.
$(BIN)/python:
	@for python in $(PYTHON) python3.11 python3.12 python3.13 python3 python; do \
	    "$$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	    echo "Making $(VENV) with $$python ..."; \
	    "$$python" -m venv --clear $(VENV) && exit 0; \
	done; \
	echo "FleetGP needs Python 3.11 or newer with the venv module, and none of python3.11 ... python3 is one." >&2; \
	echo "Install one (Debian, Ubuntu: apt-get install python3 python3-venv) or name it: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)" >&2; \
	exit 1
