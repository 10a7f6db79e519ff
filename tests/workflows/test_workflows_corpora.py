"""Several corpora, what is left out of them, and the vocabularies that are made from them."""

import json
import tracemalloc

import pytest

from transduce.config import BadInputError, read_run
from transduce.workflows.corpus_check import examine_corpora
from transduce.workflows.prepare import prepare
from transduce.workflows.run_directory import RunDirectory
from transduce.workflows.train import train_run

pytest_plugins = ["tiny_run"]

RUN = """
[[data.train]]
source = "a.src"
target = "a.trg"

[[data.train]]
pairs = "b.tsv"
weight = 2.5
tag = "<bt>"

[data.dev]
source = "dev.src"
target = "dev.trg"

[tokenizer]
vocab_size = 320
symbols = ["<formal>"]

[model]
encoder_layers = 1
decoder_layers = 1
d_model = 8
d_ff = 8
heads = 2

[train]
batch_tokens = 64
validate_every = 100
"""

READ = "tokenizer.kind=existing"


@pytest.fixture
def run_file(tmp_path):
    """Two corpora: one with a duplicate, a sentence of dev and a lopsided pair; one that is tagged."""
    for name, lines in {
        "a.src": ["x y", "y x", "x y", "X  Z", "y"],
        "a.trg": ["1 2", "2 1", "1 2", "1 3", "2 2 2 2 2 2"],
        "b.tsv": ["z y\t3 2", "y z\t2 3"],
        "dev.src": ["x z"],
        "dev.trg": ["1 3 1"],
    }.items():
        (tmp_path / name).write_text("".join(line + "\n" for line in lines))
    path = tmp_path / "both.toml"
    path.write_text(RUN)
    return path


@pytest.fixture
def run(tmp_path):
    return RunDirectory(tmp_path / "out")


def _texts(prepared):
    pairs = [prepared.train.pair(row) for row in range(len(prepared.train))]
    sides = [[pair[side].tolist() for pair in pairs] for side in (0, 1)]
    sources, targets = prepared.tokenizers.source.decode(sides[0]), prepared.tokenizers.target.decode(sides[1])
    return list(zip(sources, targets, strict=True))


class TestSeveralCorpora:
    def test_follow_each_other_in_the_store_the_tag_before_each_source(self, run_file, run):
        prepared = prepare(read_run(run_file), run)
        assert _texts(prepared)[4:] == [("y", "2 2 2 2 2 2"), ("<bt> z y", "3 2"), ("<bt> y z", "2 3")]
        assert [block.corpora.tolist() for block in prepared.train.blocks] == [[0] * 5 + [1] * 2]

    def test_a_tag_and_a_symbol_are_one_token_each(self, run_file, run):
        prepared = prepare(read_run(run_file), run)
        assert [len(ids) for ids in prepared.tokenizers.source.encode(["<bt>", "<formal>"])] == [1, 1]

    def test_each_has_its_line_in_the_report(self, run_file, run):
        report = prepare(read_run(run_file), run).report
        assert [line.split(":")[1] for line in report if line.startswith("train")] == [
            " 5 of 5 pairs kept; 2.4 source and 2.8 target tokens each",
            " 2 of 2 pairs kept; 3.0 source and 2.0 target tokens each",
        ]

    def test_weights_count_in_training_and_are_no_reason_to_prepare_again(self, run_file, run):
        config = read_run(run_file, ["train.max_steps=1", "train.batch_tokens=1024"])
        prepare(config, run)
        other = read_run(run_file, ["train.max_steps=1", "train.batch_tokens=1024", "data.train.1.weight=1"])
        assert not prepare(other, run).new
        progress = train_run(other, run, resume=False)
        assert progress.target_tokens == 14 + 5 + 4 + 2  # tokens and end symbols of either corpus
        with pytest.raises(BadInputError, match=r"data\.train\.1\.weight was 1\.0 and is 2\.5"):
            train_run(config, run, resume=True)

    def test_another_tag_of_the_test_set_prepares_again(self, run_file, run):
        prepare(read_run(run_file), run)
        settings = ["data.test.pairs=b.tsv", 'data.test.tag="<de>"']
        prepared = prepare(read_run(run_file, settings), run)
        assert prepared.new
        assert len(prepared.tokenizers.source.encode(["<de>"])[0]) == 1

    def test_a_tag_that_means_something_else_is_refused_by_its_setting(self, run_file, run):
        with pytest.raises(BadInputError, match=r"the tag of a corpus: '</s>' cannot be a symbol"):
            prepare(read_run(run_file, ['data.train.1.tag="</s>"']), run)


