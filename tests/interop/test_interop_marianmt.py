"""Models of ``transformers``' MarianMT, as its own classes write them: the same logits, outputs and text."""

import json
import logging
import pickle
import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

import transduce
from tests.interop.marianmt import CODE, put_back, train, vocabulary, write
from tests.random_bundle import random_bundle
from tests.two_spm import SIDES, sentences
from transduce.bundle import load_bundle, save_bundle
from transduce.cli import main
from transduce.config import BadInputError, GenerationConfig, TransduceError
from transduce.interop import export_marianmt, read_marianmt, recognise
from transduce.interop.json_files import read_json
from transduce.interop.marianmt_reference import open_marianmt
from transduce.interop.marianmt_vocabulary import read_sides
from transduce.interop.options import Options
from transduce.models import Tokens
from transduce.text import TokenizerPair, import_sentencepiece

pytest_plugins = ["two_spm"]

TEXTS = [*sentences("source", 25, seed=11), "中国 ba☃do ß", f"{CODE} ba do", "ba <s> do"]
VARIANTS = {
    "OPUS-MT": {},
    "unscaled, ReLU": {"scale_embedding": False, "activation_function": "relu"},
    "gelu": {"activation_function": "gelu_new"},
    "two vocabularies": {"own": True},
    "matrices of their own": {"tie_word_embeddings": False},
    "no bias": {"bias": False},
}


@pytest.fixture(scope="module")
def library():
    return pytest.importorskip("transformers", reason="transformers is missing: pip install 'transduce[interop]'")


@pytest.fixture(scope="module")
def opus(library, spm_folder, tmp_path_factory):
    """A folder, and the model of the library in it."""
    folder = tmp_path_factory.mktemp("opus") / "model"
    return folder, write(folder, spm_folder)


@pytest.fixture
def copied(opus, tmp_path):
    """The same folder, to be damaged."""
    return shutil.copytree(opus[0], tmp_path / "copied")


def their_tokenizer(library, folder):
    with pytest.warns(UserWarning, match="sacremoses"):
        return library.AutoTokenizer.from_pretrained(folder)


def complaint(folder):
    with pytest.raises(BadInputError) as caught:
        read_marianmt(folder)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


def change(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@torch.no_grad()
@pytest.mark.parametrize("name", VARIANTS)
def test_every_symbol_of_every_position_has_the_same_logit(library, spm_folder, tmp_path, name):
    theirs = write(tmp_path / "model", spm_folder, **VARIANTS[name])
    ours, tokenizer = read_marianmt(tmp_path / "model"), their_tokenizer(library, tmp_path / "model")
    read = tokenizer(TEXTS, padding=True, return_tensors="pt")
    source = Tokens(*padded([[*ids, 2] for ids in ours.tokenizers.source.encode(TEXTS)]))
    assert source.lengths.tolist() == read["attention_mask"].sum(1).tolist()
    draws = torch.Generator().manual_seed(3)
    target = torch.randint(2, theirs.config.decoder_vocab_size - 1, (len(TEXTS), 7), generator=draws)
    target[:, 0] = theirs.config.decoder_start_token_id
    names = vocabulary(spm_folder, *([("target",)] if VARIANTS[name].get("own") else []))
    ids = ours.tokenizers.target.vocabulary
    numbers = torch.tensor([ids[each] for each in names])
    begun = torch.cat([torch.ones(len(TEXTS), 1, dtype=torch.long), numbers[target[:, 1:]]], dim=1)
    decoded = ours.model.decode(ours.model.encode(source), Tokens(begun, torch.full((len(TEXTS),), 7)))
    expected = theirs(**read, decoder_input_ids=target).logits.flatten(0, 1)
    found = ours.model.project(decoded.hidden)
    torch.testing.assert_close(found[:, numbers], expected, rtol=0, atol=1e-4)
    # And with all symbols that only ours has, it gives the same probabilities.
    torch.testing.assert_close(found.log_softmax(-1)[:, numbers], expected.log_softmax(-1), rtol=0, atol=1e-4)


def padded(rows):
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows]), torch.tensor([*map(len, rows)])


