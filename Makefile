# Every target sets up its own .venv; Python 3.11 or newer, git and make are all it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
UV := $(BIN)/uv pip install --quiet --python $(BIN)/python --compile-bytecode
# One more test process than there are processors: many tests wait for a program, a lock or a limit.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 1)')
# Without compiled files each test process would rewrite and compile hypothesis again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test long check lint types imports docs sample audit sbom lock bench chaos attacks slow fuzz agents ci-tools ci-pipelines \
	forge forge-tools forge-azure browser pictures clean
.DEFAULT_GOAL := check

$(READY): pyproject.toml requirements-dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: $(PYTHON) is older than 3.11"; echo "hint: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@echo "setting up $(VENV) (once)"
	@$(PYTHON) -m venv $(VENV)
	@# uv installs in a third of the time; it is pinned like the rest, and pip does what it cannot do.
	@sed -n '/^uv==/,/[^\\]$$/p' requirements-dev.txt > $(VENV)/uv.txt
	@$(PIP) --require-hashes -r $(VENV)/uv.txt
	@$(UV) --require-hashes -r requirements-dev.txt || $(PIP) --require-hashes -r requirements-dev.txt
	@$(PIP) --no-build-isolation --no-deps -e .
	@touch $(READY)

demo: $(READY) ## run the main job for real in a throwaway repository
	@$(BIN)/autopilot-multi demo

test: $(READY) ## every test but the marked ones
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal $(TESTS)

long: $(READY) ## what takes longest of the rest; `make check` runs both at once
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m long

check: $(READY) ## all that CI checks; what is not a test goes two at a time, each with its output in one piece
	@$(MAKE) --no-print-directory -j2 --output-sync=target types ci-tools lint imports docs audit
	@$(MAKE) --no-print-directory test TESTS=--with-long
	@$(MAKE) --no-print-directory sample

lint: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .

types: $(READY)
	@$(BIN)/mypy

imports: $(READY)
	@$(BIN)/lint-imports

docs: $(READY) ## is the generated reference current?
	@$(BIN)/python docs/generate.py --check

sample: $(READY) ## a small sample of the benchmarks, without gates
	@$(BIN)/python -m tests.bench --quick

audit: $(READY) ## has a pinned package a known vulnerability?
	@$(BIN)/python -m tests.supply_chain audit

sbom: $(READY) ## sbom.json: what is installed with the program, as CycloneDX
	@$(BIN)/python -m tests.supply_chain sbom sbom.json

lock: $(READY) ## pin what pyproject.toml asks for, with hashes
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-annotate --no-header --group pyproject.toml:dev --all-extras pyproject.toml --output-file requirements-dev.txt

bench: $(READY) ## ratios against named peers, in one run
	@$(BIN)/python -m tests.bench

chaos: $(READY) ## kills, faults and many repetitions, with figures
	@$(BIN)/python -m pytest -q -n 2 -m chaos -rP

slow: $(READY) ## what takes long for what it adds; the default run has a sample
	@$(BIN)/python -m pytest -q -n $(WORKERS) -m slow

attacks: $(READY) ## what sessions try at each seal, as each user, with a table
	@$(BIN)/python -m pytest -q -m attacks -rP tests/attacks

FUZZ_SECONDS ?= 60

fuzz: $(READY) ## every parser of outside text for a minute, guided by coverage where atheris installs
	@$(BIN)/python -c 'import atheris' 2> /dev/null || $(BIN)/python -m pip install --quiet \
		--disable-pip-version-check atheris || echo "fuzz: no atheris here; hypothesis searches"
	@$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS)

AGENTS ?= pinned

agents: $(READY) ## real agent programs; AGENTS=newest for what npm and PyPI offer today
	@AGENTS=$(AGENTS) $(BIN)/python -m pytest -q -m agents || test $$? -eq 5

# What runs and checks the pipelines of examples/ci; the versions of tests/ci/lock run with node 20.
CI_TOOLS := $(VENV)/ci-tools

