# asyncppo_ros: `make` lists the targets.

# jazzy, kilted (wheels for x86-64 Linux) or none; a sourced ROS 2 goes before both
ROS ?= jazzy
# 3.10 to 3.13; used when the environment is made
PYTHON ?= python3
# which torch, and from which index; empty: torch 2.13, for the CPU unless there is a CUDA GPU
TORCH ?=
TORCH_INDEX ?=
# further arguments of `asyncppo train` or pytest
ARGS ?=
# what `make test` runs
TESTS ?= test

SHELL := /bin/bash
VENV := $(if $(filter jazzy,$(ROS)),.venv,.venv-$(ROS))
BIN := $(VENV)/bin
# Without PYTHON= an environment that is there keeps its Python.
KEEP := $(if $(filter file,$(origin PYTHON)),--keep-python)

# Set inside of a Python with ROS 2 wheels, they would send another environment to its libraries.
ifdef _ROS_WHEELS_BOOTSTRAP_COMPLETE
unexport _ROS_WHEELS_BOOTSTRAP_COMPLETE LD_LIBRARY_PATH
endif

.DEFAULT_GOAL := help
.PHONY: help setup train test faults lint lock clean

help:
	@echo 'make train    set up, train a 6-joint arm to reach, evaluate it   (ARGS="--seed 1")'
	@echo 'make test     set up, run all tests          (ROS=kilted, TESTS="test/test_codec.py", ARGS="-x")'
	@echo 'make faults   set up, inject every fault into real trainings   (about 8 minutes)'
	@echo 'make lint     set up, ruff and mypy'
	@echo 'make setup    make the virtual environment $(VENV) and install everything into it'
	@echo '              (ROS=jazzy|kilted|none, PYTHON=python3.12, TORCH=torch==2.13.0, TORCH_INDEX=URL)'
	@echo 'make clean    remove the virtual environments and what builds and tests left; runs/ stays'
	@echo 'make lock     write requirements/ again      (PYTHONS="python3.10 python3.11")'

setup:
	@command -v $(PYTHON) >/dev/null || { echo '[setup] $(PYTHON): not found; install Python 3.10 to 3.13 or name one with PYTHON=' >&2; exit 1; }
	@$(PYTHON) scripts/setup_venv.py --venv '$(VENV)' --ros '$(ROS)' --torch '$(TORCH)' --torch-index '$(TORCH_INDEX)' $(KEEP)

train: setup
	@exec $(BIN)/asyncppo train --task reach $(ARGS)

test: setup
	@exec $(BIN)/python -m pytest $(TESTS) $(ARGS)

faults: setup
	@exec $(BIN)/python -m pytest test/faults --slow $(ARGS)

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/mypy

lock: PYTHONS ?= $(PYTHON)
lock:
	@for python in $(PYTHONS); do $$python scripts/make_lock.py || exit 1; done

clean:
	rm -rf .venv .venv-* build install log dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find asyncppo_ros test scripts launch -name __pycache__ -type d -prune -exec rm -rf {} +
