# Two commands: `make demo` and `make test`. Both set up .venv first, once.
# SELECT has further words for pytest, such as SELECT="-k cope".
SELECT ?=
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Compiled files are kept, whatever the environment says: hundreds of tests start a Python process of their own, and
# without these files each would compile torch anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-services services lint docs hashes bench clean

demo: $(VENV)/.installed
	@$(BIN)/everlearn demo

test: $(VENV)/.installed lint
	$(BIN)/python -m pytest -q -n 2 --dist worksteal $(SELECT)

# The tests that need PostgreSQL, Redis, Ray or Chromium; one that is skipped fails. `make test` runs them, too, where
# these are found. What is missing here is installed: Ray by pip with all else, the others by apt-get, as root.
SERVICES = $(shell grep -rl --include='test_*.py' 'mark\.services' tests)
test-services: $(VENV)/.installed services
	EVERLEARN_NO_SKIPS=1 $(BIN)/python -m pytest -q -n 2 --dist loadfile -m services $(SERVICES) $(SELECT)

services:
	@missing=; command -v chromium > /dev/null || missing="$$missing chromium"; \
	command -v redis-server > /dev/null || missing="$$missing redis-server"; \
	ls /usr/lib/postgresql/*/bin/initdb > /dev/null 2>&1 || command -v initdb > /dev/null || missing="$$missing postgresql"; \
	test -z "$$missing" || { echo "installing$$missing"; export DEBIAN_FRONTEND=noninteractive; \
		apt-get update -qq && apt-get install -y -qq --no-install-recommends $$missing > /dev/null; }

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/.installed
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) runs build dist site

# --no-compile: Python compiles a file when it is first imported, and most of what is installed never is.
# torch by its exact version: elsewhere than Linux, and where a CPU build is offered, it is the same release.
$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "everlearn needs Python 3.11 or newer; set PYTHON=..."; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[dev]'
	touch $@

# requirements-test.txt pins the same versions with the sha256 of every file that PyPI has of them, torch apart, whose
# CPU build is not on PyPI. To check them all: `pip install torch==2.13.0`, then
# `pip install --require-hashes --no-deps -r requirements-test.txt`, then `pip install --no-deps -e .`.
# After a change of constraints.txt, `make hashes` (with uv) writes the file anew.
hashes:
	uv pip compile constraints.txt --no-deps --no-emit-package torch --generate-hashes --no-annotate --quiet \
		--custom-compile-command 'make hashes' -o requirements-test.txt

# PEERS=PATH names an interpreter that has Avalanche and deep-river; MNIST missing stops only the benchmark of seeds.
PEERS ?= $(BIN)/python
bench: $(VENV)/.installed
	$(BIN)/python benchmarks/step.py
	$(BIN)/python benchmarks/step.py --network slim-resnet18
	$(BIN)/python benchmarks/breakdown.py
	$(BIN)/python benchmarks/breakdown.py --network slim-resnet18 --batches 60
	$(BIN)/python benchmarks/scaling.py
	$(BIN)/python benchmarks/learn_one.py
	$(BIN)/python benchmarks/predict.py
	$(BIN)/python benchmarks/compare.py --peers-python $(PEERS)
	$(BIN)/python benchmarks/checkpoint.py
	$(BIN)/python benchmarks/live.py
	-$(BIN)/python benchmarks/parallel.py
