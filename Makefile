# `make demo` and `make test` set everything up by themselves; `make help` lists the rest.
SHELL := /bin/bash
PYTHON ?= $(shell command -v /usr/bin/python3 || command -v python3)
SUDO := $(shell [ "$$(id -u)" = 0 ] || command -v sudo)
BIN := .venv/bin
READY := .venv/.ready

LAB := .venv/.lab

.PHONY: help demo test test-all scenarios check format bench docs clean

help:
	@echo 'make demo      set up, and show a KV transfer over SoftRoCE, a fault, and its diagnosis'
	@echo 'make test      set up, and run the tests (minutes)'
	@echo 'make test-all  the long tests too (fuzzing, each way to die for each fault): up to 90 minutes'
	@echo 'make scenarios every shipped scenario in a lab, against the verdict that it promises: hours'
	@echo 'make check     format, lint, strict types, fast tests (under a minute)'
	@echo 'make docs      write the generated pages'
	@echo 'make bench     benchmarks: ratios against a peer in one run'

# A virtual environment with rdmadiag in it (editable) and what tests need. apt only for what is missing.
$(READY): setup.cfg pyproject.toml
	@command -v git >/dev/null && $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null && command -v rg >/dev/null || \
	  { export DEBIAN_FRONTEND=noninteractive; $(SUDO) apt-get update -qq && $(SUDO) env DEBIAN_FRONTEND=noninteractive \
	    apt-get install -y -qq git python3 python3-venv ripgrep >/dev/null; }
	@[ -x $(BIN)/python ] || $${PYTHON:-/usr/bin/python3} -m venv .venv
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[dev,lab]'
	@$(BIN)/python -m compileall -q rdmadiag
	@touch $@

# The tools that tests compare with, and what a lab needs: packages, and the lists from which its kernel is fetched (`rdmadiag lab doctor` says what is missing).
$(LAB): $(READY)
	@command -v tshark cpio ethtool ip nft >/dev/null && [ "$$(command -v tshark cpio ethtool ip nft | wc -l)" = 5 ] || \
	  { $(SUDO) apt-get update -qq && $(SUDO) env DEBIAN_FRONTEND=noninteractive \
	    apt-get install -y -qq --no-install-recommends tshark cpio ethtool iproute2 nftables >/dev/null; }
	@said=$$($(BIN)/rdmadiag lab doctor); \
	  if grep -qE '^MISSING|can be fetched' <<<"$$said"; then $(SUDO) apt-get update -qq; fi; \
	  install=$$(sed -n 's/^install: //p' <<<"$$said"); \
	  if [ -n "$$install" ]; then DEBIAN_FRONTEND=noninteractive bash -c "$$install" >/dev/null; fi
	@$(BIN)/rdmadiag lab doctor >/dev/null || { $(BIN)/rdmadiag lab doctor; exit 1; }
	@for engine in mooncake nixl; do said=$$($(BIN)/rdmadiag workload install $$engine 2>&1) || { echo "$$said"; exit 1; }; done
	@touch $@

# Those of a lab one after the other, since they share its processors; the others before, a process a processor.
tests = ended=0; $(BIN)/python -m pytest -n auto -m 'not lab $(1)' || ended=$$?; $(BIN)/python -m pytest -m 'lab $(1)' && exit $$ended

demo: $(LAB)
	@bash docs/demo.sh

test: $(LAB)
	@$(call tests,and not long)

test-all: $(LAB)
	@$(call tests,and not hours)

scenarios: $(LAB)
	@$(BIN)/python -m pytest -v -m hours

check: $(READY)
	@$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy
	@$(BIN)/rdmadiag rules lint
	@$(BIN)/python -m pytest -m 'not long and not slow' -x

format: $(READY)
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

docs: $(READY)
	@$(BIN)/python docs/generate.py

bench: $(READY)
	@$(BIN)/python -m tests.benchmarks

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
