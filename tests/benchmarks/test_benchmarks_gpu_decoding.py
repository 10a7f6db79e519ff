"""That decoding on one device is measured, here on a processor: only the device is another there."""

import json

import pytest

from benchmarks import gpu_decoding
from benchmarks.decoders.contest import Speed
from benchmarks.peers.sizes import SIZES

pytest_plugins = ["tiny_run"]

SMALL = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 20, "d_ff": 28, "heads": 4}


def test_a_quick_run_with_a_trained_model(trained_run, tmp_path, monkeypatch):
    for name, lines in (("in", ["bamo dulu", "wemo kari luso"]), ("out", ["ti sor", "yob mup hax"])):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    monkeypatch.setitem(SIZES, "tiny", SMALL)
    test = f"made up={trained_run},{tmp_path}/in,{tmp_path}/out"
    options = ("--quick", "--device", "cpu", "--beams", "2", "--out", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["", test, *options])
    gpu_decoding.main()
    rows = json.loads((tmp_path / "gpu_decoding.json").read_text())["rows"]
    page = (tmp_path / "gpu_decoding.md").read_text().splitlines()
    cells = [
        [cell.strip().replace(",", "") for cell in line.split("|")[1:-1]] for line in page if line.startswith("|")
    ][2:]
    assert [row[0] for row in cells] == [row["name"].replace(",", "") for row in rows]
    assert {row[0] for row in cells} == {"tiny random weights", "made up"}
    for row, shown in zip(rows, cells, strict=True):
        speed = row["speed"]
        assert shown[2].startswith(speed["setting"]["engine"]["family"])
        assert float(shown[4]) == pytest.approx(speed["sentences"][0], abs=0.06)
        assert all(float(cell) > 0 for cell in shown[5:9])
        # What random weights write is not compared with anything.
        assert (shown[10] == "") == (row["name"] != "made up")


def test_tokens_a_second():
    """30 tokens of 6 sentences, at 4 sentences a second."""
    assert Speed(None, [2.0, 4.0, 9.0], 0.0, 30).tokens_a_second(6) == 20
