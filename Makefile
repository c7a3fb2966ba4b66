# make demo   see it learn
# make test   formatting, lint, types, tests
# make browser-test  pages in headless Chromium, if there is one
# make bench  the time of a step against its bare network passes
PYTHON ?= python3
BIN := .venv/bin
export MPLBACKEND := Agg

.PHONY: demo test browser-test lint bench clean
.DEFAULT_GOAL := test

.venv/ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11"; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	touch $@

demo: .venv/ready
	$(BIN)/dualstudent demo

test: lint
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE $(BIN)/pytest --numprocesses auto --dist loadscope

browser-test: .venv/ready
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE $(BIN)/pytest -m browser tests/browser

lint: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: .venv/ready
	$(BIN)/python benchmarks/step_time.py

clean:
	rm -rf .venv build src/*.egg-info
