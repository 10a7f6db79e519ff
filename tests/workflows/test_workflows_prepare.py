import os

import pytest

from transduce.config import BadInputError, Corpus, read_run
from transduce.data import Record
from transduce.text import learn_tokenizer
from transduce.workflows.encoding import StreamEncoder
from transduce.workflows.prepare import load_prepared, prepare
from transduce.workflows.run_directory import RunDirectory, default_out

pytest_plugins = ["tiny_run"]

RUN = """
[data]
train = { source = "a.src", target = "a.trg" }
dev = { source = "b.src", target = "b.trg" }
max_length = 8
[tokenizer]
vocab_size = 300
"""


@pytest.fixture
def run_file(tmp_path):
    """Five training pairs: two good ones, one too long, two with an empty side; and two dev pairs, one of them long."""
    for name, lines in {
        "a.src": ["x y", "", "x", "z z z z z z z z z", "y"],
        "a.trg": ["y x", "x", " \t", "z", "x"],
        "b.src": ["x x x x x x x x x x x x", "y"],
        "b.trg": ["y", "x"],
    }.items():
        (tmp_path / name).write_text("".join(line + "\n" for line in lines))
    path = tmp_path / "small.toml"
    path.write_text(RUN)
    return path


@pytest.fixture
def run(tmp_path):
    return RunDirectory(tmp_path / "out")


def test_what_cannot_be_learned_from_is_dropped_and_counted(run_file, run, caplog):
    prepared = prepare(read_run(run_file), run)
    folder = run_file.parent
    many = "3 of 5 pairs are left out (empty side 2, too long 1): is that meant?"
    assert caplog.messages[-1] == f"train {folder / 'a.src'}: {many}"
    assert prepared.report[1:] == (
        f"train {folder / 'a.src'}: 2 of 5 pairs kept; 1.5 source and 1.5 target tokens each",
        "  2 dropped: empty side",
        "    line 2: ''  |  'x'",
        "    line 3: 'x'  |  ' \\t'",
        "  1 dropped: too long",
        "    line 4: 'z z z z z z z z z'  |  'z'",
        '  1 share a sentence with dev, which alone drops no pair (data.dev_overlap = "drop" leaves them out)',
        "    line 5: 'y'  |  'x'",
        f"dev {folder / 'b.src'}: 2 of 2 pairs kept; 6.5 source and 1.0 target tokens each",  # dev is scored whole
    )
    assert (len(prepared.train), len(prepared.dev)) == (2, 2)
    texts = [prepared.tokenizers.target.decode([side.tolist()])[0] for side in prepared.train.pair(0)]
    assert texts == ["x y", "y x"]


def test_many_pairs_of_a_stream_that_are_dropped_are_a_warning_once(run_file, run, caplog):
    config = read_run(run_file)
    encoder = StreamEncoder(config, prepare(config, run).tokenizers)
    caplog.clear()
    for _ in range(2):
        encoder.encode([Record(1, 0, ("x", "")), Record(2, 0, ("x", "y"))])
        encoder.report()
    assert caplog.messages == [f"{run_file.parent / 'a.src'}: 1 of 2 pairs are left out (empty side 1): is that meant?"]


def test_the_longest_pair_that_fits_stays(run_file, run):
    # "z" nine times: nine tokens and the end symbol.
    config = read_run(run_file, ["data.max_length=10"])
    prepared = prepare(config, run)
    assert prepared.train.longest[0] == 9
    assert "3 of 5 pairs kept" in prepared.report[1]
    assert "2 of 5 pairs kept" in prepare(read_run(run_file, ["data.max_length=9"]), run).report[1]


def test_nothing_changed_nothing_done(run_file, run):
    prepare(read_run(run_file), run)
    before = {path: path.stat().st_mtime_ns for path in (run.root / "tokenizer.json", run.train_store, run.dev_store)}
    again = prepare(read_run(run_file), run)
    assert not again.new
    assert again.report[1].startswith("train ")  # what was kept and dropped is still to be read
    assert len(again.train) == 2
    assert {path: path.stat().st_mtime_ns for path in before} == before


@pytest.mark.parametrize("setting", ["data.max_length=20", "tokenizer.vocab_size=301"])
def test_other_settings_prepare_again(run_file, run, setting):
    prepare(read_run(run_file), run)
    assert prepare(read_run(run_file, [setting]), run).new