class TestFilters:
    def test_duplicates_are_dropped_where_asked(self, run_file, run):
        prepared = prepare(read_run(run_file, ["data.duplicates=drop"]), run)
        assert len(_texts(prepared)) == len(set(_texts(prepared))) == 6
        assert "  1 dropped: duplicate" in prepared.report
        assert "    line 3: 'x y'  |  '1 2'" in prepared.report

    def test_what_dev_has_is_dropped_where_asked_whatever_its_case_and_spaces(self, run_file, run):
        prepared = prepare(read_run(run_file, ["data.dev_overlap=drop"]), run)
        assert ("X  Z", "1 3") not in _texts(prepared)
        assert "    line 4: 'X  Z'  |  '1 3'" in prepared.report

    def test_otherwise_both_are_kept_and_told(self, run_file, run):
        report = "\n".join(prepare(read_run(run_file), run).report)
        assert '1 occurred before, which alone drops no pair (data.duplicates = "drop" leaves them out)' in report
        assert '1 share a sentence with dev, which alone drops no pair (data.dev_overlap = "drop" ' in report

    def test_the_ratio_of_lengths_counts_end_symbols(self, run_file, run):
        # "y" has 1 + 1 tokens, "2 2 2 2 2 2" 6 + 1: 3.5 times as many.
        assert len(prepare(read_run(run_file, ["data.max_length_ratio=3.5"]), run).train) == 7
        prepared = prepare(read_run(run_file, ["data.max_length_ratio=3.4"]), run)
        assert len(prepared.train) == 6
        assert "  1 dropped: length ratio" in prepared.report

    def test_invalid_utf8_is_refused_by_line_or_dropped_and_counted(self, run_file, run):
        with run_file.with_name("a.src").open("ab") as stream:
            stream.write(b"caf\xe9\n")
        with run_file.with_name("a.trg").open("a") as stream:
            stream.write("3\n")
        with pytest.raises(BadInputError, match=r"a\.src line 6: invalid UTF-8 \(byte 0xe9 at column 4\)"):
            prepare(read_run(run_file), run)
        prepared = prepare(read_run(run_file, ["data.invalid_utf8=drop"]), run)
        assert len(prepared.train) == 7
        assert "  1 dropped: invalid UTF-8" in prepared.report
        assert r"    line 6: 'caf\xe9'  |  '3'" in prepared.report

    def test_an_empty_corpus_is_named(self, run_file, run):
        run_file.with_name("b.tsv").write_text("")
        with pytest.raises(BadInputError, match=r"train .*b\.tsv: no pair in it"):
            prepare(read_run(run_file), run)