def short(texts):
    return [" ".join(text.split()[:2]) for text in texts]


@pytest.fixture(scope="module")
def trained(library, spm_folder, tmp_path_factory):
    """A folder with a model that has learned a little, and the library's model of it."""
    folder = tmp_path_factory.mktemp("trained") / "model"
    model = write(folder, spm_folder)
    ours = read_marianmt(folder)
    train(ours.model, ours.tokenizers.source.encode(short(sentences("source", 200, seed=2))), 120)
    options = Options.of(read_json(folder / "config.json"), folder)
    put_back(ours.model, read_sides(folder, options).target, model)
    model.save_pretrained(folder)
    return folder, model


# By default it stops where no open hypothesis could win if it ended at once, and misses some that win later.
NEVER = {"early_stopping": "never"}


@pytest.mark.parametrize(
    "generation",
    [NEVER, {"early_stopping": True, "length_penalty": 0.5}, {"num_beams": 1}, NEVER | {"no_repeat_ngram_size": 2}],
    ids=["beam", "early", "greedy", "ngrams"],
)
def test_its_own_settings_write_the_same(library, spm_folder, trained, tmp_path, generation):
    folder = shutil.copytree(trained[0], tmp_path / "model")
    pad = vocabulary(spm_folder)["<pad>"]
    change(folder / "generation_config.json", bad_words_ids=[[pad], [1]], **generation)
    tokenizer, theirs = their_tokenizer(library, folder), library.MarianMTModel.from_pretrained(folder)
    texts = short(sentences("source", 40, seed=11))
    found = theirs.generate(**tokenizer(texts, padding=True, return_tensors="pt"))
    expected = tokenizer.batch_decode(found, skip_special_tokens=True)
    assert main._run(["import", str(folder), "--out", str(tmp_path / "ours"), "--no-prove"]) == 0
    ours = transduce.load(tmp_path / "ours", "float32").translate(texts)
    # What reaches the limit, here or there, has to end: there that costs nothing, here as much as it is improbable.
    cut = [len(row) == theirs.generation_config.max_length and int(row[-1]) != pad for row in found]
    every = zip(ours, expected, cut, strict=True)
    pairs = [(mine.text, other) for mine, other, is_cut in every if not (mine.at_limit or is_cut)]
    assert [mine for mine, _ in pairs] == [other for _, other in pairs]
    assert len({mine for mine, _ in pairs}) > 10


def test_weights_of_torch_are_the_same(opus, copied):
    """As OPUS-MT's older folders have them: every tied matrix under all of its names, and stored sinusoids."""
    folder, model = opus
    state = model.state_dict()
    assert {"lm_head.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_positions.weight"} <= {*state}
    torch.save(state, copied / "pytorch_model.bin")
    (copied / "model.safetensors").unlink()
    expected, found = (read_marianmt(each).model.state_dict() for each in (folder, copied))
    assert all(torch.equal(tensor, found[name]) for name, tensor in expected.items())
    state["model.decoder.embed_positions.weight"] = state["model.decoder.embed_positions.weight"] + 0.1
    torch.save(state, copied / "pytorch_model.bin")
    assert "its positions are no sinusoids" in complaint(copied)


def test_half_precision_is_read_in_float32(opus, copied):
    opus[1].half().save_pretrained(copied)
    opus[1].float()
    found = read_marianmt(copied).model.state_dict()
    assert {each.dtype for each in found.values()} == {torch.float32}
    name = "encoder.0.feed_forward.inner.weight"
    expected = read_marianmt(opus[0]).model.state_dict()[name]
    assert torch.equal(found[name], expected.half().float())


def test_a_piece_that_the_vocabulary_lacks_is_the_unknown_symbol(library, spm_folder, tmp_path):
    everything = vocabulary(spm_folder)
    lost = next(each for each in everything if each.startswith("▁") and len(each) > 2)
    write(tmp_path / "model", spm_folder, left_out=(lost,))
    ours = read_marianmt(tmp_path / "model")
    (ids,) = ours.tokenizers.source.encode([lost.lstrip("▁")])
    tokenizer = their_tokenizer(library, tmp_path / "model")
    assert tokenizer(lost.lstrip("▁"))["input_ids"] == [1, 0]
    assert ours.tokenizers.source.tokens(ids) == [lost]
    weight = ours.model.embedding.weight
    assert torch.equal(weight[ids[0]], weight[3])
    assert ours.model.output_bias[ids[0]] < -90


