# make run       set up .venv, run the pipeline, print where the report is
# make test      set up .venv, run the tests that guard every change
# make test-all  set up .venv, run all tests, those that take long too
# make schedule  set up .venv, run what prefect.yaml schedules on this machine, until Ctrl-C
# Needs Python >= 3.11, git and make; nothing is installed outside .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: run test test-all schedule lint format lock install install-tests clean

run: install
	@$(BIN)/longtail run

schedule: install
	@$(BIN)/longtail schedule

test: install-tests
	@$(PYTEST) -m "not slow" tests

test-all: install-tests
	@$(PYTEST) tests

lint: install-tests
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: install-tests
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

# The stamp holds what was installed, and where: an interrupted install leaves none, a moved checkout another.
install:
	@{ pwd; cat requirements.lock pyproject.toml; } | cmp -s - $(STAMP) || $(MAKE) --no-print-directory $(VENV)

.PHONY: $(VENV)
$(VENV):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "error: Longtail needs Python >= 3.11, found $$($(PYTHON) --version 2>&1); try make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "error: $(PYTHON) has no venv module; install it (Debian and Ubuntu: apt install python3-venv)" >&2; exit 1; }
	@rm -f $(STAMP)
	@test "$$(head -1 $(VENV)/place 2>/dev/null)" = "$$(pwd)" || $(PYTHON) -m venv --clear $(VENV)
	@pwd > $(VENV)/place
	@echo "installing into $(VENV) (once, a few minutes)"
	@$(PIP) --no-compile "$$(grep '^torch==' requirements.lock)"
	@sed '/^# only for/,$$d' requirements.lock > $(VENV)/runtime.lock
	@$(PIP) --no-compile -r $(VENV)/runtime.lock
	@$(BIN)/python -m compileall -q -j 0 $(VENV)/lib > /dev/null || true  # pip would use one core
	@$(PIP) --no-deps --no-build-isolation -e .
	@test -x $(BIN)/dvc || $(PIP) --force-reinstall --no-deps \
	  "$$(grep '^dvc==' requirements.lock)"  # earlier versions of Longtail had a dvc command of their own
	@{ pwd; cat requirements.lock pyproject.toml; } > $(STAMP)

install-tests: install
	@cmp -s $(STAMP) $(VENV)/tests || { \
	  $(PIP) -r requirements.lock && cp $(STAMP) $(VENV)/tests; }

# Resolve pyproject.toml's ranges anew, in a new .venv, and write what came out, what runs need first. torch stays: its
# version is chosen by hand, so that it is one without CUDA.
lock:
	@$(PYTHON) -m venv --clear $(VENV)
	@$(PIP) "$$(grep '^torch==' requirements.lock)"
	@$(PIP) -e .
	@{ head -1 requirements.lock; $(BIN)/python -m pip freeze --all --exclude longtail --exclude pip; } > $(VENV)/lock
	@$(PIP) -e '.[dev]'
	@$(BIN)/python -m pip freeze --all --exclude longtail --exclude pip -r $(VENV)/lock | \
	  sed 's/+cpu$$//; s/^## The following.*/# only for make test, lint and format, and for extras:/' > requirements.lock

clean:
	rm -rf $(VENV) .longtail
