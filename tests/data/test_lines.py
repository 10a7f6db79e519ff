import gzip
from itertools import islice

import pyarrow as pa
import pytest

from transduce.config import BadInputError
from transduce.data import bare, is_text, open_binary, read_lines, read_pairs

NOT_LINE_ENDS = ["\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"]


def write(path, content):
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def complaint(lines):
    with pytest.raises(BadInputError) as caught:
        list(lines)
    return str(caught.value)


@pytest.mark.parametrize("name", ["text", "text.gz"])
class TestPlainAndGzip:
    @pytest.mark.parametrize("mark", NOT_LINE_ENDS)
    def test_only_a_line_feed_ends_a_line(self, tmp_path, name, mark):
        path = write(tmp_path / name, f"one{mark}two\n{mark}three{mark}\n".encode())
        assert list(read_lines(path)) == [f"one{mark}two", f"{mark}three{mark}"]

    def test_a_carriage_return_within_a_line_is_text(self, tmp_path, name):
        path = write(tmp_path / name, b"one\rtwo\n\rthree\r four\n")
        assert list(read_lines(path)) == ["one\rtwo", "\rthree\r four"]

    @pytest.mark.parametrize(
        ("content", "lines", "told"),
        [
            (b"one\r\ntwo\r\n", ["one", "two"], ["line 1: a carriage return"]),
            (b"one\ntwo\r\nthree\nfour\r", ["one", "two", "three", "four"], ["line 2: a carriage return"]),
            (b"\r\none\r\r\n", ["", "one"], ["line 1: a carriage return"]),
            (b"\xef\xbb\xbfone\ntwo\n", ["one", "two"], ["line 1: a byte-order mark"]),
            (b"\xef\xbb\xbf", [], []),
            (b"\xef\xbb\xbf\r\n", [""], ["line 1: a byte-order mark", "line 1: a carriage return"]),
            # Two files from Windows, one behind the other.
            (
                b"\xef\xbb\xbfone\r\n\xef\xbb\xbftwo\r\n",
                ["one", "two"],
                ["line 1: a byte-order mark", "line 1: a carriage return"],
            ),
            ("mid\ufeffdle\n".encode(), ["mid\ufeffdle"], []),
        ],
    )
    def test_what_windows_writes_beside_the_text(self, tmp_path, name, content, lines, told, caplog):
        path = write(tmp_path / name, content)
        for _ in range(2):  # however often a file is read, it is said once
            assert list(read_lines(path)) == lines
        assert len(caplog.messages) == len(told)
        for message, beginning in zip(caplog.messages, told, strict=True):
            assert message.startswith(f"{path} {beginning}")

    @pytest.mark.parametrize("encoding", ["UTF-16", "UTF-32"])
    @pytest.mark.parametrize("order", ["-LE", "-BE"])
    @pytest.mark.parametrize("keep_invalid", [False, True])
    def test_other_encodings_are_named(self, tmp_path, name, encoding, order, keep_invalid):
        path = write(tmp_path / name, "\ufeffone\n".encode(encoding + order))
        message = complaint(read_lines(path, keep_invalid=keep_invalid))
        assert message.startswith(f"{path} line 1: begins with the byte-order mark of {encoding}: convert it to UTF-8")

    @pytest.mark.parametrize("encoding", ["UTF-16LE", "UTF-16BE", "UTF-32LE", "UTF-32BE"])
    @pytest.mark.parametrize("text", ["one\n", "Ein schlafender Hund, ein B\u00e4r\nzwei\n"])
    def test_other_encodings_without_a_mark_are_known_by_their_nuls(self, tmp_path, name, encoding, text):
        message = complaint(read_lines(write(tmp_path / name, text.encode(encoding))))
        assert message.startswith(f"{tmp_path / name} line 1: has NULs as {encoding} has them, and no byte-order mark")
        assert message.endswith(f"(iconv -f {encoding} -t UTF-8)")

    def test_the_first_nul_in_a_text_is_said(self, tmp_path, name, caplog):
        path = write(tmp_path / name, b"one\ntw\0o\n\0\n")
        assert list(read_lines(path)) == ["one", "tw\0o", "\0"]
        [said] = caplog.messages
        assert said.startswith(f"{path} line 2: has a NUL, which stays: ")

    @pytest.mark.parametrize(
        ("content", "lines"),
        [
            (b"", []),
            (b"\n", [""]),
            (b"\n\n", ["", ""]),
            (b"one", ["one"]),
            (b"one\n", ["one"]),
            (b"one\n\n two \n", ["one", "", " two "]),
            ("schön\nnul\x00🙂".encode(), ["schön", "nul\x00🙂"]),
        ],
    )
    def test_lines(self, tmp_path, name, content, lines):
        assert list(read_lines(write(tmp_path / name, content))) == lines

    def test_invalid_utf8_names_file_line_and_column(self, tmp_path, name):
        path = write(tmp_path / name, b"fine\nab\xff\nfine\n")
        assert complaint(read_lines(path)).startswith(f"{path} line 2: invalid UTF-8 (byte 0xff at column 3)")

    def test_lines_before_the_invalid_one_are_read(self, tmp_path, name):
        path = write(tmp_path / name, b"one\ntwo\n\xc3")
        assert list(islice(read_lines(path), 2)) == ["one", "two"]

    def test_invalid_utf8_that_is_let_through_is_no_text_and_its_line_alone(self, tmp_path, name):
        # A stray byte, a character cut in two, an overlong one, half a surrogate pair; and one that is all right.
        stray = [b"ab\xff", b"\xe2\x82", b"\xc0\xaf", b"\xed\xa0\x80", "€".encode()]
        path = write(tmp_path / name, b"fine\n" + b"\n".join(stray) + b"\nfine\n")
        lines = list(read_lines(path, keep_invalid=True))
        assert [is_text(line) for line in lines] == [True, False, False, False, False, True, True]
        assert [line.encode(errors="surrogateescape") for line in lines[1:-1]] == stray

    def test_missing(self, tmp_path, name):
        assert complaint(read_lines(tmp_path / name)) == f"{tmp_path / name}: no such file"

    def test_a_directory(self, tmp_path, name):
        (tmp_path / name).mkdir()
        assert complaint(read_lines(tmp_path / name)).startswith(f"{tmp_path / name}: is a directory")


