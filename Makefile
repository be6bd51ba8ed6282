PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check
JOBS   ?= 2
# Tests run side by side: threads of linear algebra would only get in each other's way.
ONE    := OPENBLAS_NUM_THREADS=1

# Two stamps: the package with what the demonstrations draw with, and the package with every extra.
# Each is redone only when the dependencies or their pins change; source files need no reinstall,
# the install is editable.
DEMO := $(VENV)/.installed-demo
ALL  := $(VENV)/.installed-all

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help:  ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(DEMO)  ## release the 2010 census table with state totals held, and a report, into demo-release/
	rm -rf demo-release
	$(BIN)/subspacedp demo census --out demo-release

.PHONY: test
test: lint  ## lint, then every test and doctest
	$(ONE) $(BIN)/python -m pytest -n $(JOBS)

.PHONY: lint
lint: $(ALL)  ## style, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: format
format: $(ALL)  ## repair what ruff can repair
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: soak
soak: $(ALL)  ## all tests with twenty times as many random examples, new ones every time
	$(ONE) HYPOTHESIS_PROFILE=soak $(BIN)/python -m pytest -n $(JOBS) -m "soak or not soak"

.PHONY: bench
bench: $(ALL)  ## measure, and write bench/latest.json
	$(BIN)/python -m bench

.PHONY: docs
docs: $(ALL)  ## build the documentation site into build/site; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open build/site/index.html"

.PHONY: install
install: $(ALL)  ## .venv with every extra

.PHONY: constraints
constraints:  ## pin the newest versions that install together, in a fresh environment
	rm -rf $(VENV)-pins
	$(PYTHON) -m venv $(VENV)-pins
	$(VENV)-pins/bin/python -m pip --disable-pip-version-check -qq install -e '.[frames,publish,ledger,postgres,spark,large,docs,test,dev,bench]'
	{ sed -n '/^#/p' constraints.txt; \
	  $(VENV)-pins/bin/python -m pip --disable-pip-version-check -qq freeze --exclude-editable; } > constraints.new
	mv constraints.new constraints.txt
	rm -rf $(VENV)-pins

.PHONY: clean
clean:  ## remove .venv, caches and what the demo wrote
	rm -rf $(VENV) $(VENV)-pins constraints.new demo-release build dist
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests $(wildcard bench) -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/pip:
	@command -v $(PYTHON) >/dev/null || \
	  { echo "subspacedp needs Python 3.11 or newer; '$(PYTHON)' was not found. Name one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "subspacedp needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Name another: make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(DEMO): pyproject.toml constraints.txt | $(BIN)/pip
	@echo "installing subspacedp into $(VENV)"
	@$(PIP) install -qq -c constraints.txt -e '.[publish]'
	@touch $@

$(ALL): pyproject.toml constraints.txt | $(BIN)/pip
	@echo "installing subspacedp with every extra into $(VENV); this takes a minute"
	@$(PIP) install -qq -c constraints.txt -e '.[frames,publish,ledger,postgres,spark,large,docs,test,dev,bench]'
	@touch $(DEMO) $@
