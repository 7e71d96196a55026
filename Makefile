PYTHON ?= python3
# A virtual environment's own pip may be missing (Debian splits it off): the outer one serves it.
PIP := $(PYTHON) -m pip --python .venv/bin/python --quiet --disable-pip-version-check

.PHONY: demo reproduce test bench bench-streams setup clean

demo: .venv/demo
	.venv/bin/orfit reproduce limited digits

reproduce: .venv/demo
	.venv/bin/orfit reproduce

# The row loop is compiled once, before two processes would do so at the same time.
test: .venv/dev
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports --no-logo
	.venv/bin/python -c "import orfit; orfit.warm_up()"
	.venv/bin/pytest -n 2

bench: .venv/bench
	.venv/bin/python benchmarks/run.py

bench-streams: .venv/bench
	.venv/bin/python benchmarks/streams.py

setup: .venv/dev

clean:
	rm -rf .venv results

.venv/bin/python:
	$(PYTHON) -m venv .venv >/dev/null 2>&1 || $(PYTHON) -m venv --clear --without-pip .venv

.venv/demo: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) install --constraint constraints.txt --editable '.[experiments]'
	@touch $@

.venv/bench: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) install --constraint constraints.txt --editable '.[bench]'
	@touch $@

.venv/dev: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) install --constraint constraints.txt --editable '.[dev]'
	@touch $@ .venv/demo
