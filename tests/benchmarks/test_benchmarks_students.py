"""That models beside each other are measured on the same lines."""

from benchmarks import students

pytest_plugins = ["tiny_run"]


def test_each_model_has_a_row_for_each_beam(trained_run, tmp_path, monkeypatch, capsys):
    (tmp_path / "in").write_text("bamo dulu kari luso gozu\nwemo kari luso bamo\n")
    (tmp_path / "out").write_text("ti sor mup hax ved\nyob mup hax ti\n")
    line = ["", f"{tmp_path}/in", f"{tmp_path}/out", f"one={trained_run}", f"other={trained_run}", "--rounds", "1"]
    monkeypatch.setattr("sys.argv", [*line, "--precision", "float32"])
    students.main()
    said = capsys.readouterr().out.splitlines()
    rows = [[cell.strip() for cell in text.split("|")[1:-1]] for text in said if text.startswith("|")][2:]
    assert [row[:3] for row in rows] == [
        [name, beam, "100.00"] for beam in ("4", "1") for name in ("one", "other")
    ]  # of what the model has learned by heart
    assert all(float(cell.replace(",", "")) > 0 for row in rows for cell in row[3:])
