"""A text that has no output fails alone: it is named, or given back, and the others are translated."""

import math
import time

import pytest
import torch

from transduce.bundle import load_bundle
from transduce.config import BadInputError, TransduceError
from transduce.inference import Translator, text_search
from transduce.inference.alignment import align
from transduce.models import NO_ATTENTION

pytest_plugins = ["tiny_run"]

TEXTS = ["bamo dulu", "wemo", "", "kari"]
LONG = "bamo kari " * 2000


@pytest.fixture
def cramped(trained_run, monkeypatch):
    """A translator whose memory is enough for so many symbols of a source at a time."""
    translator = Translator(load_bundle(trained_run), "float32")
    model = translator._engine._model
    encode = model.encode

    def limit(symbols):
        def cramped(source):
            if source.ids.numel() > symbols:
                raise RuntimeError(f"DefaultCPUAllocator: can't allocate memory for {source.ids.numel()} symbols")
            return encode(source)

        monkeypatch.setattr(model, "encode", cramped)
        return translator

    return limit


def test_what_cannot_be_met_is_given_back_and_the_others_are_translated(translator):
    options = {"prefixes": ["", "ti " * 40, "", ""], "errors": "return"}
    found = translator.translate(TEXTS, **options)
    free = translator.translate(TEXTS)
    assert [each.text for each in found] == [free[0].text, "", "", free[3].text]
    assert [each.error is None for each in found] == [True, False, True, True]
    assert found[1].error.startswith("the search found no output of at most ")
    assert (found[1].score, found[1].log_probability, found[1].tokens) == (-math.inf, -math.inf, ())
    with pytest.raises(BadInputError, match=r"^text 8: the search found no output"):
        translator.translate(TEXTS, prefixes=options["prefixes"], first_number=7)


def test_a_search_that_finds_nothing_is_given_back_too(translator):
    """The prefix fits in, but not with the phrase."""
    wanted = [[], ["ti sor mup nal ved yob hax"], [], []]
    found = translator.translate(TEXTS, must_contain=wanted, max_length=4, errors="return")
    assert [each.error is None for each in found] == [True, False, True, True]
    assert found[1].error.endswith("or raise max_length")
    found = translator.translate(TEXTS, must_contain=wanted, errors="return", max_extra_length=0)
    assert found[1].error.endswith("or raise max_extra_length")


def test_a_text_that_is_too_long_fails_alone(translator):
    found = translator.translate([*TEXTS, LONG], errors="return")
    assert [each.text for each in found[:4]] == [each.text for each in translator.translate(TEXTS)]
    symbols = len(translator._source.encode([LONG])[0])
    assert found[4].error.startswith(f"{symbols:,} symbols, but at most 2,048 are read (max_source_length): split it")
    with pytest.raises(BadInputError, match=r"^text 5: .* \(max_source_length\)"):
        translator.translate([*TEXTS, LONG])
    short = translator.translate(TEXTS, max_source_length=1, errors="return")
    assert [each.error is None for each in short] == [False, True, True, True]
    (one,) = translator.translate(["bamo dulu"], max_source_length=2)
    assert one.text == "ti sor"


def test_with_errors_raised_nothing_is_searched_once_one_is_too_long(translator, monkeypatch):
    monkeypatch.setattr(translator._engine, "search", None)
    with pytest.raises(BadInputError, match=r"^text 2: "):
        translator.translate(["bamo", LONG])


@pytest.mark.parametrize("paragraphs", [False, True])
@pytest.mark.parametrize(
    "text",
    ["bamo kari " * 500_000, "q" * 20_000, "q" * 2**24, " " * 200_000, " " * 200_000 + "bamo", "bamo\u00a0" * 10**6],
    ids=["1,000,000 words", "20,000 letters", "16 MiB", "spaces", "spaces and a word", "wide spaces"],
)
def test_no_text_takes_long(translator, text, paragraphs):
    began = time.monotonic()
    first, odd, last = translator.translate(["bamo", text, "wemo"], errors="return", paragraphs=paragraphs)
    assert (first.text, last.text) == ("ti", "yob")
    # Between sentences, white space is no part of any.
    assert (odd.error is None) == (not text.strip() or (paragraphs and text.strip() == "bamo"))
    scores = translator.score(["bamo", text, "bamo"], [text, "ti", "ti"], errors="return")
    assert [math.isnan(score) for score in scores] == [True, True, False]
    assert time.monotonic() - began < 60


def test_a_paragraph_fails_with_its_sentence(translator):
    found = translator.translate(
        [f"wemo\n\n{'q' * 60}\n\nkari", "bamo"], paragraphs=True, max_source_length=9, errors="return"
    )
    assert found[0].error.startswith(f"'{'q' * 40}...': ")
    assert (found[0].text, found[1].text) == ("", "ti")


def test_memory_that_is_too_small_for_one_fails_that_one(cramped):
    translator = cramped(4)
    found = translator.translate(["bamo", "bamo dulu kari fepi luso", "wemo"], errors="return")
    assert [each.text for each in found] == ["ti", "", "yob"]
    assert found[1].error.startswith("too little memory for its 5 symbols (DefaultCPUAllocator: can't allocate memory")
    with pytest.raises(TransduceError, match=r"^text 2: too little memory") as caught:
        translator.translate(["bamo", "bamo dulu kari fepi luso", "wemo"])
    assert caught.value.status == 1
    scores = translator.score(["bamo", "bamo dulu kari fepi luso", "wemo"], ["ti", "ti", "yob"], errors="return")
    assert [math.isnan(score) for score in scores] == [False, True, False]
    with pytest.raises(TransduceError, match=r"^pair 2: too little memory"):
        translator.score(["bamo", "bamo dulu kari fepi luso", "wemo"], ["ti", "ti", "yob"])


