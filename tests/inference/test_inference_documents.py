import pytest

from transduce.config import BadInputError, TransduceError
from transduce.inference import Translation, translate_documents
from transduce.inference.translation import failed
from transduce.text import Markup

PAGES = ["<p>one <b>two</b></p><p>three</p>", "four", "<p>5</p>"]


def output(text, *alternatives):
    """Words reversed, with their alignment."""
    words = text.split()
    pairs = tuple((word, len(words) - 1 - word) for word in range(len(words)))
    return Translation(" ".join(reversed(words)), 0.0, 0.0, (), alignment=pairs, alternatives=alternatives)


def translate(pages, answer):
    asked = []

    def once(texts):
        asked.append(texts)
        return [answer(text) for text in texts]

    found = translate_documents([Markup.read(page) for page in pages], once)
    return found, asked


def test_texts_of_all_documents_go_through_one_call():
    found, asked = translate(PAGES, output)
    assert asked == [["one two", "three", "four"]]
    assert [each.text for each in found] == ["<p><b>two</b> one</p><p>three</p>", "four", "<p>5</p>"]
    assert [(each.alternatives, each.failures) for each in found] == [((), ())] * 3
    found[0].check()
    assert translate(["<p>5</p>"], output)[1] == []  # nothing to ask


def test_alternatives_are_made_of_those_of_the_sentences():
    (page, *_), _ = translate(PAGES, lambda text: output(text, output(text.upper())) if "two" in text else output(text))
    assert page.text == "<p><b>two</b> one</p><p>three</p>"
    assert page.alternatives == ("<p><b>TWO</b> ONE</p><p>three</p>",)


@pytest.mark.parametrize("failure", [failed("too long"), BadInputError("too long")])
def test_a_sentence_that_fails_stays_as_it_is(failure):
    (page, other, _), _ = translate(PAGES, lambda text: failure if "two" in text else output(text.upper()))
    assert page.text == "<p>one <b>two</b></p><p>THREE</p>"
    assert page.failures == ("'one two': too long",)
    with pytest.raises(TransduceError, match=r"^1 sentences have no output \(they stay as they were\): 'one two': too"):
        page.check()
    assert (other.text, other.failures) == ("FOUR", ())


def test_of_many_failures_the_first_are_named():
    (page,), _ = translate(["<p>a b" * 13], lambda _: failed("too long"))
    with pytest.raises(TransduceError, match=r"^13 sentences .*; and 3 more$"):
        page.check()
