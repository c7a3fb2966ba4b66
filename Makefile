# make demo   see it learn
# make test   formatting, lint, types, tests
# make test-slow  the tests that take long: processes that are killed, that share a run, large networks
# make test-other-cpu  what learns once more, with the last bits of another CPU
# make browser-test  pages in headless Chromium, if there is one
# make test-cluster  runs by torchrun, SLURM and Ray, with losses and restarts
# make torture  runs that are killed, damaged and deprived of disk space, many times
# make fuzz   broken files for every reader
# make load   many predictions, a long training, four at once
# make docs   the documentation site, with all links checked and all examples run
# make dist   a wheel and a source archive, tried in an empty environment
# make bench  what everything costs, as ratios: steps, views, sizes, processes
PYTHON ?= python3
BIN := .venv/bin
PYTEST := OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE $(BIN)/pytest
export MPLBACKEND := Agg

.PHONY: demo test test-slow test-other-cpu browser-test test-cluster torture fuzz load lint docs dist bench clean
.DEFAULT_GOAL := test

.venv/ready: requirements.lock requirements-torch.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11"; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements-torch.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	touch $@

demo: .venv/ready
	$(BIN)/dualstudent demo

test: lint
	$(PYTEST) --numprocesses auto --dist loadscope --durations 20

test-slow: .venv/ready
	$(PYTEST) --numprocesses auto --dist loadscope -m slow tests

# Without the newer instructions sums are rounded differently, as they are on a CPU that lacks them.
test-other-cpu: .venv/ready
	ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE DNNL_MAX_CPU_ISA=SSE41 \
		$(PYTEST) --numprocesses auto --dist loadscope -m learns tests

browser-test: .venv/ready
	$(PYTEST) -m browser tests/browser

test-cluster: .venv/ready
	$(PYTEST) -m cluster tests/cluster

# Results go into results/reliability; docs/reliability.md quotes them.
torture: .venv/ready
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.torture results/reliability/torture.csv
	$(BIN)/python -m tests.torture.other_cpu results/reliability/other-cpu.csv

fuzz: .venv/ready
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz.with_atheris build/fuzz
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz results/reliability/fuzz.csv --corpus build/fuzz

load: .venv/ready
	$(BIN)/python -m tests.torture.load results/reliability

lint: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(PYTEST) -q tests/test_unsafe_calls.py

# The site is in build/site; a broken link, or anything loaded from elsewhere, is an error.
docs: .venv/ready
	$(PYTEST) -m 'site or not browser' tests/site tests/test_docs.py tests/test_examples.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir build/site

dist: .venv/ready
	rm -rf dist build/lib
	$(BIN)/python -c 'from setuptools.build_meta import build_sdist as b; print(b("dist"))'
	$(BIN)/pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist dist/*.tar.gz
	.ci/try_dist.sh $(PYTHON) dist/*.whl dist/*.tar.gz

bench: .venv/ready
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.bench
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/views.py

clean:
	rm -rf .venv build src/*.egg-info
