# The interpreters to try, in order. `make PYTHONS=/path/to/python ...` narrows it.
PYTHONS := python3.13 python3.12 python3.11 python3

VENV := .venv
BIN := $(VENV)/bin
LOCK := requirements/dev.txt
# PySpark is published as source alone: built with what the first lock installed.
SOURCE_LOCK := requirements/pyspark.txt
# Written last, so an interrupted set-up is never taken for a finished one.
STAMP := $(VENV)/.complete

# A pyenv shim exists for versions it will not run, and some distributions ship
# Python without venv's ensurepip: only running a candidate tells.
USABLE := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))

# One more than there are cores, as some tests wait; each may start a Spark.
WORKERS := $(shell n=$$(nproc); echo $$(( n < 3 ? n + 1 : 4 )))
# A worker that dies ends the run: xdist would give its test to the next worker, and could then wait for ever.
PYTEST := $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder \
	--max-worker-restart 0
# `make test CAMPAIGNS=2/4` runs the second quarter of the campaigns too, and CAMPAIGNS=1/1 all of them.
CAMPAIGNS :=
CHOSEN := $(if $(CAMPAIGNS),--campaigns $(CAMPAIGNS),-m 'not campaign')

PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

# Options of the examination, as in `make interop INTEROP='--tests all'`.
INTEROP :=

COMPILING := --quiet --upgrade --universal --python-version 3.11 --fork-strategy fewest \
    --generate-hashes --no-annotate --custom-compile-command 'make lock'

MAKEFLAGS += --no-print-directory

# What is compiled is kept, whatever the environment says: all who run tests would compile all of them each time.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
# Libraries that others wrote, which are driven.
SYSTEMS := .systems

.PHONY: help setup run test quick campaigns lint loops modules site pictures interop systems bench bench-spark bench-ledger chaos lock clean FORCE

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z%-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' Makefile

setup: $(STAMP) ## Make the virtual environment in .venv, if it is missing or out of date

run: $(STAMP) ## Find the data loss of BookKeeper 4.13, run the store, hurt it, and hold what it did to the protocol
	@$(BIN)/python -m demo

test: ## Lint, check types and run the tests
	@$(MAKE) --jobs 3 lint quick

# pytest ends long after lint, so its closing line is the last. Where lint fails, make fails.
quick: loops modules
	@$(PYTEST) $(CHOSEN)

test-%: $(STAMP) FORCE ## Run the tests of a folder: make test-ledger
	@$(PYTEST) $(CHOSEN) tests/$*

campaigns: $(STAMP) loops ## Run what takes longer: large state spaces, many seeds, a cluster of Spark
	@$(PYTEST) -m campaign

lint: $(STAMP) ## Run ruff, mypy, and the reader of prose
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/python tests/docs/prose.py

# Where they are not in the caches yet, all who run tests would compile the same at once.
loops: $(STAMP) ## Compile the loops of the search
	@$(BIN)/python -m fencepost warm > /dev/null

# A test that cannot be imported is told by those who run it.
modules: $(STAMP) ## Compile the modules of the tests
	@$(BIN)/python -m pytest --collect-only --quiet > /dev/null || true

site: $(STAMP) ## Make the site of the documents in build/site; what leads nowhere is an error
	@$(BIN)/python -m website.build

pictures: $(STAMP) ## Draw the pictures of the documents anew (needs Chromium, and Java for Spark)
	@$(BIN)/python tests/docs/pictures.py

interop: $(STAMP) ## Examine the store against BookKeeper, ZooKeeper and Pulsar, and its quorum with Kafka's tool (needs a JDK 17 and Maven)
	@$(BIN)/python -m interop $(INTEROP)

systems: $(STAMP) ## Install libraries that others wrote into .systems, and drive them
	@$(PIP) install --no-deps --upgrade --target $(SYSTEMS) -r requirements/systems.txt
	@PYTHONPATH=$(CURDIR)/$(SYSTEMS) $(BIN)/python -m pytest tests/docs/test_examples.py -k systems.md

bench: $(STAMP) ## Run the benchmarks
	@$(BIN)/python -m bench

bench-spark: $(STAMP) ## Run the benchmark of the Spark engine
	@$(BIN)/python -m bench.spark

bench-ledger: $(STAMP) ## Measure the store, beside BookKeeper's and what the machine allows (needs a JDK 17 and Maven)
	@$(BIN)/python -m bench.ledger

chaos: $(STAMP) ## Hurt a real cluster for ten minutes, and see that nothing acknowledged is lost
	@$(BIN)/python -m bench.chaos --minutes 10

lock: ## Resolve the newest versions anew (the only target that needs uv)
	uv pip compile pyproject.toml --group dev --no-emit-package pyspark --output-file $(LOCK) $(COMPILING)
	uv pip compile --group pyspark --no-deps --output-file $(SOURCE_LOCK) $(COMPILING)

clean: ## Remove the virtual environment and everything else that was generated
	rm -rf $(VENV) .interop $(SYSTEMS) build dist bookkeeper-4.13.html fencepost-demo .hypothesis .mypy_cache .pytest_cache .ruff_cache
	rm -rf editors/vscode/node_modules editors/vscode/dist editors/vscode/*.vsix
	find . -name .git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

# An environment holds its own absolute path and a link to its interpreter: one
# that was copied or moved here, or whose interpreter is gone, is made anew.
ifneq ($(shell test -x $(BIN)/python && cat $(STAMP) 2>/dev/null),$(CURDIR))
$(STAMP): FORCE
endif

# --no-deps leaves the locks as the only source of versions; pip check then fails
# if they no longer satisfy pyproject.toml.
$(STAMP): $(LOCK) $(SOURCE_LOCK) pyproject.toml
	@set -e; \
	python=; \
	for candidate in $(PYTHONS); do \
	    if "$$candidate" -c '$(USABLE)' >/dev/null 2>&1; then python=$$candidate; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	    echo 'Fencepost needs Python 3.11 or newer with its venv module; none works among: $(PYTHONS)' >&2; \
	    exit 1; \
	fi; \
	echo "Setting up $(VENV) with $$("$$python" --version)"; \
	rm -f $(STAMP); \
	"$$python" -m venv --clear $(VENV); \
	$(PIP) install --no-deps --only-binary :all: --require-hashes -r $(LOCK); \
	$(PIP) install --no-deps --no-build-isolation --require-hashes -r $(SOURCE_LOCK); \
	$(PIP) install --no-deps --no-build-isolation --editable .; \
	conflicts=$$($(BIN)/python -m pip check) || { echo "$$conflicts" >&2; exit 1; }; \
	printf '%s\n' '$(CURDIR)' > $(STAMP)
