# The two commands of the README are `make demo` and `make test`. Each does its own set-up: Python, git and make are enough.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
EXTRAS ?= local,webrtc,echo,otel,dev

.PHONY: demo test lint mutate soak clients screenshots serve clean

demo: $(VENV)/.demo
	$(BIN)/antiphon demo

serve: $(VENV)/.demo
	$(BIN)/antiphon serve

# The demo needs the CPU voice only; the tests need everything.
$(VENV)/.demo: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing Antiphon and the CPU voice ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[local,webrtc]'
	@touch $@

$(STAMP): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$(EXTRAS)]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'torch==2.13.0'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[omni]'
	@# What SGLang makes of our grammars is tested against its own parser, which runs on a CPU without the triton it asks for.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps 'xgrammar==0.2.7' 'apache-tvm-ffi==0.1.15.post2'
	@touch $@ $(VENV)/.demo

test: $(STAMP)
	$(BIN)/antiphon models pull
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Plants one-line bugs and fails unless each is found.
mutate: $(STAMP)
	$(BIN)/python -m tests.mutants.run

# Real clients, unmodified, against a running server; they get an environment of their own.
clients: $(STAMP)
	$(BIN)/python -m tests.clients.run

# Needs Debian's chromium; pictures go to .cache/screenshots.
screenshots: $(STAMP)
	$(BIN)/python -m tests.web.screenshots

soak: $(STAMP)
	$(BIN)/python -m pytest -m slow --timeout 3600
	@# The cases that hypothesis makes up: other ones each time, and ten times as many talks.
	ANTIPHON_EXAMPLES=400 $(BIN)/python -m pytest -m hypothesis --hypothesis-profile search --timeout 3600

clean:
	rm -rf $(VENV) .cache build dist .pytest_cache .mypy_cache .ruff_cache