GENERATION = {
    "num_beams": 4,
    "max_length": 512,
    "length_penalty": 0.8,
    "early_stopping": True,
    "no_repeat_ngram_size": 3,
    "min_length": 5,
}


def test_how_it_writes_comes_along(opus, copied):
    (copied / "generation_config.json").write_text(json.dumps(GENERATION))
    expected = GenerationConfig(
        beam_size=4,
        length_penalty=0.8,
        length_penalty_kind="marian",
        stopping="full_beam",
        max_length=510,
        min_length=4,
        no_repeat_ngram=3,
    )
    assert read_marianmt(copied).generation == expected
    # Older folders have it in their configuration.
    (copied / "generation_config.json").unlink()
    change(copied / "config.json", **GENERATION)
    assert read_marianmt(copied).generation == expected


def test_what_it_samples_with_comes_along(copied):
    said = {"do_sample": True, "top_p": 0.9, "temperature": 0.7, "max_length": 20}
    (copied / "generation_config.json").write_text(json.dumps(said))
    generation = read_marianmt(copied).generation
    assert (generation.sampling, generation.top_p, generation.top_k, generation.temperature) == (True, 0.9, 50, 0.7)


def test_samples_of_beams_are_told(copied, caplog):
    (copied / "generation_config.json").write_text(json.dumps({"do_sample": True, "num_beams": 4}))
    with caplog.at_level(logging.WARNING):
        assert read_marianmt(copied).generation.sampling
    assert any("do_sample beside num_beams = 4: samples are drawn without" in each for each in caplog.messages)


def test_what_its_search_has_besides_is_named(copied, caplog):
    said = {"sequence_bias": [[[7], 1.0]], "min_p": 0.1, "guidance_scale": 1.0, "eos_token_id": [0, 7]}
    (copied / "generation_config.json").write_text(json.dumps(said))
    with caplog.at_level(logging.WARNING):
        read_marianmt(copied)
    assert ["sequence_bias" in each or "eos_token_id is a list" in each for each in caplog.messages] == [True, True]
    (copied / "generation_config.json").write_text(json.dumps(said | {"do_sample": True}))
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        read_marianmt(copied)
    assert any("min_p = 0.1 is left out" in each for each in caplog.messages)


def test_an_output_matrix_that_is_not_tied_is_missing(copied):
    change(copied / "config.json", tie_word_embeddings=False)
    weights = load_file(copied / "model.safetensors")
    weights.pop("lm_head.weight", None)
    save_file(weights, copied / "model.safetensors")
    with pytest.raises(BadInputError, match=r"tie_word_embeddings = false, and lm_head\.weight is not among"):
        read_marianmt(copied)


def test_forbidden_symbols_are_never_written(opus, copied, caplog):
    banned = 7
    (copied / "generation_config.json").write_text(
        json.dumps({"bad_words_ids": [[banned], [3, 4]], "repetition_penalty": 1.2})
    )
    with caplog.at_level(logging.WARNING):
        ours = read_marianmt(copied)
    assert ["1 words of several symbols are left out" in each for each in caplog.messages] == [False, True]
    assert "repetition_penalty = 1.2 is left out" in caplog.messages[0]
    plain = read_marianmt(opus[0]).model.output_bias
    changed = (ours.model.output_bias - plain).nonzero().flatten().tolist()
    assert [ours.tokenizers.target.tokens(changed)] == [
        [name for name, index in _ids(copied).items() if index == banned]
    ]
    assert ours.model.output_bias[changed[0]] - plain[changed[0]] == -100


def _ids(folder):
    return json.loads((folder / "vocab.json").read_text())


