# make demo    a real two-node Slurm on this machine trains a model (KEEP=1 leaves the cluster up)
# make test    every test, those on a real Slurm included
#              with SLURM=22.05, 24.11 or 26.05: these targets on a Debian that has this Slurm (tests/other-slurm)
# make soak    every case of the survival tests, with 2 ranks and with 4, every framework, every hang; an hour
# make chaos   half an hour of random faults; RUNS=N trainings of each size, and faults of each training (6)
# make frameworks   public programs, fetched by git: each started, stopped in three ways, compared with torchrun
# make check   formatting, lint and types
# make bench   benchmarks beside submitit, torchx and others, into docs/benchmarks.md; ARGS='startup save' for some parts
#              not in it: python benchmarks/gpu.py, on a machine with a GPU
# make docs    writes what README.md and docs/ repeat of the code, then the site of docs/ in site/; a warning is an error
.ONESHELL:
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.PHONY: demo test soak chaos frameworks programs check bench docs slurm clean

PYTHON ?= python3
VENV := .venv$(SLURM:%=-%)
BIN := $(VENV)/bin
PACKAGES := slurm-wlm slurm-wlm-basic-plugins munge iproute2 uidmap dataset-fashion-mnist
ACCOUNTING := slurmdbd slurm-wlm-mysql-plugin mariadb-server
RUNS ?= 6
FASHION := /usr/share/datasets/fashion-mnist

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "slurmddp needs Python 3.11 or newer; give one by PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	# Apart: PyPI's torchvision goes with a torch that has CUDA, and whatever imports it beside another one fails.
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps --target $(VENV)/vision torchvision
	touch $@

# Slurm's programs, where they may be installed: as root, with apt, and only if some are missing.
slurm:
	@if dpkg -s $(PACKAGES) >/dev/null 2>&1; then
	  exit 0
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	  echo "installing $(PACKAGES)"
	  apt-get update -qq
	  DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends $(PACKAGES) >/dev/null
	fi

ifdef SLURM
demo test soak chaos:
	@tests/other-slurm $(addprefix -b ,$(BIND)) $(SLURM) $(MAKE) $@ SLURM= VENV=$(VENV)
else
demo: $(VENV)/installed slurm
	@PATH="$(CURDIR)/$(BIN):$$PATH" KEEP="$(KEEP)" FASHION=$(FASHION) bash jobs/demo.sh

test: PACKAGES += $(ACCOUNTING) passwd g++ chromium openssh-server rsync tmux
test: $(VENV)/installed slurm
	@PATH="$(CURDIR)/$(BIN):$$PATH" OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 6 --dist loadfile --no-loadscope-reorder --durations=30 $(ARGS)

soak: $(VENV)/installed slurm
	@export SLURMDDP_TESTS_SOAK=1 OMP_NUM_THREADS=1
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest -o timeout=3600 tests/test_survival.py tests/test_setup.py tests/frameworks tests/watchdog $(ARGS)

chaos: $(VENV)/installed slurm
	@export SLURMDDP_TESTS_SOAK=1 SLURMDDP_TESTS_CHAOS=$(RUNS) OMP_NUM_THREADS=1
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest -k "chaos or random_faults" -o timeout=14400 tests/test_survival.py tests/test_random_faults.py $(ARGS)
endif

frameworks: # in an environment of its own
	@$(MAKE) programs VENV=.venv-frameworks

programs: $(VENV)/installed slurm
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -r tests/frameworks/requirements.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --target $(VENV)/vision --upgrade timm
	export SLURMDDP_TESTS_PROGRAMS=1 OMP_NUM_THREADS=1 PYTHONPATH="$(CURDIR)/$(VENV)/vision:$(CURDIR)/tests/programs/cpu_torchvision"
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest -n 2 -o junit_family=xunit1 --junitxml=$(VENV)/programs.xml tests/frameworks/test_public_programs.py $(ARGS)
	$(BIN)/python tests/support/program_table.py $(VENV)/programs.xml

check: $(VENV)/installed
	@$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy --python-version 3.10 --follow-imports silent slurmddp/{attach,batch,runtime,watchdog,worker,runs,slurm} # the oldest that mypy knows

.venv-bench/installed: benchmarks/requirements.txt
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/pip install --quiet --disable-pip-version-check -r $<
	touch $@

bench: $(VENV)/installed .venv-bench/installed slurm
	@PATH="$(CURDIR)/$(BIN):$$PATH" OMP_NUM_THREADS=1 $(BIN)/python benchmarks/run.py $(ARGS)

docs: $(VENV)/installed
	@$(BIN)/cog -r --verbosity=1 -I docs README.md docs/*.md
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	if grep -rlE '(src|<link[^>]*href)="?(https?:)?//' site --include=*.html; then
	  echo "these pages load something from the network"
	  exit 1
	fi
	echo "the site is $(CURDIR)/site/index.html"

clean:
	rm -rf $(VENV) build dist site
