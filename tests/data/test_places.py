import gzip

import pyarrow as pa
import pytest

from transduce.config import BadInputError
from transduce.data import places


@pytest.fixture
def folder(tmp_path):
    for name in (
        "b.txt",
        "a.txt.gz",
        "deep/c.txt",
        "deep/er/d.jsonl",
        "_note.json",
        ".b.txt.1.unfinished",
        "deep/_x/e.txt",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"seven\n\n")
    return tmp_path


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("", ["a.txt.gz", "b.txt", "deep/c.txt", "deep/er/d.jsonl"]),
        ("/", ["a.txt.gz", "b.txt", "deep/c.txt", "deep/er/d.jsonl"]),
        ("/b.txt", ["b.txt"]),
        ("/*.txt", ["b.txt"]),
        ("/?.txt", ["b.txt"]),
        ("/[ab].txt*", ["a.txt.gz", "b.txt"]),
        ("/[!a].*", ["b.txt"]),
        ("/[[&&b].txt", ["b.txt"]),
        ("/**/*.txt", ["b.txt", "deep/c.txt"]),
        ("/*/*.txt", ["deep/c.txt"]),
        ("/deep/*.txt", ["c.txt"]),
        ("/**", ["a.txt.gz", "b.txt", "deep/c.txt", "deep/er/d.jsonl"]),
    ],
)
def test_what_a_pattern_means(folder, pattern, names):
    found = places.find_files(f"{folder}{pattern}")
    assert [file.name for file in found] == names
    assert all(places.open_raw(file.place).read() == b"seven\n\n" and file.size == 7 for file in found)


def test_an_address_is_a_place_as_well(folder):
    found = places.find_files(f"file://{folder}/*.txt")
    assert [(file.place, file.name) for file in found] == [(f"file://{folder}/b.txt", "b.txt")]
    with places.whole_file(f"file://{folder}/new/f.txt") as stream:
        stream.write(b"eleven\n")
    assert (folder / "new" / "f.txt").read_bytes() == b"eleven\n"
    assert places.join("s3://bucket/in?region=eu-1", "f.txt") == "s3://bucket/in/f.txt?region=eu-1"


def test_a_pattern_of_the_working_directory(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert [file.place for file in places.find_files("*.txt")] == ["b.txt"]
    assert [file.place for file in places.find_files("deep")] == ["deep/c.txt", "deep/er/d.jsonl"]


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("/none.txt", "none.txt: no such file or folder"),
        ("/*.tsv", "*.tsv: no file matches"),
        ("/none/*.txt", "*.txt: no file matches"),
        ("/[!].txt", "no file matches"),
        ("/[z-a].txt", r"no pattern of names \(bad character range z-a"),
        ("/deep/_x", "no file matches"),
    ],
)
def test_what_is_not_there_is_said(folder, pattern, said):
    if pattern == "/deep/_x":
        (folder / "deep" / "_x" / "e.txt").unlink()
    with pytest.raises(BadInputError, match=said.replace("*", r"\*")):
        places.find_files(f"{folder}{pattern}")


def test_an_unknown_store_is_said():
    with pytest.raises(BadInputError, match="nowhere://x/y: no place that pyarrow's file systems know"):
        places.find_files("nowhere://x/y")


def test_a_store_that_does_not_answer_is_said(monkeypatch):
    class Silent:
        def get_file_info(self, _):
            raise OSError("AWS Error NETWORK_CONNECTION")

    monkeypatch.setattr(places, "_locate", lambda place: (Silent(), place))
    with pytest.raises(BadInputError, match="s3://b/a: cannot be reached: AWS Error NETWORK_CONNECTION: see to"):
        places.find_files("s3://b/a")


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_files_are_whole_or_not_there_and_the_same_each_time(tmp_path, suffix):
    place = str(tmp_path / "sub" / f"f.txt{suffix}")
    written = []
    for _ in range(2):
        with places.whole_file(place) as stream:
            stream.write("fünf\n".encode() * 13)
            assert len(list((tmp_path / "sub").glob(".f.txt*.unfinished"))) == 1
        written.append(places.open_raw(place).read())
    assert written[0] == written[1]
    with places.open_text(place) as stream:
        assert stream.read() == "fünf\n".encode() * 13
    if suffix == ".gz":
        assert gzip.decompress(written[0]) == "fünf\n".encode() * 13
    with pytest.raises(RuntimeError), places.whole_file(place) as stream:
        stream.write(b"half")
        raise RuntimeError
    assert list(places.list_names(str(tmp_path))) == [f"sub/f.txt{suffix}"]
    assert places.open_raw(place).read() == written[0]
    places.delete(place)
    assert places.list_names(str(tmp_path)) == {}


def test_a_folder_that_is_a_file(tmp_path):
    (tmp_path / "f").write_text("x")
    with pytest.raises(BadInputError, match="is a file, a folder belongs here"):
        places.list_names(str(tmp_path / "f"))
    with pytest.raises(BadInputError, match="cannot be written"), places.whole_file(str(tmp_path / "f" / "g")):
        pass
    assert places.list_names(str(tmp_path / "none")) == {}


def test_damaged_files_are_read_as_such(tmp_path):
    (tmp_path / "f.zst").write_bytes(b"no zstd at all")
    with places.open_text(str(tmp_path / "f.zst")) as stream, pytest.raises((OSError, pa.ArrowException)):
        stream.read()