def test_settings_of_model_and_training_do_not_but_are_written_down(run_file, run):
    prepare(read_run(run_file), run)
    config = read_run(run_file, ["train.max_steps=7", "model.d_ff=20"])
    assert not prepare(config, run).new
    assert read_run(run.config) == config


def test_a_changed_file_prepares_again(run_file, run):
    prepare(read_run(run_file), run)
    path = run_file.with_name("a.trg")
    path.write_text(path.read_text().replace("y x", "x y"))
    os.utime(path, ns=(1, 1))
    prepared = prepare(read_run(run_file), run)
    assert prepared.new
    assert prepared.tokenizers.target.decode([prepared.train.pair(0)[1].tolist()]) == ["x y"]


@pytest.mark.parametrize("lost", ["tokenizer.json", "store/train.arrow", "store/dev.arrow"])
def test_a_lost_or_damaged_file_prepares_again(run_file, run, lost):
    for damage in (lambda path: path.unlink(), lambda path: path.write_bytes(b"not this")):
        prepare(read_run(run_file), run)
        damage(run.root / lost)
        assert load_prepared(run) is None
        assert prepare(read_run(run_file), run).new
        assert load_prepared(run) is not None


def test_a_damaged_report_costs_nothing(run_file, run):
    prepare(read_run(run_file), run)
    run.report.write_bytes(b"train\xff\n")
    prepared = prepare(read_run(run_file), run)
    assert (prepared.new, prepared.report) == (False, ("train\ufffd",))


def test_a_name_that_no_run_file_can_hold_is_told_first(run_file, run):
    root = run_file.parent / os.fsdecode(b"donn\xe9es")
    try:
        root.mkdir()
    except OSError:
        pytest.skip("the file system has no such names")
    for name in ("a.src", "a.trg", "b.src", "b.trg"):
        run_file.with_name(name).rename(root / name)
    config = read_run(run_file)
    config = config.model_copy(update={"data": config.data.model_copy(update={"root": str(root)})})
    with pytest.raises(BadInputError, match="the name is no UTF-8"):
        prepare(config, run)
    assert not run.root.exists()


def test_a_preparation_that_failed_does_not_pass_for_one(run_file, run):
    prepare(read_run(run_file), run)
    for name in ("b.src", "b.trg"):
        run_file.with_name(name).write_text("\n\n")
    for _ in range(2):  # not even the second time
        with pytest.raises(BadInputError, match="no pair is left of dev"):
            prepare(read_run(run_file), run)


def test_a_missing_corpus_is_named(run_file, run):
    run_file.with_name("b.src").unlink()
    with pytest.raises(BadInputError, match=r"b\.src: no such file"):
        prepare(read_run(run_file), run)
    assert not run.train_store.exists()


def test_sides_of_different_length_are_named_with_both_counts(run_file, run):
    with run_file.with_name("a.src").open("a") as stream:
        stream.write("one more\nand another\n")
    with pytest.raises(BadInputError, match=r"a\.src has 7 lines but .*a\.trg has 5"):
        prepare(read_run(run_file), run)


def test_a_run_directory_has_its_files_where_they_are_promised(run_file, run):
    prepare(read_run(run_file), run)
    files = sorted(str(path.relative_to(run.root)) for path in run.root.rglob("*") if path.is_file())
    assert files == ["run.toml", "store/dev.arrow", "store/report.txt", "store/train.arrow", "tokenizer.json"]
    assert read_run(run.config) == read_run(run_file)


def test_a_file_of_pairs_gives_what_two_files_give(tiny_run_file, tiny_config, tmp_path):
    two = prepare(tiny_config, RunDirectory(tmp_path / "two"))
    folder = tiny_run_file.parent
    for name in ("train", "dev"):
        sides = [(folder / f"{name}.{side}").read_text().splitlines() for side in ("src", "trg")]
        lines = [f"{source}\t{target}\n" for source, target in zip(*sides, strict=True)]
        (tmp_path / f"{name}.tsv").write_text("".join(lines))
    corpora = {"train": (Corpus(pairs="train.tsv"),), "dev": Corpus(pairs="dev.tsv"), "root": str(tmp_path)}
    data = tiny_config.data.model_copy(update=corpora)
    one = prepare(tiny_config.model_copy(update={"data": data}), RunDirectory(tmp_path / "one"))
    assert one.tokenizers.target.to_json() == two.tokenizers.target.to_json()
    assert len(one.train) == len(two.train)
    assert all(a.tolist() == b.tolist() for a, b in zip(one.train.pair(7), two.train.pair(7), strict=True))
    assert read_run(RunDirectory(tmp_path / "one").config).data == data