class TestVocabularies:
    def test_one_for_each_side(self, run_file, run):
        settings = ["tokenizer.source.kind=words", "tokenizer.target.kind=characters"]
        prepared = prepare(read_run(run_file, settings), run)
        assert not prepared.tokenizers.shared
        assert prepared.tokenizers.source.tokens(prepared.tokenizers.source.encode(["x y"])[0]) == ["x", "y"]
        assert prepared.tokenizers.target.tokens(prepared.tokenizers.target.encode(["1 2"])[0]) == ["1", " ", "2"]
        assert sorted(path.name for path in run.root.glob("tokenizer*")) == [
            "tokenizer.source.json",
            "tokenizer.target.json",
        ]
        assert prepared.report[0].startswith(f"tokenizer: {prepared.tokenizers.source.vocab_size} and ")

    def test_a_model_of_two_vocabularies_trains_and_translates(self, run_file, run):
        settings = ["tokenizer.source.kind=words", "tokenizer.target.kind=characters", "train.max_steps=2"]
        train_run(read_run(run_file, settings), run, resume=False)
        config = json.loads((run.root / "best" / "config.json").read_text())
        assert config["source_vocab_size"] == 11  # four special symbols, <formal>, <bt>, x, y, z, X and Z
        assert config["vocab_size"] > 256

    def test_learn_from_is_how_many_pairs_are_learned_from_evenly_spread(self, run_file, run):
        settings = ["tokenizer.source.kind=words", "tokenizer.target.kind=words", "tokenizer.learn_from=3"]
        prepared = prepare(read_run(run_file, settings), run)
        # Every third of seven pairs: the first, the fourth and the seventh.
        assert set(prepared.tokenizers.source.vocabulary) - {"<pad>", "<s>", "</s>", "<unk>"} == {
            "x", "y", "z", "X", "Z", "<bt>", "<formal>",
        }  # fmt: skip
        assert set(prepared.tokenizers.target.vocabulary) >= {"1", "2", "3"}

    def test_of_an_earlier_run(self, run_file, run, tmp_path):
        first = prepare(read_run(run_file), run)
        settings = [READ, f'tokenizer.path="{run.root / "tokenizer.json"}"']
        second = prepare(read_run(run_file, settings), RunDirectory(tmp_path / "second"))
        assert second.tokenizers.target.to_json() == first.tokenizers.target.to_json()

    def test_of_a_model_directory(self, trained_run, tiny_run_file, tmp_path):
        settings = [READ, f'tokenizer.path="{trained_run}"']
        prepared = prepare(read_run(tiny_run_file, settings), RunDirectory(tmp_path / "second"))
        assert prepared.tokenizers.target.to_json() == (trained_run / "tokenizer.json").read_text()

    def test_that_lacks_a_tag_is_refused_by_the_tag(self, run_file, trained_run, run):
        settings = [READ, f'tokenizer.path="{trained_run}"']
        with pytest.raises(BadInputError, match="<formal> is no symbol of this tokenizer"):
            prepare(read_run(run_file, settings), run)

    @pytest.mark.parametrize(
        ("changes", "idle"),
        [
            ([READ], ["tokenizer.vocab_size = 320"]),
            ([READ, "tokenizer.learn_from=3"], ["tokenizer.vocab_size = 320", "tokenizer.learn_from = 3"]),
            (
                ["tokenizer.target.kind=words", "tokenizer.source.kind=existing", "tokenizer.source.vocab_size=500"],
                ["tokenizer.source.vocab_size = 500"],
            ),
        ],
    )
    def test_that_is_read_has_no_settings_of_learning(self, run_file, trained_run, run, caplog, changes, idle):
        path = "tokenizer.source.path" if "tokenizer.target.kind=words" in changes else "tokenizer.path"
        known = ["tokenizer.symbols=[]", "data.train.1.tag='bamo'"]
        config = read_run(run_file, [*changes, *known, f'{path}="{trained_run}"'])
        prepare(config, run)
        said = [f"{each} does not count: it is for a tokenizer that is learned, and kind = 'existing'" for each in idle]
        assert [each.removesuffix(" reads one") for each in caplog.messages if "does not count" in each] == said
        warned = [each.text for each in examine_corpora(config, None) if each.kind == "warning"]
        assert [each.removesuffix(" reads one") for each in warned if "does not count" in each] == said

    def test_of_one_side_that_is_read_leaves_the_table_to_the_other(self, run_file, trained_run, run):
        settings = ["tokenizer.source.kind=existing", f'tokenizer.source.path="{trained_run}"', "tokenizer.symbols=[]"]
        settings += ["tokenizer.target.kind=bpe", "data.train.1.tag='bamo'"]
        prepared = prepare(read_run(run_file, settings), run)
        assert prepared.tokenizers.target.vocab_size <= 320
        written = read_run(run.config)  # where the source has the table's size, too
        assert prepare(written, RunDirectory(run.root.parent / "again")).new

    def test_that_is_missing_is_named(self, run_file, run):
        settings = ["tokenizer.kind=existing", 'tokenizer.path="nowhere.json"']
        with pytest.raises(BadInputError, match=r"nowhere\.json: no such file"):
            prepare(read_run(run_file, settings), run)


COPY = """
[data]
train = { made_up = "copy" }
dev = { made_up = "copy", count = 10, seed = 2 }
duplicates = "drop"
[tokenizer]
kind = "words"
"""


def test_memory_does_not_grow_with_the_corpus(tmp_path, monkeypatch):
    monkeypatch.setattr("transduce.workflows.encoding._LINES_AT_A_TIME", 100)
    monkeypatch.setattr("transduce.data.store._ROWS_PER_BLOCK", 100)
    path = tmp_path / "copy.toml"
    path.write_text(COPY)
    peaks = []
    for count in (1000, 11_000):
        config = read_run(path, [f"data.train.count={count}"])
        tracemalloc.start()
        prepare(config, RunDirectory(tmp_path / str(count)))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # The lengths of a pair's sides and its corpus are nine bytes; its texts alone would be more than a hundred.
    assert peaks[1] - peaks[0] < 40 * 10_000
