import sys

import pytest

from benchmarks import freed_memory


@pytest.mark.slow  # three trainings, each in a process of its own
def test_processes_of_each_kind_are_timed(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(freed_memory, "RESULT", tmp_path / "freed_memory.md")
    arguments = ["--sizes", "tiny", "--processes", "1", "--steps", "1", "--warm-up", "0"]
    monkeypatch.setattr(sys, "argv", ["freed_memory", *arguments])
    freed_memory.main()
    rows = (tmp_path / "freed_memory.md").read_text().splitlines()[-3:]
    assert [row.split(" | ")[1] for row in rows] == ["glibc's own way", "kept", "kept, and fillers (as shipped)"]
    assert rows[0] in capsys.readouterr().out