def test_out_is_named_after_the_run_file(tmp_path):
    assert str(default_out(tmp_path / "multi30k.toml")) == "runs/multi30k"
    assert str(default_out(tmp_path / "run.toml")) == "runs/run"  # a person's own file of that name
    for folder in ("store", "checkpoints"):  # either may be lost
        (tmp_path / folder).mkdir()
        assert default_out(tmp_path / "run.toml") == tmp_path  # a run directory's own file means that directory
        (tmp_path / folder).rmdir()


def test_one_file_for_both_sides_is_said_and_done(run_file, run, caplog):
    prepare(read_run(run_file, ["data.train.target=a.src"]), run)
    assert f"data.train: {run_file.with_name('a.src')} is both source and target" in caplog.text


@pytest.mark.parametrize(
    ("kind", "said"), [("bpe", True), ("wordpiece", True), ("words", False), ("characters", False)]
)
def test_fewer_symbols_than_were_asked_for_are_said(run_file, run, kind, said, caplog):
    config = read_run(run_file, [f"tokenizer.kind={kind}", "tokenizer.vocab_size=500_000"])
    size = prepare(config, run).tokenizers.target.vocab_size
    words = f"tokenizer: only {size:,} symbols could be learned where vocab_size = 500,000 were asked for"
    assert (words in caplog.text) == said


def test_what_a_vocabulary_of_words_has_not_is_said(run_file, run, caplog):
    """Of z, x and y it has room for two; dev has 12 x and a y, and a y and an x."""
    prepared = prepare(read_run(run_file, ["tokenizer.kind=words", "tokenizer.vocab_size=6"]), run)
    assert prepared.report[-1] in caplog.messages
    text = "dev: 7.7% of source and 50.0% of target tokens are <unk>, words that have no symbol: a model cannot "
    assert prepared.report[-1].startswith(text)
    whole = prepare(read_run(run_file, ["tokenizer.kind=words", "tokenizer.vocab_size=7"]), run)
    assert whole.report[-1] == "dev: 0.0% of source and 0.0% of target tokens are <unk>, words that have no symbol"
    assert sum("<unk>" in message for message in caplog.messages) == 1


def test_of_two_vocabularies_the_side_is_named(run_file, run, caplog):
    sides = ["tokenizer.source.vocab_size=300", "tokenizer.target.vocab_size=9000"]
    prepare(read_run(run_file, sides), run)
    assert "tokenizer.target: only " in caplog.text
    assert "tokenizer.source: only " not in caplog.text


TREES = """
[data]
train = { trees = "a.trees", tags = "kept" }
dev = { trees = "a.trees", tags = "kept" }
[tokenizer.source]
kind = "words"
[tokenizer.target]
kind = "words"
"""


@pytest.mark.parametrize(
    ("tag", "settings", "message"),
    [
        ("NN", [], None),
        ("XX", [], "its symbols are those of linearization = 'brackets', tags = 'normalized', words = false"),
        ("XX", ["data.train.linearization=shift_reduce", "data.dev.linearization=shift_reduce"], None),
        ("NN", ["tokenizer.target.kind=existing", "tokenizer.target.path=tokenizer.json"], "no symbols of trees"),
    ],
)
def test_a_vocabulary_that_no_parser_could_read_is_refused(tag, settings, message, run, tmp_path):
    """Before a training, which would be over when the first output is to become a tree."""
    (tmp_path / "a.trees").write_text(f"(S (NP (DT a) (NN dog)) (VP (VBZ is) ({tag} x)))\n", encoding="utf-8")
    (tmp_path / "run.toml").write_text(TREES, encoding="utf-8")
    learn_tokenizer("words", ["a dog is x"], 100).save(tmp_path / "tokenizer.json")
    config = read_run(tmp_path / "run.toml", settings)
    if message is None:
        assert len(prepare(config, run).stored) == 1
        return
    with pytest.raises(BadInputError, match=message):
        prepare(config, run)


def test_of_a_treebank_without_a_tree_nothing_but_that_is_said(run, tmp_path):
    (tmp_path / "a.trees").write_text("(S (-NONE- *))\n", encoding="utf-8")
    (tmp_path / "run.toml").write_text(TREES.replace('"kept"', '"kept", bad_trees = "drop"'), encoding="utf-8")
    with pytest.raises(BadInputError, match="no pair is left of train"):
        prepare(read_run(tmp_path / "run.toml"), run)
