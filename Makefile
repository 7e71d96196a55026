PYTHON ?= python3
# A virtual environment's own pip may be missing (Debian splits it off): the outer one serves it.
pip = $(PYTHON) -m pip --python $(1)/bin/python --quiet --disable-pip-version-check
venv = $(2) -m venv $(1) >/dev/null 2>&1 || $(2) -m venv --clear --without-pip $(1)
# Every extra but torch and river, and what tests compare with. river wants a newer NumPy than the
# lowest that orfit takes.
most = '.[cli,experiments,sklearn,test]' 'filterpy>=2.0'
# Two processes; one that has no more tests takes some of the other's.
pytest = $(1)/bin/pytest -n 2 --dist worksteal
# Tests of the learners, the memories and the step: their verdict is the same on every processor.
arithmetic = $(patsubst %,tests/test_%.py, \
	algorithms auto contract degenerate filter candidates forgetting frame grow growing memory merge \
	meter moving rounding rows settings sketch tail theorems uncertainty weights windup)
# OpenBLAS does not check whether the processor has the instructions that these kernels use.
kernels = Haswell Zen Prescott $(shell grep -qs avx512f /proc/cpuinfo && echo SkylakeX)

# The extension of an editable install is built in the source tree, for this processor only.
core = setup.py $(wildcard src/orfit/core/*.c src/orfit/core/*.h src/orfit/core/*.pyx)
export ORFIT_TARGETS = native

.PHONY: demo reproduce lint test test-core test-oldest test-all bench bench-streams bench-settings bench-experiments docs wheel setup clean

# A real stream: learned, killed, taken up again; a report; then the paper's first figure.
demo: .venv/demo
	.venv/bin/python tools/demo.py results/demo

reproduce: .venv/demo
	.venv/bin/orfit reproduce

lint: .venv/dev
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports --no-logo
	.venv/bin/python tools/count_lines.py

test: lint
	$(call pytest,.venv)

# The core alone: no torch, no scikit-learn, nothing to draw with.
test-core: .venv-core/ready
	$(call pytest,.venv-core)

# The lowest versions that pyproject.toml declares, as uv finds them.
test-oldest: .venv-oldest/ready
	$(call pytest,.venv-oldest)

# Another Python, with every extra but torch: make test-3.12 needs a python3.12 in the path.
test-3.%: .venv-3.%/ready
	$(call pytest,.venv-3.$*)

# Every test, then the arithmetic ones with each of OpenBLAS's kernels and with two threads. The core
# is compiled by clang, too, which the wheel ziglang has, and for ARM if there is qemu-aarch64.
test-all: lint .cache/zig
	$(call pytest,.venv) -m "" --durations=20
	for kernel in $(kernels); do \
		echo "kernels for $$kernel"; \
		OPENBLAS_CORETYPE=$$kernel $(call pytest,.venv) $(arithmetic) || exit 1; \
	done
	for threads in 1 2; do \
		echo "OPENBLAS_NUM_THREADS=$$threads"; \
		OPENBLAS_NUM_THREADS=$$threads $(call pytest,.venv) $(arithmetic) || exit 1; \
	done

.cache/zig:
	-$(PYTHON) -m pip install --quiet --disable-pip-version-check --target $@ ziglang

bench: .venv/bench
	.venv/bin/python benchmarks/run.py
	.venv/bin/python benchmarks/command.py

# The files come by pip, which the outer Python has.
bench-streams: .venv/bench
	$(PYTHON) benchmarks/stream_files.py results/long
	.venv/bin/python benchmarks/streams.py --data results/long

bench-settings: .venv/bench
	.venv/bin/python benchmarks/settings.py

# Experiments that are not in the paper: make bench-experiments NAMES="memory tail"
bench-experiments: .venv/bench
	.venv/bin/python benchmarks/experiments/run.py $(NAMES)


docs: .venv-docs/ready
	.venv-docs/bin/zensical build --clean --strict
	.venv-docs/bin/python tools/check_links.py site

wheel: .venv/dev
	rm -rf dist
	ORFIT_TARGETS=all $(call pip,.venv) wheel --no-deps --wheel-dir dist .
	ORFIT_WHEELS=dist .venv/bin/pytest -m "" tests/test_wheel.py

# After a change of the core's sources, this and the other targets compile them again.
setup: .venv/dev

clean:
	rm -rf .venv .venv-* results site dist .cache build src/orfit.egg-info src/orfit/core/_core.*so

.venv/bin/python:
	$(call venv,.venv,$(PYTHON))

.venv/demo: .venv/bin/python pyproject.toml constraints.txt $(core)
	$(call pip,.venv) install --constraint constraints.txt --editable '.[experiments]'
	@touch $@

.venv/bench: .venv/bin/python pyproject.toml constraints.txt $(core)
	$(call pip,.venv) install --constraint constraints.txt --editable '.[bench]'
	@touch $@

.venv/dev: .venv/bin/python pyproject.toml constraints.txt $(core)
	ORFIT_STRICT=1 $(call pip,.venv) install --constraint constraints.txt --editable '.[dev]'
	@touch $@ .venv/demo

.venv-core/ready: pyproject.toml $(core)
	$(call venv,.venv-core,$(PYTHON))
	$(call pip,.venv-core) install --editable '.[test]'
	@touch $@

.venv-docs/ready: pyproject.toml $(core)
	$(call venv,.venv-docs,$(PYTHON))
	$(call pip,.venv-docs) install --editable '.[docs]'
	@touch $@

# torch comes by pip, after uv, since only there the CPU-only build is found.
.venv-oldest/ready: pyproject.toml constraints.txt $(core)
	$(call venv,.venv-oldest,$(PYTHON))
	$(call pip,.venv-oldest) install uv
	.venv-oldest/bin/uv pip install --quiet --python .venv-oldest/bin/python \
		--resolution lowest-direct --editable $(most)
	$(call pip,.venv-oldest) install --constraint constraints.txt torch
	@touch $@

.venv-3.%/ready: pyproject.toml $(core)
	$(call venv,.venv-3.$*,python3.$*)
	$(call pip,.venv-3.$*) install --editable $(most) 'river>=0.26.1'
	@touch $@
