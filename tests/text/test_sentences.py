import sys
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from transduce.config import BadInputError, TransduceError
from transduce.text import split_sentences

# A bar stands where one sentence ends and the next begins; the white space around it is the separator.
RIGHT = {
    "en": [
        "Dr. Smith met Mr. and Mrs. Jones.| They talked.",
        "We sell fruit, e.g. apples, i.e. the best.| Come in!",
        "It costs 3.14 dollars.| It weighs 1.5 kg.| That is cheap.",
        "He said “Go away. Now!” and left.| She stayed.",
        "“Who’s there?” he asked.| “Me.”",
        "He asked: “Who are you?”| She did not answer.",
        "Wait... what?| Yes.",
        "Wait...| What?| Yes.",
        "He paused… then he spoke.",
        "What?!| No!!| Really.",
        "I am J. R. Smith.| Hello.",
        "He lives in the U.S.| He likes it.",
        "He knocked at No. 10 at 3.30 p.m. on Jan. 5.| Nobody came.",
        "He won (really!) twice.| Then he left.",
        "Visit www.example.com.| Then go.",
        "Hard lines\nmay be wrapped.|\nThis is the next.",
        "A title|\n\nand its text.|\n\n\n Another.",
    ],
    "de": [
        "Wir kommen am 3. Mai.| Das ist gut.",
        "Am 3. 5. 2020 war es.| Es war 1999.| Dann kam 2000.",
        "Das ist z. B. Obst, d. h. gesund, u. a. Äpfel.| Gut.",
        "Z.B. Äpfel.| Herr Prof. Dr. Meier sprach.",
        "Das kostet 1.000,50 Euro.| Billig!",
        "„Komm her!“, sagte er.| Sie ging.",
        "Er sagte: „Ich gehe. Komm mit.“| Sie blieb.",
        "Heinrich VIII. war König.| Er starb.",
    ],
    "fr": ["Mme Curie est là.| Il dit « Bonjour ! Ça va ? ».| Oui."],
    "es": ["El Sr. García llegó.| ¿Y usted?| ¡Vamos!"],
    "ru": ["А. С. Пушкин родился в 1799 г. в Москве.| Он поэт."],
    "el": ["Τι κάνεις;| Καλά."],
    "hi": ["यह है।| वह है।"],
    "ar": ["كيف حالك؟| أنا بخير."],
    "zh": ["你好。|我很好！|你呢？"],
    "ja": ["今日は晴れです。|明日は雨です。"],
}
# Where the library is wrong: what it does, and beside it what a person would do. A test that fails here is good news.
WRONG = {
    "de": [
        ("Im 19.| Jahrhundert lebte er.", "Im 19. Jahrhundert lebte er."),  # it knows ordinals before months only
        ("Am 21.| Dezember, also bald.", "Am 21. Dezember, also bald."),  # and no month before a comma
        ("Er kam usw. Dann ging er.", "Er kam usw.| Dann ging er."),
    ],
    "fr": [("M.| Dupont est là.", "M. Dupont est là.")],
    "en": [
        ("(This is it.) Next one.", "(This is it.)| Next one."),
        ("He paused … Then he spoke.", "He paused …| Then he spoke."),
        ("1.| First.| 2.| Second.", "1. First.| 2. Second."),
        ("Visit example.|Com now.", "Visit example.Com now."),
        ("A title\n \nand its text.", "A title|\n \nand its text."),  # spaces on the blank line hide it
    ],
    "ja": [("「行こう。」|と言った。", "「行こう。」と言った。")],
}


def barred(text, language):
    """The text with a bar behind every sentence but the last."""
    parts = split_sentences(text, language)
    return "".join(f"{sentence}|{separator}" for sentence, separator in parts[:-1]) + "".join(parts[-1])


@pytest.mark.parametrize(
    ("language", "expected"), [(language, text) for language, texts in RIGHT.items() for text in texts]
)
def test_sentences_end_where_a_person_ends_them(language, expected):
    assert barred(expected.replace("|", ""), language) == expected