class TestBack:
    """What came from OPUS-MT goes back as it came, and MarianTokenizer reads it."""

    CASES = {  # noqa: RUF012
        "OPUS-MT": {},
        "two vocabularies": {"own": True},
        "matrices of their own": {"tie_word_embeddings": False},
        "a piece that the vocabulary lacks": {"lacks": True},
    }

    @pytest.mark.parametrize("name", CASES)
    def test_the_same_to_the_last_bit(self, library, spm_folder, tmp_path, name):
        changes = dict(self.CASES[name])
        pieces = [each for each in vocabulary(spm_folder) if each.startswith("▁") and len(each) > 2]
        lost = tuple(pieces[:2]) if changes.pop("lacks", False) else ()
        there = tmp_path / "there"
        write(there, spm_folder, left_out=lost, **changes)
        ours = read_marianmt(there)
        export_marianmt(ours, tmp_path / "back")
        for file in {"vocab.json", "target_vocab.json"} & {each.name for each in there.iterdir()}:
            assert json.loads((tmp_path / "back" / file).read_text()) == json.loads((there / file).read_text())
        stored, back = (load_file(each / "model.safetensors") for each in (there, tmp_path / "back"))
        if name == "matrices of their own":
            del stored["model.shared.weight"]  # which nothing reads
        assert {*stored} <= {*back}
        assert all(torch.equal(tensor, back[key].view_as(tensor)) for key, tensor in stored.items())
        texts = [*TEXTS, " ".join(each.lstrip("▁") for each in lost)]
        theirs, again = (their_tokenizer(library, each) for each in (there, tmp_path / "back"))
        assert type(again).__name__ == "MarianTokenizer"
        assert again(texts)["input_ids"] == theirs(texts)["input_ids"]
        rows = [[5, 9, 30, 4, 0], [77, 12, 0]]
        assert again.batch_decode(rows) == theirs.batch_decode(rows)
        told = json.loads((tmp_path / "back" / "config.json").read_text())
        expected = json.loads((there / "config.json").read_text())
        for key in ("pad_token_id", "decoder_start_token_id", "eos_token_id", "vocab_size", "decoder_vocab_size"):
            assert told[key] == expected[key], key
        second = read_marianmt(tmp_path / "back")
        assert second.tokenizers.source.to_json() == ours.tokenizers.source.to_json()
        assert all(torch.equal(each, second.model.state_dict()[key]) for key, each in ours.model.state_dict().items())

    def test_what_has_been_trained_on_keeps_its_begin_symbol(self, library, opus, tmp_path):
        """It is no copy of padding any longer, so that symbols keep our numbers."""
        ours = read_marianmt(opus[0])
        with torch.no_grad():
            ours.model.embedding.weight[1] += 0.25
        save_bundle(ours, tmp_path / "ours")
        (tmp_path / "texts").write_text("\n".join(TEXTS[:4]))
        line = ["export", str(tmp_path / "ours"), "--to", "marianmt", "--out", str(tmp_path / "back")]
        assert main._run([*line, "--sentences", str(tmp_path / "texts")]) == 0
        certificate = json.loads((tmp_path / "back" / "certificate.json").read_text())
        assert certificate["reference"] == "transformers"
        assert {each["reason"] for each in certificate["differing"]} <= {"at the length limit"}
        assert _ids(tmp_path / "back")["<s>"] == 1
        second = read_marianmt(tmp_path / "back")
        assert second.tokenizers.source.encode(TEXTS) == ours.tokenizers.source.encode(TEXTS)
        assert torch.equal(second.model.embedding.weight, ours.model.embedding.weight)

    def test_a_sentencepiece_model_of_a_model_that_was_made_here(self, library, spm_folder, tmp_path):
        tokenizer = import_sentencepiece(spm_folder / "source.spm")
        bundle = random_bundle(norm_epsilon=1e-5, vocab_size=tokenizer.vocab_size)
        export_marianmt(replace(bundle, tokenizers=TokenizerPair.of(tokenizer)), tmp_path / "out")
        theirs = their_tokenizer(library, tmp_path / "out")
        texts = sentences("source", 9, seed=4)
        assert theirs(texts)["input_ids"] == [[*ids, 2] for ids in tokenizer.encode(texts)]
        assert theirs.batch_decode(tokenizer.encode(texts)) == texts
        assert read_marianmt(tmp_path / "out").tokenizers.source.encode(texts) == tokenizer.encode(texts)


