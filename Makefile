# Everything a new machine needs: `make demo`, then `make test`. Python 3.11 or newer, git and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PEERS  ?= .peers

.PHONY: install demo test test-slow test-all coverage lock fuzz kill-test cluster-test http-test annif-test trackers-test test-kernels lint format docs bench peers clean

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "gandalf needs Python 3.11 or newer: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

# The bundled set in figures; the default beside its parts; then four ways to use label points side by side:
# demo-out/index.html. Some four minutes on two cores once installed.
demo: install
	$(BIN)/gandalf stats man
	$(BIN)/gandalf train man demo-default --overwrite
	$(BIN)/gandalf predict demo-default "compress a file"
	$(BIN)/gandalf demo demo-out --overwrite

# A worker on each core, each with one thread: several threads in several processes wait for one another.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile

# Lint, types, and every test of a few seconds: some five minutes on two cores.
test: install lint
	$(PYTEST) -m 'not slow and not cluster'

# The rest: tests that train for longer, kill processes, or follow the pages as a reader would.
test-slow: install
	$(PYTEST) -m 'slow and not cluster'

test-all: test test-slow

# The same tests, and which lines of the package none of them runs. Some two thirds slower.
coverage: install
	$(PYTEST) --cov --cov-report=term:skip-covered

# One set of versions with hashes, for all systems and Pythons: after a change of dependencies. PyTorch is left out:
# PyPI's build for Linux brings gigabytes of CUDA, and constraints.txt names the version.
lock:
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/python -m pip install --quiet --disable-pip-version-check 'uv>=0.9'
	$(VENV)-lock/bin/uv pip compile pyproject.toml --extra dev -c constraints.txt --universal --python-version 3.11 \
	  --no-config --quiet --generate-hashes --no-annotate --no-emit-package torch \
	  --custom-compile-command 'make lock; install: pip install -c constraints.txt torch && $(LOCKED)' \
	  $(addprefix --no-emit-package ,$(CUDA)) -o requirements.lock
LOCKED := pip install --no-deps --require-hashes -r requirements.lock
CUDA := triton cuda-bindings cuda-pathfinder cuda-toolkit $(addprefix nvidia-,cublas cuda-cupti cuda-nvrtc \
  cuda-runtime cudnn-cu13 cufft cufile curand cusolver cusparse cusparselt-cu13 nccl-cu13 nvjitlink nvshmem-cu13 nvtx)

# Files of every kind changed at random, for some minutes; FUZZ_SEED=7 make fuzz draws other changes.
fuzz: export FUZZ_TRIES ?= 1000
fuzz: install
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto tests/fuzz

# Every writing command killed at random moments, for some minutes; KILL_SEED=7 make kill-test draws others.
kill-test: export KILL_TRIES ?= 20
kill-test: install
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto tests/kill

# Slower tests of several processes on this machine.
cluster-test: install
	$(BIN)/python -m pytest -m cluster

# A served model against its own OpenAPI document, for two minutes; schemathesis has an environment of its own.
http-test: install
	$(PYTHON) -m venv $(VENV)-http
	$(VENV)-http/bin/python -m pip install --quiet --disable-pip-version-check 'schemathesis>=4.0'
	tests/schemathesis_run.sh $(BIN)/python $(VENV)-http/bin/schemathesis 120

# Annif itself, in an environment of its own, asks a served model by its `http` backend.
annif-test: install
	$(PYTHON) -m venv $(VENV)-annif
	$(VENV)-annif/bin/python -m pip install --quiet --disable-pip-version-check 'annif>=1.3'
	ANNIF=$(CURDIR)/$(VENV)-annif/bin/annif $(BIN)/python -m pytest tests/serve/test_serve_annif.py

# MLflow and Weights & Biases get the figures of a run, by their own clients, on this machine alone.
trackers-test: install
	$(PYTHON) -m venv $(VENV)-trackers
	$(VENV)-trackers/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,mlflow,wandb]'
	$(VENV)-trackers/bin/python -m pytest tests/train/test_logs.py

# Fused kernels by Triton's interpreter, without a GPU; in an environment of its own, since Triton takes 1 GB.
test-kernels:
	$(PYTHON) -m venv $(VENV)-kernels
	$(VENV)-kernels/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]' 'triton>=3.9'
	TRITON_INTERPRET=1 OMP_NUM_THREADS=1 $(VENV)-kernels/bin/python -m pytest -n auto tests/train/test_train_fused.py tests/predict/test_predict_fused.py

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The pages of docs/ as a site in site/; a link or an anchor that leads nowhere ends it.
docs: install
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Some 15 minutes; each part also runs alone: .venv/bin/python -m bench.graph
bench: install
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[oracle]'
	$(BIN)/python -m bench.metrics
	$(BIN)/python -m bench.shapes
	$(BIN)/python -m bench.estimates real
	$(BIN)/python -m bench.estimates synthetic
	$(BIN)/python -m bench.graph
	$(BIN)/python -m bench.pipeline

# Other people's trainers on the bundled set, with and without Gandalf's points: one table (docs/lab/peers.md). Each
# has an environment of its own in $(PEERS), 5 GB in all, since their pins clash. Then several minutes on two
# cores, most of them scikit-learn's and MiniLM's: LABELS=300 STEPS=2 make peers is a quick try.
peers: install
	$(BIN)/python -m bench.peers_install $(PEERS)
	$(BIN)/python -m bench.peers_cpu man --venvs $(PEERS) --points D 'D + calibrated'

clean:
	rm -rf $(VENV) $(VENV)-kernels $(VENV)-http $(VENV)-annif $(VENV)-trackers $(VENV)-lock .coverage $(PEERS) .schemathesis demo-default demo-out site .mypy_cache .ruff_cache .pytest_cache
