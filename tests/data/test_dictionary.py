import gzip

import pytest

from transduce.config import BadInputError
from transduce.data import read_dictionary


def test_entries_by_word_the_first_of_several(tmp_path, caplog):
    text = "dog\tHund\r\n\nNew York\tNew York\ndog\tKöter\n river bank \tUfer\ncat \t die Katze\n"
    plain, packed = tmp_path / "d.tsv", tmp_path / "d.tsv.gz"
    plain.write_text(text, encoding="utf-8")
    packed.write_bytes(gzip.compress(text.encode()))
    assert read_dictionary(plain) == read_dictionary(packed) == {"dog": "Hund", "cat": "die Katze"}
    assert f"{plain} line 3: 'New York' is several words (and 1 more)" in caplog.text


@pytest.mark.parametrize("line", ["dog Hund", "dog\tHund\tKöter", "dog\t", "\tHund", "dog\t \t"])
def test_a_line_that_is_no_entry_is_named(tmp_path, line):
    path = tmp_path / "d.tsv"
    path.write_text(f"cat\tKatze\n{line}\n", encoding="utf-8")
    with pytest.raises(
        BadInputError, match=r"d\.tsv line 2: is no entry of a dictionary: write a source word, one tab"
    ):
        read_dictionary(path)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(BadInputError, match=r"nothing\.tsv: no such file"):
        read_dictionary(tmp_path / "nothing.tsv")