class TestTheVerb:
    def test_it_writes_a_model_with_its_certificate(self, opus, tmp_path, monkeypatch):
        monkeypatch.undo()  # a certificate as a user has it
        texts = tmp_path / "texts"
        texts.write_text("\n".join(TEXTS[:3]))
        out = tmp_path / "ours"
        line = ["import", str(opus[0]), "--out", str(out), "--sentences", str(texts)]
        assert main._run(line) == 0
        assert sorted(file.name for file in out.iterdir()) == [
            "certificate.json",
            "config.json",
            "generation_config.json",
            "model.safetensors",
            "tokenizer.source.json",
            "tokenizer.target.json",
        ]
        certificate = json.loads((out / "certificate.json").read_text())
        assert (certificate["reference"], certificate["lines"], certificate["equal"]) == ("transformers", 3, 3)
        assert certificate["largest_difference"] < 1e-4
        assert load_bundle(out).tokenizers.shared
        assert main._run(line) == 2  # something stands there now

    def test_the_layer_is_named_at_which_they_part(self, opus, tmp_path, monkeypatch, capsys):
        def change_a_layer(folder):
            bundle = read_marianmt(folder)
            bundle.model.encoder[1].feed_forward.inner.weight.data[3, 5] += 1
            return bundle

        monkeypatch.setattr("transduce.workflows.import_model.read_marianmt", change_a_layer)
        assert main._run(["import", str(opus[0]), "--out", str(tmp_path / "ours")]) == 1
        assert "they part at encoder layer 2" in capsys.readouterr().err
        assert not any(tmp_path.iterdir())

    def test_the_format_can_be_named_and_is_told_else(self, opus, copied, tmp_path, capsys):
        assert recognise(opus[0]) == "marianmt"
        change(copied / "config.json", model_type="t5")
        line = ["import", str(copied), "--out", str(tmp_path / "ours"), "--no-prove"]
        assert main._run(line) == 2
        assert "a model of transformers of kind 't5'" in capsys.readouterr().err
        assert main._run([*line, "--from", "marianmt"]) == 2
        assert "model_type = 't5': only 'marian' can be read" in capsys.readouterr().err
        assert not (tmp_path / "ours").exists()


def test_the_library_begins_and_ends_as_the_configuration_says(opus, copied):
    """Which a file of its search need not say again."""
    path = copied / "generation_config.json"
    said = json.loads(path.read_text())
    for name in ("decoder_start_token_id", "eos_token_id"):
        del said[name]
    path.write_text(json.dumps(said))
    whole, less = (open_marianmt(folder).translate(TEXTS[:3], 2, 7) for folder in (opus[0], copied))
    assert less == whole


def test_what_the_library_says_comes_with_the_folder(copied):
    stored = load_file(copied / "model.safetensors")
    stored["model.encoder.layers.0.fc1.weight"] = torch.ones(3, 5)
    save_file(stored, copied / "model.safetensors", {"format": "pt"})
    with pytest.raises(TransduceError, match=r"copied: transformers cannot compute this model: .* \(--no-prove writes"):
        open_marianmt(copied)


