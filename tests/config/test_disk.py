import pytest

from transduce.config.disk import replace_directory, write_whole


def test_replace_directory_moves_the_finished_one(tmp_path):
    for name in ("new", "old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_text(name)
    replace_directory(tmp_path / "new", tmp_path / "old")
    assert [file.name for file in tmp_path.iterdir()] == ["old"]
    assert [file.name for file in (tmp_path / "old").iterdir()] == ["new"]


def test_a_file_is_replaced_when_its_successor_is_whole(tmp_path, monkeypatch):
    path = tmp_path / "figures.json"
    write_whole(path, "first")

    def lose_power(_):
        raise OSError("lost")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="lost"):
        patch.setattr("os.fsync", lose_power)
        write_whole(path, "second")
    assert path.read_text() == "first"
    write_whole(path, "second")
    assert [file.name for file in tmp_path.iterdir()] == ["figures.json"]
    assert path.read_text() == "second"
