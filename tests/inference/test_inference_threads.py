"""Threads that share a Translator, with texts of all lengths: every output is the one that a single thread gets."""

import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from transduce.inference import load

pytest_plugins = ["tiny_run"]

THREADS = 8
LONGEST = 3000  # symbols; a table of positions holds 512 at first
OPTIONS = ({"beam_size": 1}, {"beam_size": 2, "n_best": 2}, {"sampling": True, "seed": 5})
# Lengths near the borders of tables and blocks, and a few that are long enough to be shared out among cores.
BORDERS = (1, 2, 15, 16, 17, 510, 511, 512, 513, 1023, 1026, LONGEST - 1)


def make_texts(translator, number, most):
    """Texts of known numbers of symbols, the borders' first, then of any."""
    draw = random.Random(3)
    wanted = [each for each in BORDERS if each <= most]
    wanted += [round(most ** draw.random()) for _ in range(number - len(wanted))]
    texts = []
    for length in wanted:
        words = draw.choices(["bamo", "dulu", "kari", "wemo"], k=length)
        while translator._source.encode([" ".join(words)])[0][length:]:
            words.pop()
        texts.append(" ".join(words) or "kari")
    return texts


def hammer(translator, texts, seconds, **settings):
    """Translate and score in threads until the time is over; how many texts were compared."""
    settings |= {"max_source_length": LONGEST, "first_number": None}  # None: no warnings of limits

    def alone(text, options):
        return translator.translate([text], **options, **settings)[0]

    expected = [[alone(text, options) for text in texts] for options in OPTIONS]
    scores = [translator.score(text, text, max_source_length=LONGEST) for text in texts]
    until = time.monotonic() + seconds

    def work(thread):
        draw, compared = random.Random(thread), 0
        while time.monotonic() < until:
            which = draw.randrange(len(OPTIONS) + 1)
            rows = draw.sample(range(len(texts)), draw.choice([1, 1, 3, len(texts) // 2]))
            some = [texts[row] for row in rows]
            if which == len(OPTIONS):
                # One by one, and then bit for bit: PyTorch's operations round a sentence by the others of its batch.
                found = [translator.score(text, text, max_source_length=LONGEST) for text in some]
                assert found == [scores[row] for row in rows]
            elif OPTIONS[which].get("sampling"):  # samples follow from the number of the text
                assert [alone(text, OPTIONS[which]) for text in some] == [expected[which][row] for row in rows]
            else:
                found = translator.translate(some, **OPTIONS[which], **settings)
                assert found == [expected[which][row] for row in rows]
            compared += len(rows)
        return compared

    with ThreadPoolExecutor(THREADS) as pool:
        return sum(pool.map(work, range(THREADS)))


def test_for_a_moment(trained_run):
    translator = load(trained_run, "int8")
    assert hammer(translator, make_texts(translator, 12, 530), 1, max_length=5) > THREADS


def test_a_search_has_the_cores_that_no_other_one_works_on(trained_run, monkeypatch):
    asked = []
    monkeypatch.setattr("transduce.inference.workers.use_cores", asked.append)
    translator, before = load(trained_run, "int8"), torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        translator.translate(["bamo"], first_number=None)
        assert asked == [3, 0]
        asked.clear()
        translator.translate(["bamo dulu"] * 24, first_number=None)  # eight for each
    finally:
        torch.set_num_threads(before)
    assert asked[0] == 1
    assert asked.count(0) == 3


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["int8", "float32"])
def test_for_minutes(trained_run, precision, capsys):
    translator = load(trained_run, precision)
    compared = hammer(translator, make_texts(translator, 40, LONGEST), 300, max_extra_length=2)
    with capsys.disabled():
        print(f"\n{precision}: {compared:,} texts by {THREADS} threads in five minutes")  # noqa: T201
    assert compared > 1000