class Hostile:
    """Asks whoever unpickles it to make a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


class TestDamage:
    def test_a_pickle_that_would_run_code(self, copied, tmp_path):
        (copied / "model.safetensors").unlink()
        torch.save({"lm_head.weight": Hostile(tmp_path / "run")}, copied / "pytorch_model.bin")
        assert "pytorch_model.bin: asks for " in complaint(copied)
        (copied / "pytorch_model.bin").write_bytes(pickle.dumps(Hostile(tmp_path / "run")))
        complaint(copied)
        assert not (tmp_path / "run").exists()

    @pytest.mark.parametrize(
        ("changes", "expected"),
        [
            ({"vocab_size": 10**12}, "symbols where the model has 1,000,000,000,000 rows"),
            ({"d_model": 10**6, "encoder_attention_heads": 1, "decoder_attention_heads": 1}, "has shape"),
            ({"encoder_layers": 10**9}, "encoder_layers"),
            ({"encoder_layers": 9}, "is missing among the weights"),
            ({"encoder_layers": 1}, "a part that no model of ours has"),
            ({"encoder_ffn_dim": 2**20, "decoder_ffn_dim": 2**20}, "has shape"),
            ({"decoder_ffn_dim": 29}, "decoder_ffn_dim = 29: ours has one for both"),
            ({"encoder_layers": "two"}, "config.json: encoder_layers = 'two': a whole number"),
            ({"scale_embedding": "no"}, "config.json: scale_embedding = 'no': true or false"),
            ({"tie_word_embeddings": [1]}, "config.json: tie_word_embeddings = "),
            ({"vocab_size": "205"}, "config.json: vocab_size = '205': a whole number"),
            ({"activation_function": ["swish"]}, "config.json: activation_function = "),
            ({"d_model": 20.5}, "config.json: d_model = 20.5: a whole number"),
            ({"activation_function": "tanh"}, "activation_function = 'tanh'"),
            ({"normalize_before": True}, "normalize_before = True"),
            ({"decoder_start_token_id": 999}, "a symbol has the id 999"),
            ({"eos_token_id": 7}, "config.json: eos_token_id = 7: this model's is 0: the files are of two models"),
            ({"pad_token_id": 3}, "config.json: pad_token_id = 3: this model's is "),
            ({"decoder_vocab_size": 1}, "config.json: decoder_vocab_size = 1: this model's is "),
            ({"eos_token_id": "</s>"}, "config.json: eos_token_id = '</s>': a whole number"),
            ({"encoder_layers": 900, "decoder_layers": 900}, "its settings ask for a model of 1,800 at least"),
            ({"decoder_start_token_id": "</s>"}, "config.json: decoder_start_token_id = '</s>': a whole number"),
            ({"dropout": "much"}, "dropout"),
            ({"d_model": None}, "d_model"),
            ({"encoder_attention_heads": 3, "decoder_attention_heads": 3}, "heads = 3"),
        ],
    )
    def test_a_configuration_of_another_model(self, copied, changes, expected):
        change(copied / "config.json", **changes)
        assert expected in complaint(copied)

    @pytest.mark.parametrize(
        ("said", "expected"),
        [
            ({"num_beams": 0.5}, "generation_config.json: num_beams = 0.5: a whole number"),
            ({"max_length": "long"}, "max_length = 'long': a whole number"),
            ({"eos_token_id": 7}, "generation_config.json: eos_token_id = 7: this model's is 0"),
            ({"decoder_start_token_id": 7}, "generation_config.json: decoder_start_token_id = 7: this model's is "),
            ({"do_sample": "yes"}, "do_sample = 'yes': true or false"),
            ({"num_beams": 10**9}, "beam size 1000000000"),
            ({"bad_words_ids": [[10**6]]}, "a symbol outside the vocabulary"),
            ({"bad_words_ids": "x"}, "lists of symbols belong here"),
            ({"length_penalty": 10**6}, "length penalty 1000000"),
        ],
    )
    def test_settings_out_of_range(self, copied, said, expected):
        (copied / "generation_config.json").write_text(json.dumps(said))
        assert expected in complaint(copied)

    @pytest.mark.parametrize("name", ["config.json", "vocab.json", "source.spm", "target.spm", "model.safetensors"])
    def test_a_file_that_is_missing_cut_short_or_elsewhere(self, copied, tmp_path, name):
        path, content = copied / name, (copied / name).read_bytes()
        path.write_bytes(content[: len(content) // 2])
        assert name in complaint(copied)
        path.unlink()
        complaint(copied)
        (tmp_path / "elsewhere").write_bytes(content)
        path.symlink_to(tmp_path / "elsewhere")
        assert "a link out of its folder" in complaint(copied)

    @pytest.mark.parametrize(
        ("vocabulary", "expected"),
        [
            ({"</s>": 0}, "lacks <unk>"),
            ({"</s>": 0, "<unk>": 0}, "each its own"),
            ({"</s>": 0, "<unk>": 10**12}, "symbols have numbers from 0"),
            ({"</s>": 0, "<unk>": "1"}, "symbols have numbers from 0"),
            ([], "a JSON object belongs here"),
        ],
    )
    def test_a_vocabulary_of_something_else(self, copied, vocabulary, expected):
        (copied / "vocab.json").write_text(json.dumps(vocabulary))
        change(copied / "config.json", vocab_size=2)
        assert expected in complaint(copied)

    def test_a_vocabulary_without_what_begins_outputs(self, copied):
        ids = _ids(copied)
        ids["[pad]"] = ids.pop("<pad>")
        (copied / "vocab.json").write_text(json.dumps(ids))
        change(copied / "config.json", decoder_start_token_id=None)
        assert "vocab.json: the vocabulary lacks <pad>, and no decoder_start_token_id is given" in complaint(copied)

    def test_weights_that_are_integers(self, copied):
        stored = load_file(copied / "model.safetensors")
        name = "model.encoder.layers.0.fc1.weight"
        save_file(stored | {name: stored[name].long()}, copied / "model.safetensors")
        assert f"model.safetensors: {name} is of int64: only weights of float16" in complaint(copied)

    def test_weights_that_are_no_finite_numbers(self, copied, opus):
        state = opus[1].state_dict() | {"final_logits_bias": torch.full((1, 205), float("nan"))}
        torch.save(state, copied / "pytorch_model.bin")
        (copied / "model.safetensors").unlink()
        assert "no finite numbers" in complaint(copied)


def test_what_came_in_is_fine_tuned_with_its_own_vocabulary(library, spm_folder, tmp_path, capsys):
    """Imported, trained on, and out again: two tokenizers of one vocabulary and one matrix all the way."""
    write(tmp_path / "opus", spm_folder)
    assert main._run(["import", str(tmp_path / "opus"), "--out", str(tmp_path / "in"), "--no-prove"]) == 0
    for side in SIDES:
        (tmp_path / f"text.{side}").write_text("\n".join(sentences(side, 13, seed=2)) + "\n", encoding="utf-8")
    corpus = '{ source = "text.source", target = "text.target" }'
    steps = "batch_tokens = 200\nmax_steps = 3\nwarmup_steps = 1\nlearning_rate = 1e-4\nvalidate_every = 3\n"
    (tmp_path / "domain.toml").write_text(f"[data]\ntrain = {corpus}\ndev = {corpus}\n[train]\n{steps}")
    root = tmp_path / "domain"
    line = ["train", str(tmp_path / "domain.toml"), "--init", str(tmp_path / "in"), "--out", str(root)]
    assert main._run([*line, "--set=generation.max_length=9"]) == 0
    assert "its weights and its vocabulary\n" in capsys.readouterr().err
    old, new = load_bundle(tmp_path / "in"), load_bundle(root)
    assert new.config == old.config
    assert new.tokenizers.shared
    assert new.tokenizers.source.to_json() != new.tokenizers.target.to_json()
    losses = [json.loads(each) for each in (root / "metrics.jsonl").read_text().splitlines()]
    dev = [each["loss"] for each in losses if each["split"] == "dev"]
    assert dev[-1] < dev[0]
    # Its own library writes the same: <s>, which is no copy of padding any longer, stays out of texts there too.
    (tmp_path / "texts").write_text("\n".join(short(sentences("source", 5, seed=3))))
    line = ["export", str(root), "--to", "marianmt", "--out", str(tmp_path / "out")]
    assert main._run([*line, "--sentences", str(tmp_path / "texts")]) == 0


def test_new_tokens_come_before_lengths(copied):
    """transformers counts what the decoder begins with in max_length, and not in max_new_tokens."""
    said = {"max_length": 20, "max_new_tokens": 200, "min_length": 3, "min_new_tokens": 7}
    (copied / "generation_config.json").write_text(json.dumps(said))
    generation = read_marianmt(copied).generation
    assert (generation.max_length, generation.min_length) == (199, 7)