@pytest.mark.parametrize(
    ("language", "found", "wanted"), [(language, *texts) for language, pairs in WRONG.items() for texts in pairs]
)
def test_where_the_library_errs(language, found, wanted):
    text = wanted.replace("|", "")
    assert found.replace("|", "") == text
    assert barred(text, language) == found


def test_separators_are_the_white_space():
    assert split_sentences(" \tOne.\r\n\r\n Two!  Three \n") == [
        ("", " \t"),
        ("One.", "\r\n\r\n "),
        ("Two!", "  "),
        ("Three", " \n"),
    ]
    assert split_sentences("") == []
    assert split_sentences(" \n\u3000") == [("", " \n\u3000")]


@given(
    st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(".!?。…\"'“”()[]1aB \n\r\t\u00a0\u3000")),
    st.sampled_from(["en", "de", "fr", "ja", "hi", "th", "nds", "de-AT"]),
)
@example("Vitamin B\u00a0. Gut", "de")
@example("B\u2028.", "en")
@example("a\r\n\r\nb", "en")
def test_all_of_it_joined_is_the_text(text, language):
    parts = split_sentences(text, language)
    assert "".join(sentence + separator for sentence, separator in parts) == text
    for number, (sentence, separator) in enumerate(parts):
        assert sentence or number == 0
        assert sentence == sentence.strip()
        assert not separator.strip()


def test_line_feeds_end_sentences_where_that_is_asked_for():
    text = "Eggs \n milk\r\n\nand salt. Go!\n"
    assert split_sentences(text, at_line_feeds=True) == [
        ("Eggs", " \n "),
        ("milk", "\r\n\n"),
        ("and salt.", " "),
        ("Go!", "\n"),
    ]
    assert split_sentences("Eggs\nmilk") == [("Eggs\nmilk", "")]


def test_a_long_text_is_split_as_its_parts_are():
    assert split_sentences("Dr. Wer kommt am 3. Mai.  " * 5003, "de") == [("Dr. Wer kommt am 3. Mai.", "  ")] * 5003


@pytest.mark.parametrize("sentence", ["今日は晴れです。", "“Yes. ", "He said: “Go.” ", "x" * 9_000 + ". "])
def test_time_grows_with_the_size(sentence):
    """Of a text of 200,000 characters; all at once, the library would take most of a minute."""
    began = time.process_time()
    split_sentences(sentence * (200_000 // len(sentence)), "ja")
    assert time.process_time() - began < 5


@pytest.mark.parametrize("code", ["de", "DE", "de-AT", "de_DE"])
def test_a_region_and_capitals_count_for_nothing(code):
    text = "Wir kommen am 3. Mai. Gut."
    assert len(split_sentences(text, code)) == 2
    assert len(split_sentences(text, "en")) == 3  # English has no ordinals with a full stop


@pytest.mark.parametrize("code", ["", "german", "d", "de en", "Deutsch", "12"])
def test_what_is_no_language_code_is_named(code):
    with pytest.raises(BadInputError, match=f"language '{code}'"):
        split_sentences("Gut.", code)


@pytest.mark.parametrize(("code", "meant"), [("jp", "ja"), ("CZ", "cs"), ("gr", "el"), ("deu", "de"), ("eng-GB", "en")])
def test_a_code_that_is_taken_for_anothers_is_named_with_it(code, meant):
    """The library would take English's rules without a word."""
    with pytest.raises(BadInputError, match=f"language '{code}': did you mean '{meant}'"):
        split_sentences("Gut.", code)


@pytest.mark.parametrize("code", ["xx", "qq", "zz-ZZ"])
def test_a_language_that_there_is_not_is_named(code):
    with pytest.raises(BadInputError, match=f"language '{code}': there is no such language"):
        split_sentences("Gut.", code)


@pytest.mark.parametrize("code", ["sv", "ko", "nds", "ast", "br"])
def test_a_language_without_rules_of_its_own_is_split_by_anothers(code):
    assert len(split_sentences("Ja. Nej.", code)) == 2


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencex", None)
    with pytest.raises(TransduceError, match=r"transduce\[paragraphs\]"):
        split_sentences("Gut.")
