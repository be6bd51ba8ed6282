PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check
JOBS   ?= 2
# Files are compared with the hashes in requirements/. These are of Python 3.11 on Linux, with all
# files of each release: should another platform need a package that is not there, `make HASHES=no`
# installs by the versions in constraints.txt alone.
HASHES ?= yes
# Tests run side by side: threads of linear algebra would only get in each other's way.
ONE    := OPENBLAS_NUM_THREADS=1

# Two stamps: the package with what the demonstration draws with, and the package with every extra.
# Each is redone only when the dependencies or their pins change; source files need no reinstall,
# the install is editable.
EXTRAS := frames,publish,files,workbench,ledger,postgres,spark,large,docs,test,dev,bench
# What builds this package, and pyspark, which is published as source code alone.
BUILD   = $(shell sed -n 's/^requires = \["\(.*\)"\].*/\1/p' pyproject.toml) editables setuptools wheel
PINS   := $(VENV)-pins/bin/python -m pip --disable-pip-version-check
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

.PHONY: studies
studies: $(ALL)  ## campus, gallery and today's practice, each with a page, into build/studies/
	rm -rf build/studies
	mkdir -p build/studies
	$(BIN)/python -m studies campus --out build/studies/campus
	$(BIN)/python -m studies gallery --out build/studies/gallery
	$(BIN)/python -m studies practice --out build/studies/practice

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
soak: $(ALL)  ## all tests with forty times as many random examples, new ones every time
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
constraints:  ## pin the newest versions that install together, in a fresh environment, with hashes
	rm -rf $(VENV)-pins
	$(PYTHON) -m venv $(VENV)-pins
	$(PINS) -qq install -e '.[$(EXTRAS)]'
	{ sed -n '/^#/p' constraints.txt; $(PINS) -qq freeze --exclude-editable; } > constraints.new
	mv constraints.new constraints.txt
	$(MAKE) requirements
	rm -rf $(VENV)-pins

.PHONY: requirements
requirements: $(VENV)-pins/bin/pip  ## write the hashes of what constraints.txt pins
	$(call lock,build,$(BUILD),)
	$(call lock,demo,-e '.[publish]',requirements/build.txt)
	$(call lock,all,-e '.[$(EXTRAS)]',requirements/build.txt requirements/demo.txt)

# 1: the file; 2: what to install; 3: files whose packages are locked there already
define lock
	$(PINS) -qq install --dry-run --ignore-installed -c constraints.txt --report $(VENV)-pins/$(1).json $(2)
	{ sed -n '/^[#-]/p' requirements/$(1).txt; \
	  $(VENV)-pins/bin/python -m supply.lock $(VENV)-pins/$(1).json $(3); } > $(VENV)-pins/$(1).txt
	mv $(VENV)-pins/$(1).txt requirements/$(1).txt
endef

.PHONY: licences
licences: $(ALL)  ## list the licences of what is installed, in docs/licences.md
	$(BIN)/python -m supply.licences > docs/licences.new
	mv docs/licences.new docs/licences.md

.PHONY: clean
clean:  ## remove .venv, caches and what the demo wrote
	rm -rf $(VENV) $(VENV)-pins constraints.new demo-release build dist
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests bench studies -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/pip $(VENV)-pins/bin/pip:
	@command -v $(PYTHON) >/dev/null || \
	  { echo "subspacedp needs Python 3.11 or newer; '$(PYTHON)' was not found. Name one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "subspacedp needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Name another: make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(@:/bin/pip=)

# 1: the file in requirements/; 2: the extras
ifeq ($(HASHES),no)
install = @$(PIP) install -qq -c constraints.txt -e '.[$(2)]'
else
install = @$(PIP) install -qq --require-hashes -r requirements/build.txt && \
	  $(PIP) install -qq --require-hashes --no-build-isolation -r requirements/$(1).txt && \
	  $(PIP) install -qq --no-deps --no-build-isolation -e '.[$(2)]' || \
	  { echo "The locked files in requirements/ do not install here. If this is not Python 3.11 on Linux, try: make HASHES=no" >&2; exit 1; }
endif

LOCKED := pyproject.toml constraints.txt $(wildcard requirements/*.txt)

$(DEMO): $(LOCKED) | $(BIN)/pip
	@echo "installing subspacedp into $(VENV)"
	$(call install,demo,publish)
	@touch $@

$(ALL): $(LOCKED) | $(BIN)/pip
	@echo "installing subspacedp with every extra into $(VENV); this takes a minute"
	$(call install,all,$(EXTRAS))
	@touch $(DEMO) $@
