import logging

import pytest

from transduce.bundle import load_bundle
from transduce.config import BadInputError
from transduce.inference import Engine, Translation
from transduce.inference.paragraphs import translate_paragraphs
from transduce.inference.translation import warn_of_limits
from transduce.search import SearchSettings

pytest_plugins = ["tiny_run"]

# The made-up language has no full stops: a blank line ends a sentence too.
DOCUMENT = " bamo dulu kari\n\nwemo \r\n\r\n\tfepi luso\n"
LONG = "bamo kari " * 400


def scripted(answers):
    """A translator of sentences that answers from a list; what is not on it fails the test."""
    return lambda sentences: [
        Translation(answers[sentence] if sentence else "", -1.0, -0.5, tuple(answers.get(sentence, "").split()))
        for sentence in sentences
    ]


def join(text, answers, language="en"):
    (translation,) = translate_paragraphs([text], language, scripted(answers))
    return translation


def test_what_stood_between_sentences_stands_between_their_translations(translator):
    (output,) = translator.translate([DOCUMENT], paragraphs=True)
    assert output.text == " ti sor mup\n\nyob \r\n\r\n\tnal hax\n"
    assert output.tokens == (" ti", " sor", " mup", " yob", " nal", " hax")
    assert output.attention is None
    assert not output.at_limit


def test_probabilities_and_scores_are_sums_over_the_sentences(translator):
    sentences = translator.translate(["bamo dulu kari", "wemo", "fepi luso"])
    (output,) = translator.translate([DOCUMENT], paragraphs=True)
    assert output.log_probability == pytest.approx(sum(each.log_probability for each in sentences), abs=1e-4)
    assert output.score == pytest.approx(sum(each.score for each in sentences), abs=1e-4)
    assert output.score != pytest.approx(output.log_probability)


@pytest.mark.parametrize("text", ["wemo", "bamo dulu kari", "", " \t\n", "Dr. bamo", "wemo."])
def test_one_sentence_gives_what_it_gives_without_the_option(translator, text):
    assert translator.translate([text], paragraphs=True) == translator.translate([text])


@pytest.mark.parametrize("text", ["  wemo ", "wemo\n", "\n\nwemo", "wemo\r\n"])
def test_white_space_around_one_sentence_stays_too(translator, text):
    (found,), (alone,) = translator.translate([text], paragraphs=True, n_best=2), translator.translate(["wemo"])
    assert found.text == text.replace("wemo", "yob")
    assert found.log_probability == pytest.approx(alone.log_probability, abs=1e-4)
    assert found.alternatives[0].text.strip()


def test_every_text_gets_its_own_sentences_back(translator):
    texts = ["wemo", "", "kari\n\nluso gozu", " ", "bamo\n\nbamo\n\ndulu"]
    outputs = translator.translate(texts, paragraphs=True)
    assert [each.text for each in outputs] == ["yob", "", "mup\n\nhax ved", "", "ti\n\nti\n\nsor"]
    assert translator.translate([], paragraphs=True) == []


def test_all_sentences_of_all_texts_are_translated_together():
    calls = []
    answers = {"One.": "Eins.", "Two!": "Zwei!", "Three?": "Drei?"}

    def translate(sentences):
        calls.append(sentences)
        return scripted(answers)(sentences)

    outputs = translate_paragraphs(["One. Two!", "Three?"], "en", translate)
    assert calls == [["One.", "Two!", "Three?"]]
    assert [each.text for each in outputs] == ["Eins. Zwei!", "Drei?"]
    assert (outputs[0].log_probability, outputs[0].score, outputs[0].tokens) == (-2, -1, ("Eins.", "Zwei!"))


def test_the_language_chooses_the_rules():
    assert join("Am 3. Mai. Gut.", {"Am 3. Mai.": "On May 3.", "Gut.": "Good."}, "de").text == "On May 3. Good."
    assert join("Am 3. Mai. Gut.", {"Am 3.": "a", "Mai.": "b", "Gut.": "c"}, "en").text == "a b c"


