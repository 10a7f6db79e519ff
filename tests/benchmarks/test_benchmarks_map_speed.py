import pytest

from benchmarks import map_speed
from benchmarks.map_speed import Shape, measure, shapes_of
from benchmarks.peers.sizes import make_config


def test_the_maps_of_a_model():
    found = {shape.name: (shape.inputs, shape.outputs) for shape in shapes_of(make_config("tiny", 8000), 64)}
    assert found["queries, keys and values"] == (128, (128, 128, 128))
    assert found["feed-forward, first"] == (128, (256,))
    assert found["feed-forward, second"] == (256, (128,))
    assert found["projection"] == (128, (8000,))


def test_rates_and_ratios_follow_from_the_seconds(monkeypatch):
    """100 x 10 by 10 x 50 are 100,000 operations; a backward pass has twice as many."""

    def alternate(calls, rounds):
        for call in calls.values():
            call()
        return {name: [2e-6 if name == "PyTorch" else 1e-6] * rounds for name in calls}

    monkeypatch.setattr(map_speed, "alternate", alternate)
    rows = list(measure(Shape("a map", 100, 10, (20, 30)), {}, 3))
    assert [row[:2] for row in rows] == [["a map: 100 x 10 to 20 + 30", kind] for kind in map_speed.KINDS]
    assert [row[-1] for row in rows] == ["0.05", "0.10", "0.05"]
    assert all(row[2:-1] in ([], ["0.10 (2.00)"], ["0.20 (2.00)"]) for row in rows)


def test_all_of_it(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["map_speed", "--quick"])
    map_speed.main()
    shown = capsys.readouterr().out.splitlines()
    assert shown[2].startswith("| model | maps | product |")
    assert len(shown) == 4 + 5 * len(map_speed.KINDS)
    assert {line.count("|") for line in shown[2:]} == {shown[2].count("|")}


def test_a_build_that_is_none(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["map_speed", "--quick", "--library", "new=nowhere.so"])
    with pytest.raises(SystemExit):
        map_speed.main()
    assert "new=nowhere.so: not NAME=FILE of a build of these kernels" in capsys.readouterr().err
