import pytest

from transduce.config import BadInputError, Corpus
from transduce.workflows.corpus_folder import find_corpora


def make(folder, *names):
    for name in names:
        (folder / name).write_text("")
    return folder


@pytest.mark.parametrize(
    ("names", "train", "dev"),
    [
        (["train.de.gz", "train.en.gz", "val.de.gz", "val.en.gz"], ("train.en.gz", "train.de.gz"), "val.en.gz"),
        (["train.en", "train.cs", "valid.cs.zst", "valid.en"], ("train.en", "train.cs"), "valid.en"),
        (["train.trg", "train.src", "dev.trg", "dev.src"], ("train.src", "train.trg"), "dev.src"),
        # What has no dev, is no training text or stands deeper is no part of it.
        (
            ["train.en", "train.fr", "train.de", "dev.en", "dev.fr", "test.en", "train.raw.en.gz", "README"],
            ("train.en", "train.fr"),
            "dev.en",
        ),
    ],
)
def test_files_are_found_by_their_names(tmp_path, names, train, dev):
    data = find_corpora(make(tmp_path, *names))
    assert data.root == str(tmp_path)
    assert data.train == (Corpus(source=train[0], target=train[1]),)
    assert data.dev.source == dev


def test_languages_may_be_named(tmp_path):
    make(tmp_path, *(f"{part}.{language}" for part in ("train", "dev") for language in ("en", "de", "fr")))

    def find(source, target):
        data = find_corpora(tmp_path, source, target)
        return data.train[0].source, data.dev.target

    assert find("de", "en") == ("train.de", "dev.en")
    assert find("de", "fr") == ("train.de", "dev.fr")
    assert find(None, "fr") == ("train.en", "dev.fr")


def test_one_language_named_of_two_is_enough(tmp_path):
    make(tmp_path, *(f"{part}.{language}" for part in ("train", "dev") for language in ("en", "de")))
    assert find_corpora(tmp_path, "de").train[0].target == "train.en"
    assert find_corpora(tmp_path, None, "en").train[0].source == "train.de"


TWO = ["train.cs", "train.de", "dev.cs", "dev.de"]


@pytest.mark.parametrize(
    ("names", "source", "target", "message"),
    [
        ([], None, None, "has no such file where two files train.LANGUAGE"),
        (["train.en"], None, None, "has only train.en where two files train.LANGUAGE"),
        (["train.en", "train.de"], None, None, "has no such file where two files dev.LANGUAGE or val.LANGUAGE"),
        (["train.en", "train.de", "dev.cs", "dev.fr"], None, None, "in no language"),
        (TWO, None, None, "in cs, de: say which two with --source-language"),
        (TWO, "fr", None, "--source-language fr: .* in cs, de"),
        (TWO, None, "fr", "--target-language fr: .* in cs, de"),
        (TWO, "de", "de", "is --target-language too"),
        ([*TWO, "train.en", "dev.en"], None, None, "in cs, de, en: say which two"),
        ([*TWO, "val.de"], None, None, "has dev.de and val.de: leave one"),
        ([*TWO, "train.de.gz"], None, None, "has train.de and train.de.gz: leave one"),
    ],
)
def test_what_is_missing_or_not_clear_is_said(tmp_path, names, source, target, message):
    with pytest.raises(BadInputError, match=message):
        find_corpora(make(tmp_path, *names), source, target)


def test_no_folder(tmp_path):
    with pytest.raises(BadInputError, match="no such folder"):
        find_corpora(tmp_path / "missing")
    with pytest.raises(BadInputError, match="is a file, a folder belongs here"):
        find_corpora(make(tmp_path, "train.en") / "train.en")
