"""What a preset says beside the model (schedule, tokenizer, beam) arrives in a run, and does there what it says."""

import math
import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from transduce.bundle import Bundle
from transduce.config import PUBLISHED, BadInputError, DataConfig, GenerationConfig, TrainConfig, preset, read_run
from transduce.data import DuplicateFinder, PairFilter
from transduce.data.plan import plan_window
from transduce.inference import Translator
from transduce.models import build
from transduce.text import TokenizerPair, learn_bpe, learn_tokenizer
from transduce.training import (
    Progress,
    is_over,
    learning_rate,
    list_checkpoints,
    look,
    make_optimizer,
    save_checkpoint,
)
from transduce.training.step import constant_rate, cooldown
from transduce.training.validation import _candidates
from transduce.workflows.prepare import prepare
from transduce.workflows.run_directory import RunDirectory

pytest_plugins = ["tiny_run"]

FIELDS = [
    (name, section, field)
    for name, published in PUBLISHED.items()
    for section, changes in published.regime.items()
    for field in changes
]


def check_learning_rate_factor(value, *_):
    """At every step the rate of section 5.3 so many times over."""
    for step in (1, 97, 4000, 40_009):
        rate = value * 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
        assert learning_rate(step, 512, 4000, TrainConfig(learning_rate_factor=value).learning_rate_factor) == rate


def check_learning_rate(value, *_):
    """In place of the paper's: reached at the end of the warm-up, and kept."""
    rate = TrainConfig(learning_rate=value).learning_rate
    assert [constant_rate(step, rate, 600) for step in (300, 600, 9000)] == [value / 2, value, value]