def test_memory_that_is_too_small_for_all_is_enough_for_parts(cramped, translator):
    texts = ["bamo dulu", "wemo", "kari kari", "fepi luso gozu"] * 3
    found = cramped(8).translate(texts, return_alignment=True)
    assert [each.text for each in found] == [each.text for each in translator.translate(texts)]
    scores = cramped(8).score(texts, texts)
    assert scores == pytest.approx(translator.score(texts, texts), abs=1e-4)


def test_memory_that_is_too_small_for_attention_fails_that_text(trained_run, monkeypatch):
    """The search has found its output already."""
    translator = Translator(load_bundle(trained_run), "float32")
    model = translator._engine._model
    decode = model.decode

    def cramped(memory, target, *, attention=NO_ATTENTION):
        if attention.cross and target.ids.shape[1] > 3:
            raise MemoryError
        return decode(memory, target, attention=attention)

    monkeypatch.setattr(model, "decode", cramped)
    found = translator.translate(["bamo", "bamo dulu kari"], return_alignment=True, errors="return")
    assert found[0].alignment == ((0, 0),)
    assert found[1].error == (
        "too little memory for its 3 symbols (MemoryError): split it (--paragraphs, or paragraphs=True), or take a "
        "smaller beam"
    )


def test_of_many_texts_the_attention_of_a_batch_is_kept_at_a_time(trained_run, monkeypatch):
    """Each output is made as soon as its own is there."""
    translator, events = Translator(load_bundle(trained_run), "float32"), []
    monkeypatch.setattr(translator._engine, "_batch_tokens", 1)
    decode = translator._engine._model.decode

    def looking(memory, target, *, attention=NO_ATTENTION):
        events.append("looked")
        return decode(memory, target, attention=attention)

    def aligning(*arguments):
        events.append("aligned")
        return align(*arguments)

    assert translator.has_alignments
    monkeypatch.setattr(translator._engine._model, "decode", looking)
    monkeypatch.setattr(text_search, "align", aligning)
    translator.translate(["bamo", "bamo dulu", "wemo"], return_alignment=True)
    assert events == ["looked", "aligned"] * 3


def test_pairs_that_cannot_be_scored_are_named(translator, caplog):
    scores = translator.score(["bamo", LONG, "bamo"], ["ti", "ti", LONG], errors="return", first_number=40)
    assert [math.isnan(score) for score in scores] == [False, True, True]
    assert [message.partition(": ")[0] for message in caplog.messages] == ["source 41", "target 42"]
    with pytest.raises(BadInputError, match=r"^source 2: "):
        translator.score(["bamo", LONG, "bamo"], ["ti", "ti", LONG])
    allowed = translator.score(["bamo"], [LONG], max_source_length=5000)
    assert math.isfinite(allowed[0])


def test_logits_in_pieces_give_the_same_scores(translator, monkeypatch):
    sources, targets = ["bamo dulu", "wemo", "kari kari luso"], ["ti sor", "yob", "mup mup hax"]
    whole = translator.score(sources, targets)
    rows = []
    model = translator._engine._model
    project = model.project
    monkeypatch.setattr(model, "project", lambda hidden: rows.append(len(hidden)) or project(hidden))
    monkeypatch.setattr("transduce.search.scoring._LOGITS", 3 * translator._target.vocab_size)
    assert translator.score(sources, targets) == pytest.approx(whole, abs=1e-5)
    assert max(rows) == 3


def test_a_limit_of_the_output_is_named_by_the_option_that_is_in_force(translator, caplog):
    translator.translate(["bamo dulu kari"], max_length=2)
    translator.translate(["q" * 29], beam_size=1)
    assert "allow more (--max-length, or max_length in" in caplog.messages[0]
    assert "allow more (--max-extra-length, or max_extra_length in" in caplog.messages[1]


def test_a_failure_is_no_warning_of_a_limit(translator, caplog):
    translator.translate(["bamo", LONG], errors="return", max_length=1)
    assert [message.partition(":")[0] for message in caplog.messages] == ["text 1"]


def test_the_state_of_the_search_is_left_as_it_was(cramped):
    cramped(4).translate(["bamo dulu kari fepi luso"], errors="return")
    assert not torch.is_inference_mode_enabled()


@pytest.mark.parametrize("paragraphs", [False, True])
def test_a_string_that_is_no_text_fails_alone(translator, paragraphs):
    found = translator.translate(["bamo", "wemo. Bamo \udfff.", "wemo"], errors="return", paragraphs=paragraphs)
    assert [each.text for each in found] == ["ti", "", "yob"]
    assert "character 12 is half of a surrogate pair" in found[1].error


def test_a_prefix_of_a_million_words_takes_no_memory(translator):
    """All sentences of a batch would have a table of its length."""
    found = translator.translate(["bamo"] * 60, prefixes=["ti " * 300_000, *[""] * 59], errors="return")
    assert [each.error is None for each in found] == [False] + [True] * 59


def test_an_interrupt_ends_the_searches_that_are_under_way(translator, monkeypatch):
    """Threads that go on would keep the cores, and the process, until all is translated."""
    engine, asked = translator._engine, []
    request = engine.request

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, "request", lambda *given, **named: asked.append(request(*given, **named)) or asked[-1])
    monkeypatch.setattr(engine, "_serve", interrupt)
    with pytest.raises(KeyboardInterrupt):
        translator.translate(TEXTS)
    assert len(asked) == 3
    assert all(each.cancelled for each in asked)