ci-tools: $(READY) ## what tries the pipelines of examples/ci, where npm is there; tests are skipped without it
	@test -e $(CI_TOOLS)/.ready || ! command -v npm > /dev/null || { \
	  mkdir -p $(CI_TOOLS) && cp tests/ci/lock/package*.json $(CI_TOOLS)/ \
	  && npm ci --silent --no-audit --no-fund --ignore-scripts --prefix $(CI_TOOLS) \
	  && $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --upgrade \
	    --target $(CI_TOOLS) -r tests/ci/lock/requirements.txt \
	  && touch $(CI_TOOLS)/.ready; } || echo "ci-tools: not installed; the tests that need them are skipped"

ci-pipelines: ci-tools ## the pipelines of examples/ci from plan to join, with failures, cancels and retries
	@$(BIN)/python -m pytest -q -m "ci or not ci" tests/ci -rs

# The real programs of trackers and forges, each in a folder of its own; the versions are those of tests/forge/lock.
# One that cannot be had does not keep the others away, and what was cut off begins again.
FORGE_TOOLS := $(VENV)/forge-tools
FORGE_SKIPPED = echo "forge-tools: $(1) is not installed; the tests that need it are skipped"
FORGE_TRIES := 1 2 3

forge-tools: $(READY) ## MCP servers for Jira and Azure DevOps, and glab; the tests that need one are skipped without it
	@test -e $(FORGE_TOOLS)/atlassian/.ready || { $(PYTHON) -m venv $(FORGE_TOOLS)/atlassian \
	  && $(FORGE_TOOLS)/atlassian/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes \
	    -r tests/forge/lock/requirements.txt \
	  && touch $(FORGE_TOOLS)/atlassian/.ready; } || $(call FORGE_SKIPPED,mcp-atlassian)
	@test -e $(FORGE_TOOLS)/node_modules/.ready || ! command -v npm > /dev/null || { \
	  mkdir -p $(FORGE_TOOLS) && cp tests/forge/lock/package*.json $(FORGE_TOOLS)/ \
	  && for try in $(FORGE_TRIES); do \
	    npm ci --silent --no-audit --no-fund --ignore-scripts --fetch-retries 5 --prefix $(FORGE_TOOLS) \
	    && touch $(FORGE_TOOLS)/node_modules/.ready && break; done; \
	  test -e $(FORGE_TOOLS)/node_modules/.ready; } || $(call FORGE_SKIPPED,@azure-devops/mcp)
	@test -x $(FORGE_TOOLS)/bin/glab || command -v glab > /dev/null || { \
	  mkdir -p $(FORGE_TOOLS)/bin $(FORGE_TOOLS)/debian && cd $(FORGE_TOOLS)/debian \
	  && apt-get download -q glab > /dev/null 2>&1 && dpkg -x glab_*.deb . && cp usr/bin/glab ../bin/; } \
	  || $(call FORGE_SKIPPED,glab)

forge-azure: $(READY) ## az with its extension azure-devops, some 700 MB; for the tests of `make forge` that need it
	@test -x $(FORGE_TOOLS)/azure/bin/az || { $(PYTHON) -m venv $(FORGE_TOOLS)/azure \
	  && $(FORGE_TOOLS)/azure/bin/python -m pip install --quiet --disable-pip-version-check azure-cli==2.91.0; }
	@test -e $(FORGE_TOOLS)/azure/extensions/azure-devops || AZURE_EXTENSION_DIR=$(FORGE_TOOLS)/azure/extensions \
	  $(FORGE_TOOLS)/azure/bin/az extension add --name azure-devops --only-show-errors

forge: forge-tools ## real programs of trackers and forges (gh, glab, az) against scripted services, where installed
	@$(BIN)/python -m pytest -q -m forge -rs

SHOTS ?= browser-shots
AXE := $(VENV)/axe

browser: $(READY) ## the page and the HTML report in a real browser; pictures of both in browser-shots/
	@mkdir -p $(SHOTS) && test -e $(AXE)/node_modules || ! command -v npm > /dev/null || \
	  npm install --silent --no-audit --no-fund --ignore-scripts --prefix $(AXE) axe-core
	@REPORT_SHOT=$(SHOTS) WEB_SHOT=$(SHOTS) AXE_CORE=$(AXE)/node_modules/axe-core/axe.min.js \
	  $(BIN)/python -m pytest -q -m browser -rs

pictures: $(READY) ## the pictures of the README, from a real run
	@$(BIN)/python docs/make_pictures.py
	@$(BIN)/python -m tests.serve.web.picture docs/pictures/web.png

clean: ## remove what `make` made
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
