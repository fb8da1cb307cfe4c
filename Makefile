# Two commands set everything up: `make chat` and `make test`. Both need Python 3.11+, git, make and a C compiler.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
UV     := $(or $(shell command -v uv),$(BIN)/uv)
# uv believes the certificates this system believes, as git and headrace do: a network may have one of its own.
# Older versions of uv know it under the second name.
export UV_SYSTEM_CERTS ?= 1
export UV_NATIVE_TLS   ?= 1

.DEFAULT_GOAL := help
.PHONY: help chat test clients pure thorough check lint types imports format bench lock clean

help: ## what there is
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

NEW_ENOUGH  = -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
NEED_PYTHON = $(PYTHON) $(NEW_ENOUGH) \
  || { echo "headrace needs Python 3.11 or newer; name one: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }

# uv comes from the PATH, or else lives inside .venv.
$(UV):
	@$(NEED_PYTHON)
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --no-cache-dir --disable-pip-version-check -r locks/uv.txt

$(VENV)/.run: $(UV) locks/run.txt pyproject.toml
	@$(BIN)/python $(NEW_ENOUGH) \
	  || { $(NEED_PYTHON); $(UV) venv --quiet --clear --python $(PYTHON) $(VENV); }
	$(UV) pip install --quiet --python $(BIN)/python --require-hashes -r locks/run.txt
	$(UV) pip install --quiet --python $(BIN)/python --no-deps -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.run locks/dev.txt
	$(UV) pip install --quiet --python $(BIN)/python --require-hashes -r locks/dev.txt
	@touch $@

chat: $(VENV)/.run ## talk to a model in this terminal
	@$(BIN)/headrace chat

test: $(VENV)/.dev ## run every test
	$(BIN)/python -m pytest

# Real clients of the API, heavy and from two worlds, live in places of their own. Without npm those for Node are skipped.
CLIENTS := .venv-clients
$(CLIENTS)/.installed: $(VENV)/.run locks/clients.txt
	@test -x $(CLIENTS)/bin/python || $(UV) venv --quiet --python $(PYTHON) $(CLIENTS)
	$(UV) pip install --quiet --python $(CLIENTS)/bin/python --require-hashes -r locks/clients.txt
	@touch $@

NODE_CLIENTS := tests/clients/node
$(NODE_CLIENTS)/node_modules/.installed: $(NODE_CLIENTS)/package-lock.json $(NODE_CLIENTS)/package.json
	cd $(NODE_CLIENTS) && npm ci --silent --ignore-scripts
	@touch $@

clients: $(CLIENTS)/.installed $(if $(shell command -v npm),$(NODE_CLIENTS)/node_modules/.installed) ## prove the API with the clients people use
	$(CLIENTS)/bin/python -m pytest -c tests/clients/pytest.ini tests/clients

pure: $(VENV)/.dev ## run the tests of the pure rooms alone
	$(BIN)/python -m pytest tests/pure

thorough: $(VENV)/.dev ## every split, many more generated examples, and what measures; takes minutes
	HYPOTHESIS_PROFILE=thorough $(BIN)/python -m pytest tests/pure -m "slow or not slow" --timeout 600
	HYPOTHESIS_PROFILE=thorough $(BIN)/python -m pytest tests --ignore tests/pure -m slow --timeout 600

check: lint types imports ## lint, types and the house's walls

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

imports: $(VENV)/.dev
	$(BIN)/lint-imports

format: $(VENV)/.dev ## let ruff format and fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.dev ## measure, as ratios against named references
	$(BIN)/python -m bench

# The lock files hold versions and hashes and no address, so they work with any mirror.
LOCK = $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --custom-compile-command "make lock"
lock: $(UV) ## resolve the dependencies anew
	$(LOCK) pyproject.toml -o locks/run.txt
	$(LOCK) pyproject.toml --group dev -c locks/run.txt -o locks/dev.txt
	$(LOCK) tests/clients/requirements.in -o locks/clients.txt
	cd $(NODE_CLIENTS) && npm install --silent --package-lock-only --ignore-scripts

clean: ## remove what was installed and built
	rm -rf $(VENV) $(CLIENTS) $(NODE_CLIENTS)/node_modules dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
