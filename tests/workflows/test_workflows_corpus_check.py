"""Corpora spoiled by hand, and what is said of them."""

import itertools

import pytest

from transduce.config import read_run
from transduce.workflows.corpus_check import examine_corpora

RUN = """
[data]
train = { source = "a", target = "b" }
dev = { source = "c", target = "d" }
test = { source = "e", target = "f" }
max_length = 30
[tokenizer]
vocab_size = 300
[train]
max_steps = 200
"""
WORDS = ("red", "blue", "green", "dog", "cat", "cow", "runs", "sits", "eats", "now", "here")
# 11 x 10 x 9 x 8 sentences of 4 different words are 7,920: no two alike, and 31,680 words a side.
SENTENCES = [" ".join(words) for words in itertools.permutations(WORDS, 4)]


@pytest.fixture
def write(tmp_path):
    """Writes the corpora, changed by what is given, and returns what is found."""

    def examine(prepared=None, translated="bdf", tag="", kind="bpe", **changes):
        whole = dict.fromkeys("ab", SENTENCES) | {name: [f"the {WORDS[0]}"] for name in "cd"}
        whole |= {name: [f"a {WORDS[1]}"] for name in "ef"} | changes
        for name, lines in whole.items():
            # Targets are written backwards: another language, of as many words and of the same characters.
            text = "".join(f"{line[::-1] if name in translated else line}\n" for line in lines)
            (tmp_path / name).write_text(text, encoding="utf-8")
        run = RUN.replace("[tokenizer]", f'[tokenizer]\nkind = "{kind}"')
        (tmp_path / "run.toml").write_text(run.replace(" }", f', tag = "{tag}" }}') if tag else run)
        return list(examine_corpora(read_run(tmp_path / "run.toml"), prepared))

    return examine


def said(findings, kind):
    return [finding.text for finding in findings if finding.kind == kind]


def test_nothing_is_said_against_corpora_that_are_well(write):
    findings = write()
    assert {finding.kind for finding in findings} == {"ok"}
    shown = "\n".join(said(findings, "ok"))
    assert "a: 7,920 pairs can be read\n" in shown
    assert "every character of dev occurs in training" in shown
    assert "tokenizer.vocab_size = 300 for 63,360 words of training: 211 for each symbol" in shown


def test_duplicates_and_pairs_with_a_sentence_of_dev(write):
    (line,) = said(write(a=SENTENCES[:80] + SENTENCES[:17], b=SENTENCES[:80] + SENTENCES[:17]), "warning")[:1]
    assert '97 pairs can be read; 17 occurred before, and stay (data.duplicates = "drop" leaves them out)' in line
    (line,) = said(write(c=[*SENTENCES[:101], "x"], d=[*SENTENCES[:101], "x"]), "warning")[:1]
    assert '101 have a sentence of dev, and stay (data.dev_overlap = "drop" leaves them out)' in line


def test_pairs_with_a_sentence_of_test(write):
    (line,) = said(write(e=[SENTENCES[5].upper(), "x"], f=["y", SENTENCES[7]]), "warning")
    assert "2 pairs have a sentence of data.test" in line


def test_lines_that_are_no_pairs(write):
    (line,) = said(write(a=SENTENCES[:50] + [" "] * 7, b=SENTENCES[:57]), "warning")[:1]
    assert "57 pairs can be read; 7 of them are left out: empty side 7" in line


def test_sides_that_do_not_belong_together(write):
    """Of 7,920 pairs, 80 are more than one in a hundred."""
    changed = ["now " * 13] * 80
    (line,) = said(write(a=changed + SENTENCES[80:], b=["now"] * 80 + SENTENCES[80:]), "warning")
    assert "in 80 pairs one side is over 4 times as long as the other: the files may be out of step" in line


def test_trees_may_be_of_any_length(tmp_path):
    """Their symbols are no translation, and as many for a word as the tree is deep."""
    tree = "(S (NP (DT a) (NN dog)) (VP (VP (VBZ is)) (ADJP (ADJP (JJ red)))) (. .))\n"
    (tmp_path / "trees").write_text(tree * 3, encoding="utf-8")
    (tmp_path / "run.toml").write_text('data = { train = { trees = "trees" }, dev = { trees = "trees" } }', "utf-8")
    assert not any("out of step" in finding.text for finding in examine_corpora(read_run(tmp_path / "run.toml"), None))


def test_sentences_beyond_the_limit(write):
    changed = [" ".join(WORDS * 3)] * 3 + SENTENCES
    assert any(
        "3 pairs have a side beyond data.max_length = 30" in text for text in said(write(a=changed, b=changed), "ok")
    )


