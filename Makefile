# Groundwire. `make` alone explains itself.
.DEFAULT_GOAL := help
VENV := .venv
GROUNDWIRE := $(VENV)/bin/groundwire

.PHONY: help setup demo picture site gallery test behaviour wheel constraints lint style types imports bench study claims hardware programs clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## system packages, .venv and the virtual kernel; every step is skipped when done
	@./setup.sh run

demo: setup ## set up, then run 16 Gloo ranks of DLRM on a k=4 fat-tree, beside the predictions
	@$(GROUNDWIRE) run topologies/dlrm-fat-tree-k4.yaml
	@echo "next:          $(GROUNDWIRE) view runs, and docs/howto/first-experiment.md"

picture: setup ## run the demo and draw docs/demo.svg, README's picture of its tables
	@$(VENV)/bin/python -m testing.demo_picture

site: ## the documentation as a site, in build/site; needs what ./setup.sh test installs
	@$(VENV)/bin/python -m testing.documentation_site

gallery: setup ## run the experiments of docs/gallery.md and draw their pictures
	@$(VENV)/bin/python -m testing.gallery

# Guests keep virtual time, so they can share the machine, also with mypy, which takes one core. The
# native kernel runs in real time: alone.
test: ## set up, then check style, types and behaviour
	@./setup.sh test
	@$(MAKE) --no-print-directory style
	@$(MAKE) --no-print-directory -j3 types imports behaviour
	@$(VENV)/bin/pytest tests/native -m 'not long and real_time'

behaviour: # without make's own variables, as some tests run make
	@MAKEFLAGS= MFLAGS= $(VENV)/bin/pytest -n auto --maxprocesses=4 --dist=loadfile --no-loadscope-reorder -m 'not long and not real_time'

wheel: setup ## one file, in dist/, with Groundwire and its built kernel: pip install it anywhere
	@$(VENV)/bin/python -m emulator.virtual.building.wheel

constraints: setup ## renew constraints.txt, the versions that setup installs, by the newest that pyproject allows
	@$(VENV)/bin/pip install -q uv
	@$(VENV)/bin/uv pip compile pyproject.toml --extra test --universal --python-version 3.11 \
		--upgrade --quiet --no-annotate --no-header >$(VENV)/resolved.txt
	@{ echo "# The versions that setup.sh installs. make constraints renews them."; \
		grep -Ev '^(cuda|nvidia|triton)' $(VENV)/resolved.txt; } >constraints.txt  # torch names those itself

lint: style ## ruff, mypy --strict and the directions of imports
	@$(MAKE) --no-print-directory -j2 types imports

style:
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .

types:
	@$(VENV)/bin/mypy

imports:
	@$(VENV)/bin/lint-imports --no-logo

BENCHMARKS := astra bring_up congestion_control congestion_control_order decode goodput instructions \
	native_truth packet_engine port_cost predictors stock_deviation two_jobs virtual_speed roce.dcqcn_draws roce.timely_draws

bench: setup ## the benchmarks that take minutes, and nothing that has to be given
	@for name in $(BENCHMARKS); do echo "== $$name"; $(VENV)/bin/python -m benchmarks.$$name || exit 1; done

study: setup ## run the DLRM case study, small, and write docs/dlrm-study.md; goes on where it was
	@$(GROUNDWIRE) study studies/dlrm-case-study.yaml --out runs/dlrm-case-study
	@$(VENV)/bin/python -m benchmarks.dlrm_study runs/dlrm-case-study --page docs/dlrm-study.md

claims: setup ## run the experiments behind docs/claims.md, ONLY=NAME some of them, and make the page
	@$(VENV)/bin/python -m benchmarks.claims $(addprefix --only ,$(ONLY))

hardware: setup ## predict the published measurements of hardware (an hour), and make docs/hardware.md
	@$(VENV)/bin/python -m benchmarks.hardware.predictions
	@$(VENV)/bin/python -m benchmarks.hardware.simulations
	@$(VENV)/bin/python -m benchmarks.hardware.training
	@$(VENV)/bin/python -m benchmarks.hardware.gloo
	@$(VENV)/bin/python -m benchmarks.hardware.page

programs: setup ## make the environments of programs of others for long tests, ONLY=NAME some of them
	@$(VENV)/bin/python -m testing.foreign_programs $(ONLY)

clean: ## remove what sessions left behind, .venv and run directories (the kernel cache stays)
	@if [ -x $(GROUNDWIRE) ]; then $(GROUNDWIRE) clean; fi
	@rm -rf $(VENV) runs build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
