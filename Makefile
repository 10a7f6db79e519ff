# Six targets; each sets up what it needs. PYTHON may name another interpreter (3.11 to 3.13).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The kernels of this processor; all: those of every kind of processor, as a wheel has them.
KERNELS ?= own
# Libraries are compiled to bytecode as they are first imported (--no-compile below), which this variable would forbid for good.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install demo test check bench docs

install: $(VENV)/.installed

# The stamp makes every other target cheap once the environment stands.
$(VENV)/.installed: pyproject.toml constraints.txt setup.py $(wildcard src/transduce/kernels/*.cpp src/transduce/kernels/*.h)
	$(PYTHON) -m venv $(VENV)
	rm -f src/transduce/kernels/*.so  # an older one of another name would be found first
	TRANSDUCE_KERNELS=$(KERNELS) $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -e '.[demo,dev]'
	touch $@

demo: install
	$(BIN)/transduce demo

test: install
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/md-dead-link-check

bench: install
	$(BIN)/python -m benchmarks

# The site in build/site: open index.html, or python -m http.server -d build/site, which its search needs. The extra is installed by itself, as the package would be built anew with it.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

$(VENV)/.docs: $(VENV)/.installed
	$(BIN)/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['docs'], sep='\n')" > $@.txt
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -r $@.txt
	touch $@