def test_a_corpus_of_which_nothing_is_left(write, tmp_path):
    """A training refuses it; of one that is read in part, or by a tokenizer of elsewhere, nobody knows."""
    blank, too_long = [" "] * 2, [" ".join(WORDS * 3)] * 3
    (problem,) = said(write(a=blank + too_long, b=blank + too_long), "problem")
    assert problem.endswith(
        "a: none of its 5 pairs is left to learn from: empty side 2, a side beyond data.max_length = 30 3"
    )
    (problem,) = said(write(a=too_long, b=too_long), "problem")
    assert problem.endswith("none of its 3 pairs is left to learn from: a side beyond data.max_length = 30 3")
    settings = ["tokenizer.kind=sentencepiece", "tokenizer.path=c", "tokenizer.vocab_size=8000"]
    elsewhere = read_run(tmp_path / "run.toml", settings)
    assert said(list(examine_corpora(elsewhere, None)), "problem") == []


def test_a_dev_of_blank_lines_alone(write):
    (problem,) = said(write(c=[" "] * 7, d=[""] * 7), "problem")
    assert problem.endswith("c: none of its 7 pairs is left to measure: empty side 7")
    findings = write(e=[" "] * 7, f=[""] * 7)
    assert said(findings, "problem") == []
    assert any("7 of them are left out: empty side 7" in text for text in said(findings, "warning"))


def test_characters_that_training_does_not_have(write, monkeypatch):
    (line,) = said(write(c=["the \u0436\u0436 \u0444"], d=["the red"]), "warning")
    # 8 of the source's characters and 7 of the target's, of which three are new.
    assert line == "dev has 2 characters (20.00% of its text) not in training: \u0436 \u0444"
    (line,) = said(write(c=["the \u0436"], d=["the red"]), "warning")
    assert line.startswith("dev has 1 character (")
    monkeypatch.setattr("transduce.workflows.corpus_check._LINES", 100)
    (line,) = said(write(c=["the \u0436"], d=["the red"]), "warning")
    assert line.endswith("not in the 100 pairs of training that were read: \u0436")


def test_tags_are_in_no_text(write):
    assert {finding.kind for finding in write(tag="<de>")} == {"ok"}
    (line,) = said(write(tag="<de>", e=SENTENCES[:53], f=SENTENCES[:53]), "warning")[:1]
    assert "53 pairs have a sentence of data.test" in line


def test_a_vocabulary_that_is_too_large(write):
    """400 pairs of 4 + 4 words are 3,200, which is not 20 for each of 300 symbols."""
    (line,) = said(write(a=SENTENCES[:400], b=SENTENCES[:400]), "warning")
    text = "tokenizer.vocab_size = 300 for 3,200 words of training: many symbols will hardly be seen: "
    assert line == f"{text}that is little text to learn a language from"


@pytest.mark.parametrize(
    ("translated", "swapped"), [("bdf", []), ("bcf", ["data.dev"]), ("bce", ["data.dev", "data.test"])]
)
def test_dev_or_test_in_the_other_direction(write, translated, swapped):
    """Dev and test share their words with training, and no sentence."""
    held_out = dict.fromkeys("cd", SENTENCES[-9:]) | dict.fromkeys("ef", SENTENCES[-19:-10])
    trained = dict.fromkeys("ab", SENTENCES[:-19])
    found = [text for text in said(write(translated=translated, **trained, **held_out), "warning") if "swapped" in text]
    assert [text.split(":")[0] for text in found] == swapped
    for text in found:
        assert "100% of the words of its source occur in the targets of data.train, 0% in the sources" in text


def test_words_that_the_vocabulary_will_not_have(write):
    """Dev is "the red", and training has no "the"."""
    (line,) = [text for text in said(write(kind="words"), "warning") if "<unk>" in text]
    assert line.startswith("dev: 50.0% of source and 50.0% of target tokens are <unk>, words that have no symbol: ")
    (line,) = [text for text in said(write(kind="words", c=SENTENCES[:9], d=SENTENCES[:9]), "ok") if "<unk>" in text]
    assert line.startswith("dev: 0.0% of source and 0.0% of target tokens are <unk>")
    assert not any("<unk>" in finding.text for finding in write())


def test_a_problem_is_all_there_is_to_say_of_a_corpus(write):
    findings = write(c=["one", "two"])
    (problem,) = said(findings, "problem")
    assert "has 2 lines but" in problem
    assert not any("not in training" in finding.text or "character of dev" in finding.text for finding in findings)


def test_pairs_that_are_not_translated(write):
    (line,) = said(write(translated="df"), "warning")
    assert "in 7,920 pairs source and target are the same: what is not translated teaches a model to copy" in line


def test_one_file_for_both_sides(write, tmp_path):
    write()
    path = tmp_path / "same.toml"
    path.write_text(RUN.replace('target = "b"', 'target = "a"').replace('source = "c"', 'source = "d"'))
    first, second, third = said(list(examine_corpora(read_run(path), None)), "warning")
    assert first.startswith(f"data.train: {tmp_path / 'a'} is both source and target, so that the task is to copy")
    assert second.startswith(f"data.dev: {tmp_path / 'd'} is both source and target")
    assert "in 7,920 pairs source and target are the same" in third
