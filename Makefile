# Everything a newcomer or CI needs: `make run`, `make test`, `make check`, `make bench`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
RUNS := $(VENV)/.runs
READY := $(VENV)/.ready
TALLY := $(VENV)/.tally
# Installing packages needs root.
SUDO ?= $(shell [ "$$(id -u)" = 0 ] || echo sudo)
# More than there are cores: many tests wait for something, and others can run meanwhile.
JOBS ?= $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN) + 4 )))

.PHONY: run test test-slow test-faults test-real check format bench lock clean

# What running needs, in the versions of the lock; hatchling and editables make the package.
$(RUNS): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) --constraint requirements.lock hatchling editables
	$(PIP) --constraint requirements.lock --no-build-isolation -e .
	@touch $@

# What developing needs beside it: all of the lock.
$(READY): $(RUNS)
	$(PIP) -r requirements.lock
	@touch $@

run: $(RUNS)  ## start the daemon in the background, show what it found and what to ask next
	$(BIN)/burnctl up --look

test: $(READY)  ## the default tests
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

test-slow: $(READY)  ## all tests at length: kill loops, large inputs, many more examples
	@seed=$${SEED:-$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}; echo "seed $$seed; again with: SEED=$$seed make test-slow"; \
	BURND_THOROUGH=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m 'not real' --hypothesis-seed=$$seed

test-faults: $(READY)  ## everything that can go wrong, at length; ends in a table
	@rm -f $(TALLY)
	BURND_TALLY=$(TALLY) $(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m 'slow or not slow' tests/faults \
		tests/ledger/test_every_fault.py; first=$$?; \
	BURND_TALLY=$(TALLY) BURND_QUIET=1 $(BIN)/python -m pytest -n 0 -m timed tests && exit $$first

test-real: $(READY)  ## browser, terminal, zsh and fish, guard and restore with real clients, S3, databases; installs what is missing
	@(for program in chromium tmux zsh fish; do command -v $$program >/dev/null || exit 1; done) && \
		test -d /usr/lib/postgresql || \
		{ $(SUDO) apt-get update -q && $(SUDO) apt-get install -q -y chromium tmux zsh fish postgresql; }
	@$(BIN)/python -c 'import chdb, psycopg' 2>/dev/null || $(PIP) 'chdb>=4' 'psycopg[binary]>=3.2'
	@test -x $(VENV)/moto/bin/moto_server || { $(PYTHON) -m venv $(VENV)/moto && $(VENV)/moto/bin/pip install -q 'moto[server]>=5.2.5'; }
	PATH="$(VENV)/moto/bin:$$PATH" $(BIN)/python -m pytest -n 0 -m 'real or not real' tests/real tests/burnctl/test_completions.py

check: $(READY)  ## lint and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)  ## measure; see docs/benchmarks.md
	$(BIN)/python -m tests.bench

lock:  ## pin the newest versions that satisfy pyproject.toml
	rm -rf .lock-venv && $(PYTHON) -m venv .lock-venv
	.lock-venv/bin/python -m pip install --quiet -e '.[dev]' hatchling editables
	{ echo '# Every package that `make test` installs, pinned; `make run` takes from it what running needs. Made by `make lock`.'; \
	  .lock-venv/bin/python -m pip freeze --exclude-editable; } > requirements.lock
	rm -rf .lock-venv

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build .bench
