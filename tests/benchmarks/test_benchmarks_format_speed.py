import pytest

from benchmarks import format_speed
from benchmarks.format_speed import FORMATS, widest
from transduce.kernels.precision import NATIVE


@pytest.mark.parametrize(
    ("cases", "chosen"),
    [
        ([(10, 5, 3)], "int8"),
        ([(10, 5, 4.5)], "bfloat16"),
        ([(10, 9, 7)], "int8"),
        ([(10, 20, 9)], "float32"),
        ([(10, 14, 10.9), (10, 7, 5.5)], "int8"),  # a little slower in a batch, much faster for one sentence
        ([(10, 14, 11.5), (10, 7, 5.5)], "float32"),
    ],
)
def test_the_widest_that_no_narrower_one_beats_by_far(cases, chosen):
    assert widest([dict(zip(FORMATS, seconds, strict=True)) for seconds in cases]) == chosen


def test_every_kind_of_kernels_is_in_the_table():
    assert list(format_speed.LIBRARIES) == list(NATIVE)


def test_the_page(monkeypatch, capsys):
    """All of it, with a clock of our own: int8 at a third of float32's time, whatever multiplies."""
    takes = {"float32": 3e-4, "bfloat16": 2e-4, "int8": 1e-4}
    monkeypatch.setattr(format_speed, "fastest", lambda products, _: {each: takes[each] for each in products})
    monkeypatch.setattr("sys.argv", ["format_speed", "--only-print"])
    monkeypatch.setattr(format_speed, "able", lambda: iter(["AVX2", "AVX512"]))
    # Nothing is multiplied: a library whose instructions this processor lacks must not even be asked for its version.
    monkeypatch.setattr(format_speed.native, "open_library", lambda _: None)
    monkeypatch.setitem(format_speed.NATIVE, "AVX2", "float32")
    with pytest.raises(SystemExit, match="the table says otherwise for C\\+\\+ kernels, AVX2, 64 rows"):
        format_speed.main()
    shown = capsys.readouterr().out
    assert "| C++ kernels, AVX512, 64 rows | 300 | 200 | 100 | int8 | int8 |" in shown
    assert "| PyTorch's operations, and training | 300 | 200 |  | bfloat16 | " in shown