def check_cooldown_steps(value, *_):
    """Whole until so many steps are left, then in a straight line to almost nothing."""
    last = 3 * value
    rates = [cooldown(step, last, value) for step in (2 * value, 2 * value + 1, last - value // 2 + 1, last)]
    assert rates == pytest.approx([1, 1, 0.5, 1 / value])


def check_batch_tokens(value, *_):
    """The longest row times the number of rows, padding counted; one row more of the longest would not fit."""
    lengths = np.full(5000, 7)
    batches = plan_window(lengths, lengths, value, (1,))
    assert max(map(len, batches)) == value // 7


def check_warmup_steps(value, *_):
    rates = {step: learning_rate(step, 512, value, 1.0) for step in range(max(value - 997, 1), value + 997)}
    assert max(rates, key=rates.__getitem__) == value
    assert rates[value] == pytest.approx(512**-0.5 * value**-0.5)


def check_adam_beta2(value, *_):
    """Kingma and Ba 2015, algorithm 1: after gradients of 3 and 5, v is (1 - b) (9 b + 25) / (1 - b^2)."""
    weight = torch.nn.Linear(1, 1, bias=False, dtype=torch.float64)
    optimizer = make_optimizer(weight, TrainConfig(adam_beta2=value))
    optimizer.param_groups[0]["lr"] = 0.1
    torch.nn.init.zeros_(weight.weight)
    expected = 0.0
    for step, gradients in ((1, [3.0]), (2, [3.0, 5.0])):
        weight.weight.grad = torch.full_like(weight.weight, gradients[-1])
        optimizer.step()
        means = []
        for beta, power in ((0.9, 1), (value, 2)):
            past = sum((1 - beta) * beta ** (step - 1 - i) * g**power for i, g in enumerate(gradients))
            means.append(past / (1 - beta**step))
        expected -= 0.1 * means[0] / (math.sqrt(means[1]) + 1e-9)
        assert weight.weight.item() == pytest.approx(expected, rel=1e-6)


def check_max_steps(value, *_):
    config = TrainConfig(max_steps=value)
    assert [is_over(config, step, 1e9) for step in (value - 1, value)] == [False, True]


def checkpoints(folder, keep, last):
    """Checkpoints of a weight that is its step's number."""
    model = torch.nn.Linear(1, 1, bias=False)
    for step in range(1, last + 1):
        torch.nn.init.constant_(model.weight, float(step))
        optimizer = make_optimizer(model, TrainConfig())
        save_checkpoint(folder, look(model, optimizer, Progress(step=step)), keep=keep)
    return model


def check_keep_checkpoints(value, folder, _):
    checkpoints(folder, TrainConfig(keep_checkpoints=value).keep_checkpoints, value + 3)
    assert [step for step, _ in list_checkpoints(folder)] == list(range(4, value + 4))


def check_average_last(value, folder, _):
    """On dev, beside the model as it is, the mean of it and of the newest checkpoints: so many in all."""
    model = checkpoints(folder, value, value + 2)
    torch.nn.init.constant_(model.weight, float(value + 3))
    config = TrainConfig(average_last=value, keep_checkpoints=value)
    (_, one), (averaged, count) = _candidates(
        SimpleNamespace(model=model, config=config, checkpoints=folder), value + 3
    )
    assert (one, count) == (1, value)
    assert averaged.weight.item() == pytest.approx(sum(range(4, value + 4)) / value)


def check_max_length(value, *_):
    """Counted with the end symbol."""
    lines = {"source": "a", "target": "b"}
    data = DataConfig.model_validate({"train": lines, "dev": lines, "max_length": value})
    accepted = PairFilter(data, [], DuplicateFinder())
    flaws = [accepted.length_flaw([7] * length, [7] * (value - 1)) for length in (value - 1, value)]
    assert flaws == [None, "too long"]


def check_vocab_size(value, *_):
    """A twentieth of it (300 at least), of a text of random words that has more to merge."""
    chance = random.Random(3)
    words = ["".join(chance.choices("abcdefghijklmnop", k=6)) for _ in range(1500)]
    size = max(value // 20, 300)
    assert learn_bpe([" ".join(words)] * 2, size).vocab_size == size


def check_kind(value, *_):
    """The longest pieces that the vocabulary has, first to last (section 5.1's word pieces); no byte pair merges.

    Or characters, each alone, or words, each whole.
    """
    text = ["abab abab abac ababac"] * 3
    if value == "characters":
        characters = learn_tokenizer(value, text, 300)
        assert len(characters.encode(["ababac"])[0]) == len("ababac")
        return
    if value == "words":
        assert len(learn_tokenizer(value, text, 30).encode(["ababac abab"])[0]) == 2
        return
    tokenizer = learn_tokenizer(value, text, 30)
    pieces = tokenizer.tokens(tokenizer.encode(["ababac"])[0])
    assert "".join(piece.removeprefix("##").strip() for piece in pieces) == "ababac"
    assert not any(token.startswith("<0x") for token in tokenizer.vocabulary)


def check_side(_, folder, fixture):
    """Each side has a vocabulary of its own, learned from its own lines, and the source an embedding of its own."""
    sides = ["tokenizer.vocab_size=300", "tokenizer.source.vocab_size=310", "tokenizer.target.vocab_size=320"]
    config = read_run(fixture("tiny_run_file"), ["model.preset=base-enfr", "tokenizer.kind=bpe", *sides])
    tokenizers = prepare(config, RunDirectory(folder)).tokenizers
    assert not tokenizers.shared
    assert tokenizers.source.vocabulary.keys() != tokenizers.target.vocabulary.keys()
    assert tokenizers.sizes().keys() == {"vocab_size", "source_vocab_size"}


@pytest.fixture
def translator():
    """A new model whose end symbol is as probable as none: greedy search runs into its limit."""

    def make(**generation):
        torch.manual_seed(3)
        tokenizer = learn_bpe(["bamo dulu fepi gozu kari"] * 3, 300)
        sizes = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 14, "d_ff": 22, "heads": 2}
        model = build(preset("base", {**sizes, "vocab_size": tokenizer.vocab_size})).eval()
        with torch.no_grad():
            model.embedding.weight[tokenizer.special.end] = 0
        return Translator(Bundle(model, TokenizerPair.of(tokenizer), GenerationConfig(**generation)), "float32")

    return make


def check_beam_size(value, _, fixture):
    wide = fixture("translator")(beam_size=value, max_extra_length=1)
    (output,) = wide.translate(["bamo"], n_best=value)
    assert len({output.tokens, *(each.tokens for each in output.alternatives)}) == value
    with pytest.raises(BadInputError, match=f"the beam keeps {value} hypotheses"):
        wide.translate(["bamo"], n_best=value + 1)


def check_length_penalty(value, _, fixture):
    """((5 + |y|) / 6)^alpha; the end symbol counts."""
    (output,) = fixture("translator")(length_penalty=value, max_extra_length=5).translate(["bamo dulu"])
    assert output.score == pytest.approx(output.log_probability / ((5 + len(output.tokens) + 1) / 6) ** value)


def check_max_extra_length(value, _, fixture):
    """So many symbols more than the source has, its end symbol and the output's both counted."""
    found = fixture("translator")(max_extra_length=value)
    source = found.count_tokens(["bamo dulu"])
    (output,) = found.translate(["bamo dulu"], beam_size=1)
    assert len(output.tokens) + 1 == source + value


PREDICTIONS = {
    "train.learning_rate_factor": check_learning_rate_factor,
    "train.learning_rate": check_learning_rate,
    "train.cooldown_steps": check_cooldown_steps,
    "train.batch_tokens": check_batch_tokens,
    "train.warmup_steps": check_warmup_steps,
    "train.adam_beta2": check_adam_beta2,
    "train.max_steps": check_max_steps,
    "train.keep_checkpoints": check_keep_checkpoints,
    "train.average_last": check_average_last,
    "data.max_length": check_max_length,
    "tokenizer.vocab_size": check_vocab_size,
    "tokenizer.kind": check_kind,
    "tokenizer.source": check_side,
    "tokenizer.target": check_side,
    "generation.beam_size": check_beam_size,
    "generation.length_penalty": check_length_penalty,
    "generation.max_extra_length": check_max_extra_length,
}


@pytest.mark.parametrize(("name", "section", "field"), FIELDS)
def test_it_arrives_in_a_run_and_gives_way_to_what_the_run_says(name, section, field, tmp_path):
    path = tmp_path / "bare.toml"
    path.write_text('[data]\ntrain = { pairs = "a.tsv" }\ndev = { pairs = "b.tsv" }\n')
    table, value = read_run(path, [f"model.preset={name}"]), PUBLISHED[name].regime[section][field]
    if value == {}:  # a side with its own vocabulary, of the kind and size that the table has for both
        side, both = getattr(table.tokenizer, field), table.tokenizer
        assert (side.kind, side.vocab_size) == (both.kind, both.vocab_size)
    else:
        assert getattr(getattr(table, section), field) == value
        changed = read_run(path, [f"model.preset={name}", *GIVEN[field]])
        assert getattr(getattr(changed, section), field) != value


# What a run may say instead; what else has to change with it comes first.
GIVEN = {
    "learning_rate_factor": ["train.learning_rate_factor=3.0"],
    "warmup_steps": ["train.warmup_steps=3"],
    "adam_beta2": ["train.adam_beta2=0.9"],
    "max_steps": ["train.cooldown_steps=0", "train.max_steps=3"],
    "cooldown_steps": ["train.cooldown_steps=3"],
    "learning_rate": ["train.learning_rate=0.1"],
    "batch_tokens": ["train.batch_tokens=300"],
    "average_last": ["train.average_last=3"],
    "keep_checkpoints": ["train.average_last=3", "train.keep_checkpoints=3"],
    "max_length": ["data.max_length=3"],
    "kind": ["tokenizer.kind=bpe"],
    "vocab_size": ["tokenizer.vocab_size=300"],
    "beam_size": ["generation.beam_size=3"],
    "length_penalty": ["generation.length_penalty=0.9"],
    "max_extra_length": ["generation.max_extra_length=3"],
}


@pytest.mark.parametrize(
    ("field", "value"),
    sorted({(f"{section}.{field}", str(PUBLISHED[name].regime[section][field])) for name, section, field in FIELDS}),
)
def test_it_does_what_it_says(field, value, tmp_path, request):
    """Presets share values, and each is tried once; one without a prediction fails."""
    number = value if field.endswith("kind") or value == "{}" else float(value) if "." in value else int(value)
    PREDICTIONS[field](number, tmp_path / "run", request.getfixturevalue)
