"""What a run file leaves to the model that its training begins with."""

import pytest

from transduce.config import BadInputError, Inherited, TrainConfig, preset, read_run, write_run
from transduce.config.model import VOCABULARY_SIZES

# Of no preset, and with every kind of setting: sizes, widths of their own, a choice, regularization.
MODEL = preset("tiny", {"d_model": 96, "d_k": 20, "norm": "pre", "dropout": 0.3, "label_smoothing": 0.2})
OLDER = Inherited(
    "runs/older", MODEL, {"kind": "existing", "path": "/runs/older"}, {"beam_size": 7, "length_penalty": 1.5}
)
HEAD = '[data]\ntrain = { pairs = "a.tsv" }\ndev = { pairs = "b.tsv" }\n'


@pytest.fixture
def read(tmp_path):
    def read(text="", settings=(), inherited=OLDER):
        (tmp_path / "run.toml").write_text(HEAD + text, encoding="utf-8")
        return read_run(tmp_path / "run.toml", settings, inherited)

    return read


def test_what_is_left_out_is_the_models(read):
    config = read()
    assert config.model == MODEL
    assert (config.tokenizer.kind, config.tokenizer.path) == ("existing", "/runs/older")
    assert (config.generation.beam_size, config.generation.length_penalty) == (7, 1.5)


def test_without_a_model_nothing_is(read):
    config = read(inherited=None)
    assert (config.model, config.tokenizer.kind) == (preset("base"), "bpe")


def test_what_is_said_stands_and_the_rest_is_the_models(read):
    sections = ["[model]", "label_smoothing = 0.1", "heads = 4", "[tokenizer]", 'symbols = ["<en>"]', "[generation]"]
    config = read("\n".join([*sections, "beam_size = 2"]))
    assert config.model == MODEL.model_copy(update={"label_smoothing": 0.1})
    assert (config.tokenizer.kind, config.tokenizer.symbols) == ("existing", ("<en>",))
    # Generation settings belong together.
    assert (config.generation.beam_size, config.generation.length_penalty) == (2, 0.6)


def test_dropout_of_embeddings_follows_dropout_as_in_any_run_file(read):
    model = read(settings=["model.dropout=0.15"]).model
    assert (model.dropout, model.embedding_dropout) == (0.15, 0.15)
    model = read(settings=["model.embedding_dropout=0.15"]).model
    assert (model.dropout, model.embedding_dropout) == (0.3, 0.15)


@pytest.mark.parametrize(
    "kind", ["vocab_size = 500", 'kind = "words"', 'path = "a"\nkind = "existing"', "learn_from = 9"]
)
def test_who_says_what_tokenizer_gets_that(read, kind):
    assert read(f"[tokenizer]\n{kind}\n").tokenizer.path != "/runs/older"


def test_two_vocabularies_are_the_run_files_too(read):
    config = read('[tokenizer]\nsource = { kind = "words" }\ntarget = { kind = "words" }\n')
    assert [(side.kind, side.path) for side in config.tokenizer.sides] == [("words", None)] * 2


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        ("[model]\n\nheads = 8\n", [], r"run\.toml line 6: model\.heads = 8, but runs/older, .* begins with, has 4"),
        ("", ["model.norm=post"], r"--set model\.norm = 'post', but runs/older, .* has 'pre': leave it out"),
        ("", ["model.d_k=24"], r"--set model\.d_k = 24, but runs/older, .* has 20"),
        ("", ["model.head=4"], r"model\.head: unknown key: did you mean model\.heads\?"),
        ("", ["model.vocab_size=5"], r"model\.vocab_size follows from the tokenizer"),
    ],
)
def test_another_architecture_is_refused_where_it_stands(read, text, settings, message):
    with pytest.raises(BadInputError, match=message):
        read(text, settings)


def test_what_means_what_the_model_has_is_no_other_value(read):
    """A width of 0 follows from others; run files from before there were other activations say relu."""
    assert read('[model]\nfeed_forward = "relu"\n').model == MODEL
    derived = MODEL.model_copy(update={"d_k": 24})
    assert read("[model]\nd_k = 0\nd_v = 0\n", inherited=Inherited("runs/older", derived, {}, {})).model == derived
    gnmt = Inherited("runs/older", preset("gnmt"), {}, {})
    assert read("[model]\nreadout_size = 0\n", inherited=gnmt).model.readout_size == 1024
    with pytest.raises(BadInputError, match=r"line 5: model\.d_k = 0, but runs/older, .* has 20"):
        read("[model]\nd_k = 0\n")


def test_a_preset_says_all_of_a_model(read):
    """Whether the weights fit it is seen before anything is prepared."""
    assert read('[model]\npreset = "tiny"\n').model == preset("tiny")


def test_a_run_of_two_vocabularies_is_inherited_whole(read):
    text = '[tokenizer]\nvocab_size = 700\nsource = { kind = "words" }\ntarget = { vocab_size = 500 }\n'
    tokenizer = read(text, inherited=None).tokenizer
    again = read(inherited=Inherited("run.toml", MODEL, tokenizer.model_dump(exclude_none=True), {}))
    assert again.tokenizer == tokenizer


@pytest.mark.parametrize("name", ["base", "t2t-base-v2"])
def test_a_rate_of_ones_own_takes_the_place_of_a_presets_schedule(read, name):
    config = read(f'[model]\npreset = "{name}"\n[train]\nlearning_rate = 1e-4\n', inherited=None)
    assert (config.train.learning_rate, config.train.learning_rate_factor) == (1e-4, 1.0)


def test_a_rate_and_a_factor_exclude_each_other(read):
    with pytest.raises(BadInputError, match=r"learning_rate = 0\.0001 is the rate itself, .*factor = 2 .*leave one"):
        read("[train]\nlearning_rate = 1e-4\nlearning_rate_factor = 2.0\n")
    with pytest.raises(BadInputError, match=r"train\.learning_rate = 0"):
        read("[train]\nlearning_rate = 0.0\n")
    assert TrainConfig(learning_rate=1e-4, learning_rate_factor=1.0).learning_rate == 1e-4


@pytest.mark.parametrize("name", ["convs2s", "bytenet", "gnmt", "deep-att", "moe", "tiny"])
def test_a_run_file_that_says_all_of_its_model_goes_on_with_it(read, tmp_path, name):
    """A written run file, as ``--resume`` of a fine-tuning reads it."""
    model = preset(name)
    inherited = Inherited("runs/older", model, {"kind": "existing", "path": "/runs/older"}, {})
    config = read(inherited=inherited)
    write_run(config, tmp_path / "run.toml")
    for each in (config, read_run(tmp_path / "run.toml", (), inherited)):
        # Vocabularies are the tokenizers'.
        assert each.model.model_copy(update={size: getattr(model, size) for size in VOCABULARY_SIZES}) == model


def test_dropout_of_the_readout_follows_dropout_too(read):
    model = preset("rnnsearch", {"dropout": 0.2})
    inherited = Inherited("runs/older", model, {"kind": "existing", "path": "/runs/older"}, {})
    assert read(settings=["model.dropout=0.4"], inherited=inherited).model.readout_dropout == 0.4
