# stackmem. `make` alone lists what there is. Works with GNU make 3.81 (macOS) and later.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
INSTALLED := $(VENV)/.installed
CHECKS_INSTALLED := $(VENV)/.installed-checks
# For `run`: options of `stackmem up`. For `test`: options of pytest (then on one core and without coverage).
ARGS ?=
# What the checks install beside stackmem. CI adds local, e5, clients and qwen3, whose torch alone is 200 MB to several GB.
EXTRAS ?= test,postgres,redis,mdns
# For `faults`: how often each thing breaks that breaks at a random moment.
ROUNDS ?= 50
# For `shapes`: see tests/shapes.py.
SHAPES ?= postgres-rabbitmq postgres-redis
# For `bench`: the one to run.
NAME ?=

# A file's tests run in one process: servers and stores are made once a file. In the order of their names, the many
# small files of tests/unit come last and fill every core to the end.
PARALLEL := --numprocesses=auto --dist=loadfile --no-loadscope-reorder
COVERAGE := --cov --cov-branch --cov-report=term-missing:skip-covered --cov-fail-under=95

.PHONY: help run test faults shapes lint bench

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-6s %s\n", $$1, $$2 }' Makefile

run: $(INSTALLED) ## install what is missing, start the server (ARGS="--port 8766" for options)
	@exec $(BIN)/stackmem up $(ARGS)

test: $(CHECKS_INSTALLED) ## run all tests on all cores, with coverage (ARGS="-k recall" for some, without either)
	@$(BIN)/python -m pytest $(if $(strip $(ARGS)),$(ARGS),$(PARALLEL) $(COVERAGE))

faults: $(CHECKS_INSTALLED) ## break things while robots talk, many rounds each (ROUNDS=50; hours)
	@STACKMEM_TEST_ROUNDS=$(ROUNDS) $(BIN)/python -m pytest -m faults --timeout=3600 $(ARGS)

shapes: $(CHECKS_INSTALLED) ## run the end-to-end tests in the shapes of several processes (SHAPES=… for some)
	@for shape in $(SHAPES); do \
		STACKMEM_TEST_SHAPE=$$shape $(BIN)/python -m pytest tests/e2e $(ARGS) || exit 1; \
	done

lint: $(CHECKS_INSTALLED) ## check format, style, types and who may import whom
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(CHECKS_INSTALLED) ## list the benchmarks and run those that need nothing (NAME=… for one)
ifneq ($(strip $(NAME)),)
	@$(BIN)/python -m benchmarks.$(NAME) $(ARGS)
else
	@for file in benchmarks/[a-z]*.py; do \
		name=$$(basename "$$file" .py); \
		printf '%-16s %s\n' "$$name" "$$(sed -n '1s/"""//gp' "$$file")"; \
	done
	@for file in $$(grep -l '^Needs nothing' benchmarks/[a-z]*.py); do \
		name=$$(basename "$$file" .py); \
		printf '\n== %s\n' "$$name"; \
		$(BIN)/python -m "benchmarks.$$name" || exit 1; \
	done
	@echo; echo 'One of them: make bench NAME=offline_rules'
endif

# A venv without a working interpreter (half made, or its Python is gone) is made anew.
$(BIN)/python:
	@command -v "$(PYTHON)" > /dev/null || { \
		echo "stackmem needs Python 3.11 or newer, and there is no $(PYTHON). Install one, or name it: make run PYTHON=/path/to/python3" >&2; \
		exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "stackmem needs Python 3.11 or newer; $(PYTHON) is $$("$(PYTHON)" --version 2>&1). Name a newer one: make run PYTHON=python3.12" >&2; \
		exit 1; }
	@echo "Making a Python environment in $(VENV) …"
	@"$(PYTHON)" -m venv --clear $(VENV) || { \
		rm -rf $(VENV); \
		echo "The environment could not be made. On Debian, Ubuntu and WSL2: sudo apt install python3-venv" >&2; \
		exit 1; }

$(INSTALLED): setup.cfg pyproject.toml | $(BIN)/python
	@echo "Installing stackmem (about 280 MB; once, and again when setup.cfg has changed) …"
	@$(PIP) install --editable .
	@touch $@

$(CHECKS_INSTALLED): setup.cfg pyproject.toml | $(BIN)/python
	@echo "Installing stackmem and its checks …"
	@$(PIP) install --editable '.[$(EXTRAS)]'
	@touch $@ $(INSTALLED)
