"""That decoding on one device is measured, here on a processor: only the device is another there."""

import json
from argparse import Namespace
from dataclasses import replace

import pytest

from benchmarks import gpu_decoding, made_up_model
from benchmarks.decoders.contest import Setting, Single, Speed
from benchmarks.decoders.engines import Engine
from benchmarks.peers.sizes import SIZES

pytest_plugins = ["tiny_run"]

SMALL = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 20, "d_ff": 28, "heads": 4}


@pytest.mark.slow  # a process for each engine; benchmarks.decoding goes the same way
def test_a_quick_run_with_a_trained_model(trained_run, tmp_path, monkeypatch):
    for name, lines in (("in", ["bamo dulu", "wemo kari luso"]), ("out", ["ti sor", "yob mup hax"])):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    monkeypatch.setitem(gpu_decoding.QUICK, "sizes", [])  # each model is loaded by three processes
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
    assert {row[0] for row in cells} == {"made up"}
    for row, shown in zip(rows, cells, strict=True):
        speed = row["speed"]
        assert shown[2].startswith(speed["setting"]["engine"]["family"])
        assert float(shown[4]) == pytest.approx(speed["sentences"][0], abs=0.06)
        assert all(float(cell) > 0 for cell in shown[5:9])
        assert float(shown[10]) >= 0


def test_models_with_random_weights(tmp_path, monkeypatch):
    """Any engine can run one, and what it writes is not compared with anything."""
    monkeypatch.setattr(made_up_model, "WORDS", 1_000)
    monkeypatch.setitem(SIZES, "tiny", SMALL)
    options = Namespace(sizes=["tiny"], vocabulary=400, lines=4, tests=[])
    [(task, quality)] = gpu_decoding.open_all(options, tmp_path)
    assert (task.name, len(task.sources), quality) == ("tiny, random weights", 4, False)
    assert (task.exported / "model.bin").is_file()
    speed = Speed(Setting(Engine("transduce", "float32", 1, 1, "cpu"), 0), [4.0], 12.345, 30)
    single = Single(speed.setting.engine, {"p50": 2.0, "p95": 3.0})
    row = gpu_decoding.Row(task.name, 2, speed, single, 0, 4, quality)
    assert [each.show(speed)[-1] for each in (row, replace(row, quality=True))] == ["", "12.35"]


def test_tokens_a_second():
    """30 tokens of 6 sentences, at 4 sentences a second."""
    assert Speed(None, [2.0, 4.0, 9.0], 0.0, 30).tokens_a_second(6) == 20


@pytest.mark.parametrize("fails", [False, True])
def test_an_engine_that_fails_on_the_device_is_left_out(fails, monkeypatch, capsys):
    class Process:
        def __init__(self, *_):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def translate(self, texts, beam, batch):
            assert (texts, beam, batch) == (["one"], 1, 1)
            if fails:
                raise RuntimeError("no cuBLAS")

    monkeypatch.setattr(gpu_decoding, "EngineProcess", Process)
    task = Namespace(model=None, exported=None, sources=["one", "two"])
    assert gpu_decoding.starts(Engine("CTranslate2", "float32", 1, 2, "cuda"), task) is not fails
    assert ("no cuBLAS" in capsys.readouterr().err) is fails
