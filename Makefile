# Six targets; each sets up what it needs. PYTHON may name another interpreter (3.11 or newer).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The kernels of this processor; all: those of every kind of processor, as a wheel has them.
KERNELS ?= own
# Processes that run tests. Two cores have time for three, as tests wait for servers, trainings and clocks now and then.
WORKERS ?= 3
# Libraries of continuous integration alone.
MORE ?=
# Libraries are compiled to bytecode as they are first imported (--no-compile below), which this variable would forbid for good.
unexport PYTHONDONTWRITEBYTECODE

PIP = $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check
# What the package needs, and its extras of these names, a library a line.
NEEDED = $(BIN)/python -c "import sys, tomllib; p = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
    print(*p['dependencies'], *(each for name in sys.argv[1:] for each in p['optional-dependencies'][name]), sep='\n')"

.PHONY: install demo test check bench docs

install: $(VENV)/.installed

$(VENV)/.made:
	$(PYTHON) -m venv $(VENV)
	$(PIP) -c constraints.txt --upgrade pip  # Python 3.11's own takes twice as long for what follows
	touch $@

# The stamps make every other target cheap once the environment stands. With -j2, kernels are compiled while libraries come.
$(VENV)/.installed: $(VENV)/.kernels $(VENV)/.libraries
	touch $@

$(VENV)/.kernels: $(VENV)/.made pyproject.toml setup.py $(wildcard src/transduce/kernels/*.cpp src/transduce/kernels/*.h)
	rm -f src/transduce/kernels/*.so  # an older one of another name would be found first
	TRANSDUCE_KERNELS=$(KERNELS) $(PIP) --no-deps -e .
	touch $@

$(VENV)/.libraries: $(VENV)/.made pyproject.toml constraints.txt
	$(NEEDED) demo dev > $@.txt
	$(PIP) -c constraints.txt -r $@.txt $(MORE)
	touch $@

# For continuous integration, while kernels are compiled: bytecode that each process of the tests would else make for itself.
$(VENV)/.collected: $(VENV)/.libraries
	PYTHONPATH=src $(BIN)/python -m pytest --collect-only -q > $@.log || { cat $@.log; exit 1; }
	touch $@

demo: install
	$(BIN)/transduce demo

test: install
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/md-dead-link-check

bench: install
	$(BIN)/python -m benchmarks

# The site in build/site: open index.html, or python -m http.server -d build/site, which its search needs.
docs: install $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

$(VENV)/.docs: $(VENV)/.libraries
	$(NEEDED) docs > $@.txt
	$(PIP) -c constraints.txt -r $@.txt
	touch $@
