"""What the tests of tables train on."""

import pytest


@pytest.fixture(scope="module")
def short_text(tiny_run_file, tmp_path_factory):
    """A folder of train and dev, the latter of three lines: translating dev takes longest."""
    folder = tmp_path_factory.mktemp("text")
    for path in tiny_run_file.parent.glob("*.[st]*"):
        if path.stem in ("train", "dev"):
            lines = path.read_text().splitlines(keepends=True)
            (folder / path.name).write_text("".join(lines[: 3 if path.stem == "dev" else None]))
    return folder