def test_a_space_comes_in_where_only_the_translation_needs_one():
    answers = {"好。": "Good.", "「好。」": "“Good.”", "“好。”": "“Good.”", "我走。": "I go."}
    assert join("好。我走。", answers, "zh").text == "Good. I go."
    assert join("好。「好。」我走。", answers, "zh").text == "Good. “Good.” I go."
    assert join("“好。”我走。", answers, "zh").text == "“Good.” I go."  # these marks are as wide as their neighbours
    assert join("好。\n我走。", answers, "zh").text == "Good.\nI go."
    assert join("好。我走。", {"好。": "良い。", "我走。": "行く。"}, "zh").text == "良い。行く。"
    assert join("Good.Bye. Yes.", {"Good.": "好。", "Bye.": "走。", "Yes.": "是。"}).text == "好。走。 是。"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"paragraphs": True, "return_attention": True}, "attention"),
        ({"paragraphs": True, "language": "german"}, "'german'"),
        ({"language": "de"}, "'de'"),
    ],
)
def test_options_that_exclude_each_other_are_named(translator, options, named):
    with pytest.raises(BadInputError, match=named):
        translator.translate(["wemo"], **options)


def test_alternatives_of_a_text_are_those_of_its_sentences():
    def output(text, *others):
        alternatives = tuple(Translation(other, -2.0, -1.0, (other,)) for other in others)
        return Translation(text, -1.0, -0.5, (text,), alternatives=alternatives)

    answers = {"One.": output("a", "b", "c"), "Two.": output("d", "e"), "Three.": output("f")}
    (found,) = translate_paragraphs(["One. Two. Three."], "en", lambda sentences: [answers[each] for each in sentences])
    assert [found.text, *(each.text for each in found.alternatives)] == ["a d f", "b e f", "c d f"]
    assert [found.log_probability, *(each.log_probability for each in found.alternatives)] == [-3.0, -5.0, -4.0]


def test_a_line_far_longer_than_any_in_training_is_read_to_its_end(translator, trained_run):
    """Training had 6 words at most; 800 words all have their column in the attention, and the last one counts."""
    symbols = len(load_bundle(trained_run).tokenizers.source.encode([LONG + "bamo"])[0])
    assert symbols >= 801
    (output,) = translator.translate([LONG + "bamo"], beam_size=1, return_attention=True)
    assert output.attention.shape[2] == symbols + 1  # the end symbol
    assert (output.attention[:, :, -2] > 0).all()
    one, other = translator.score([LONG + "bamo", LONG + "wemo"], ["ti", "ti"])
    assert one != pytest.approx(other, abs=1e-6)


def test_a_long_line_may_have_a_long_output(translator):
    """Sentence by sentence, 400 of them give 400 outputs: nothing on the way counts lines or words."""
    (output,) = translator.translate(["bamo kari\n\n" * 400], beam_size=1, paragraphs=True)
    assert output.text == "ti mup\n\n" * 400


def test_an_output_that_was_cut_is_named(translator, trained_run, caplog):
    """Greedy search over unknown letters runs into its limit: with more room it writes more."""
    texts = ["wemo", "q" * 29, "", "kari", "q" * 31]
    bundle = load_bundle(trained_run)
    sources = bundle.tokenizers.source.encode(texts)
    special = bundle.tokenizers.special
    settings = SearchSettings(special.begin, special.end, (special.pad, special.begin, special.unknown), beam_size=1)
    roomy = Engine(bundle.model, special, "float32").search([each for each in sources if each], settings, 300)
    with caplog.at_level(logging.WARNING):
        outputs = translator.translate(texts, beam_size=1)
    assert [each.at_limit for each in outputs] == [False, True, False, False, True]
    for index, found in zip([0, 1, 3, 4], roomy, strict=True):
        assert outputs[index].at_limit == (len(found[0].ids) > len(outputs[index].tokens))
    (record,) = caplog.records
    assert record.name == "transduce.inference"
    assert record.message.startswith("text 2, 5: the output reached the length limit")
    assert "max_extra_length" in record.message
    assert "--paragraphs" in record.message


def test_a_paragraph_is_named_by_its_own_number(translator, caplog):
    outputs = translator.translate(["wemo\n\nkari", f"wemo\n\n{'q' * 29}\n\nkari"], 1, paragraphs=True, first_number=70)
    assert [each.at_limit for each in outputs] == [False, True]
    assert caplog.messages[0].startswith("text 71: ")


def test_no_warning_without_a_cause_or_where_none_is_wanted(translator, caplog):
    translator.translate(["wemo", "kari bamo", ""])
    translator.translate(["q" * 29], beam_size=1, first_number=None)
    assert caplog.messages == []


def test_a_warning_stays_one_line_however_many_were_cut(caplog):
    cut, whole = (Translation("", 0.0, 0.0, (), at_limit=at_limit) for at_limit in (True, False))
    warn_of_limits([whole, *[cut] * 13], 1)
    assert caplog.messages[0].startswith("text 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 3 more: ")