class TestDamagedGzip:
    def test_cut_short(self, tmp_path):
        whole = gzip.compress(b"".join(b"line %d\n" % number for number in range(1009)))
        path = tmp_path / "text.gz"
        for length in range(1, len(whole), 97):
            path.write_bytes(whole[:length])
            assert complaint(read_lines(path)).startswith(f"{path}: damaged gzip file after line ")

    def test_overwritten_in_the_middle(self, tmp_path):
        damaged = bytearray(gzip.compress(b"".join(b"line %d\n" % number for number in range(1009))))
        middle = len(damaged) // 2
        damaged[middle : middle + 17] = bytes(17)
        path = tmp_path / "text.gz"
        path.write_bytes(damaged)
        assert complaint(read_lines(path)).startswith(f"{path}: damaged gzip file after line ")

    @pytest.mark.parametrize(("suffix", "kind"), [(".gz", "gzip"), (".zst", "zstd")])
    def test_plain_text_with_the_wrong_name(self, tmp_path, suffix, kind):
        path = tmp_path / f"text{suffix}"
        path.write_bytes(b"one\n")
        message = complaint(read_lines(path))
        assert message.startswith(f"{path}: damaged {kind} file after line 0")
        assert message.endswith("where it is plain text, rename it: what a name ends in says how it is compressed")


@pytest.mark.parametrize(("kind", "suffix"), [("gzip", ".gz"), ("zstd", ".zst")])
def test_a_compressed_file_with_the_wrong_name(tmp_path, kind, suffix):
    with pa.output_stream(str(tmp_path / f"text{suffix}"), compression=kind) as stream:
        stream.write(b"one\n")
    path = (tmp_path / f"text{suffix}").rename(tmp_path / "text")
    assert complaint(read_lines(path)).startswith(f"{path} line 1: is compressed by {kind}: decompress it first (")


def test_carriage_returns_in_the_place_of_line_feeds_are_told(tmp_path, caplog):
    path = write(tmp_path / "text", b"one\rtwo\rthree\rfour")
    assert list(read_lines(path)) == ["one\rtwo\rthree\rfour"]
    assert caplog.messages == [
        f"{path} line 1: has 3 carriage returns within. If they are meant to end lines, convert the file "
        "(tr '\\r' '\\n'): only a line feed ends a line"
    ]


def test_open_binary_gives_the_bytes(tmp_path):
    with open_binary(write(tmp_path / "text.gz", b"one\r\n\xff")) as stream:
        assert stream.read() == b"one\r\n\xff"


class TestPairs:
    def test_line_belongs_to_line(self, tmp_path):
        source, target = write(tmp_path / "a.gz", b"one\n\nthree"), write(tmp_path / "b", b"eins\nzwei\ndrei\n")
        assert list(read_pairs(source, target)) == [("one", "eins"), ("", "zwei"), ("three", "drei")]

    @pytest.mark.parametrize(("left", "right"), [(3, 1009), (1009, 3), (0, 1), (2, 0), (7, 8)])
    def test_different_counts_name_both(self, tmp_path, left, right):
        source, target = write(tmp_path / "a", b"x\n" * left), write(tmp_path / "b", b"y\n" * right)
        assert complaint(read_pairs(source, target)).startswith(
            f"{source} has {left:,} lines but {target} has {right:,}: "
        )

    def test_invalid_utf8_of_either_side_is_refused_or_let_through(self, tmp_path):
        good, bad = write(tmp_path / "good", b"a\nb\n"), write(tmp_path / "bad", b"a\n\xff\n")
        for sides in ((good, bad), (bad, good)):
            assert complaint(read_pairs(*sides)).startswith(f"{bad} line 2: invalid UTF-8")
            pairs = list(read_pairs(*sides, keep_invalid=True))
            assert [all(map(is_text, pair)) for pair in pairs] == [True, False]

    def test_empty_files_are_equally_long(self, tmp_path):
        assert list(read_pairs(write(tmp_path / "a", b""), write(tmp_path / "b", b""))) == []

    def test_a_missing_side_is_named(self, tmp_path):
        source = write(tmp_path / "a", b"one\n")
        assert complaint(read_pairs(source, tmp_path / "b")) == f"{tmp_path / 'b'}: no such file"


def test_a_file_that_has_changed_is_spoken_of_anew(tmp_path, caplog):
    path = write(tmp_path / "text", b"one\r\n")
    list(read_lines(path))
    write(path, b"one\r\ntwo\r\n")
    list(read_lines(path))
    assert len(caplog.messages) == 2


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("A dog runs.\r\n", "A dog runs."),
        ("\ufeffA dog runs.\n\n", "A dog runs."),
        ("\r\n", ""),
        ("one\r\ntwo", "one\r\ntwo"),
        (" A dog runs. ", " A dog runs. "),
        ("A dog runs.\u2028", "A dog runs.\u2028"),
    ],
)
def test_the_one_rule_for_all_text(text, found):
    assert bare(text) == found
