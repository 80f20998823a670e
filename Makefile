# make run       set up .venv, run the pipeline, print where the report is
# make test      set up .venv, run the tests that guard every change
# make test-all  set up .venv, run all tests, those that take long too
# make schedule  set up .venv, run what prefect.yaml schedules on this machine, until Ctrl-C
# Needs Linux or macOS, Python 3.11 to 3.13, git and make; nothing is installed outside .venv.
ifeq ($(OS),Windows_NT)
$(error Longtail needs Linux or macOS; on Windows, run make in WSL)
endif
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n logical --maxprocesses 4 --dist loadfile --no-loadscope-reorder
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
	@$(BIN)/mypy

format: install-tests
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

# The stamp holds what was installed, and where: an interrupted install leaves none, a moved checkout another.
install:
	@{ pwd; cat requirements*.lock pyproject.toml; } | cmp -s - $(STAMP) || $(MAKE) --no-print-directory $(VENV)

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
	@$(PIP) --no-compile --no-deps "$$(sed -n 's/^\(torch==[0-9.]*\).*/\1+cpu/p' requirements-torch.lock)" 2>/dev/null || \
	  $(PIP) --no-compile --no-deps --require-hashes -r requirements-torch.lock  # no CPU build is offered
	@$(PIP) --no-compile --no-deps --require-hashes -r requirements.lock
	@$(BIN)/python -m compileall -q -j 0 -x "/tests/|/transformers/models/" $(VENV)/lib > /dev/null || true  # pip would use one core
	@$(PIP) --no-deps --no-build-isolation -e .
	@mkdir -p .longtail && mkdir -p -m 700 .longtail/dvc  # DVC would make it open to all
	@$(BIN)/dvc config --local core.site_cache_dir "$$(pwd)/.longtail/dvc"
	@{ pwd; cat requirements*.lock pyproject.toml; } > $(STAMP)

install-tests: install
	@cmp -s $(STAMP) $(VENV)/tests || { \
	  $(PIP) --no-deps --require-hashes -r requirements-tests.lock && cp $(STAMP) $(VENV)/tests; }

# Resolve pyproject.toml's ranges anew, for all systems and Pythons at once, with uv (pip install uv). This keeps the
# versions that still fit: make lock KEEP='-c requirements.lock -c requirements-torch.lock -c requirements-tests.lock'
RESOLVE = uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-strip-extras \
  --no-annotate --no-header
lock:
	@mkdir -p $(VENV)
	@$(RESOLVE) $(KEEP) pyproject.toml --extra pipeline -o $(VENV)/run.lock > /dev/null
	@$(RESOLVE) $(KEEP) pyproject.toml --extra dev -c $(VENV)/run.lock -o $(VENV)/tests.lock > /dev/null
	@echo "# What a run needs, but for torch. Written by make lock. pip install --no-deps --require-hashes -r requirements.lock" > requirements.lock
	@echo "# torch as the package index has it: with CUDA on Linux, without on macOS. Written by make lock." > requirements-torch.lock
	@echo "# What make test, lint and format need besides. Written by make lock." > requirements-tests.lock
	@awk '/^[^ ]/ { run = FILENAME ~ /run/; skip = !run && $$0 in seen; seen[$$0]; \
	  part = !run ? "-tests" : /^(torch|triton|nvidia-|cuda-)/ ? "-torch" : "" } \
	  !skip { print >> "requirements" part ".lock" }' $(VENV)/run.lock $(VENV)/tests.lock

clean:
	rm -rf $(VENV) .longtail
