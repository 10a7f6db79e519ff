"""A made-up task for first steps: English phrases around values that each language writes its own way, in German.

The values (dates, times, numbers, money, measures, percentages, names, lists) are written by Babel from the Unicode
locale data; the phrases around them are below. There are more values than any training could list, so a model has to
learn how they are written.
"""

import datetime
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from babel import Locale, dates, lists, numbers, units

Pair = tuple[str, str]

PHRASES: Final[tuple[Pair, ...]] = (
    ("The report mentions {}.", "Der Bericht erwähnt {}."),
    ("The answer is {}.", "Die Antwort lautet {}."),
    ("Please write {} on the board.", "Bitte schreiben Sie {} an die Tafel."),
    ("We talked about {} yesterday.", "Wir haben gestern über {} gesprochen."),
    ("On the first page you will find {}.", "Auf der ersten Seite finden Sie {}."),
    ("Nobody could explain {} to me.", "Niemand konnte mir {} erklären."),
    ("The teacher repeated {} slowly.", "Die Lehrerin wiederholte {} langsam."),
    ("I always forget {}.", "Ich vergesse immer {}."),
    ("The old letter says {}.", "In dem alten Brief steht {}."),
    ("Why did you choose {}?", "Warum haben Sie {} gewählt?"),
    ("The table begins with {}.", "Die Tabelle beginnt mit {}."),
    ("He pointed at {} and laughed.", "Er zeigte auf {} und lachte."),
    ("Instead of {}, they printed nothing.", "Statt {} druckten sie nichts."),
    ("Can you read {} from here?", "Können Sie {} von hier aus lesen?"),
    ("The newspaper reported {} on Sunday.", "Die Zeitung meldete {} am Sonntag."),
    ("Somebody has crossed out {}.", "Jemand hat {} durchgestrichen."),
)

_UNITS: Final = ("length-kilometer", "mass-kilogram", "temperature-celsius", "volume-liter", "duration-minute")
_CURRENCIES: Final = ("USD", "EUR", "GBP", "JPY")
_LANGUAGES: Final = ("en", "de", "fr", "es", "it", "nl", "pl", "pt", "ru", "sv", "da", "fi", "el", "tr", "ja", "zh")
_TERRITORIES: Final = ("DE", "FR", "ES", "IT", "NL", "PL", "PT", "RU", "SE", "DK", "FI", "GR", "TR", "JP", "CN", "US")

ENGLISH, GERMAN = Locale("en"), Locale("de")


def _both(write: Callable[[Locale], str]) -> Pair:
    # Locale data separates with narrow and no-break spaces; a task for first steps need not.
    english, german = (write(locale).replace("\u202f", " ").replace("\xa0", " ") for locale in (ENGLISH, GERMAN))
    return english, german


def _date(draw: random.Random) -> Pair:
    day = datetime.date(1950, 1, 1) + datetime.timedelta(days=draw.randrange(36_525))
    style = draw.choice(("full", "long", "short"))
    return _both(lambda locale: dates.format_date(day, style, locale))


def _time(draw: random.Random) -> Pair:
    time = datetime.time(draw.randrange(24), draw.randrange(60), draw.randrange(60))
    style = draw.choice(("short", "medium"))
    return _both(lambda locale: dates.format_time(time, style, locale=locale))


def _amount(draw: random.Random) -> float:
    magnitude: int = 10 ** draw.randrange(1, 7)
    return round(draw.random() * magnitude, draw.randrange(3))


def _number(draw: random.Random) -> Pair:
    amount = _amount(draw)
    return _both(lambda locale: numbers.format_decimal(amount, locale=locale))


def _money(draw: random.Random) -> Pair:
    amount, currency = _amount(draw), draw.choice(_CURRENCIES)
    return _both(lambda locale: numbers.format_currency(amount, currency, locale=locale))


def _percentage(draw: random.Random) -> Pair:
    share = round(draw.random(), draw.randrange(2, 5))
    return _both(lambda locale: numbers.format_percent(share, locale=locale, decimal_quantization=False))


def _measure(draw: random.Random) -> Pair:
    amount, unit = round(2 + draw.random() * 998, draw.randrange(2)), draw.choice(_UNITS)
    if draw.random() < 0.5:
        return _both(lambda locale: units.format_unit(amount, unit, length="long", locale=locale))
    return _both(lambda locale: units.format_unit(amount, unit, length="short", locale=locale))


def _name(draw: random.Random) -> Callable[[Locale], str]:
    language, territory, wanted = draw.choice(_LANGUAGES), draw.choice(_TERRITORIES), draw.random() < 0.5
    return lambda locale: locale.languages[language] if wanted else locale.territories[territory]


def _names(draw: random.Random) -> Pair:
    names = [_name(draw) for _ in range(draw.randrange(3, 6))]
    return _both(lambda locale: lists.format_list([name(locale) for name in names], locale=locale))


KINDS: Final[tuple[Callable[[random.Random], Pair], ...]] = (
    _date,
    _time,
    _number,
    _money,
    _percentage,
    _measure,
    _names,
)


@dataclass(frozen=True)
class MadeUpCorpus:
    """Pairs to train on, to watch, and two tests: values never seen, and phrases never seen with such a value."""

    train: list[Pair]
    dev: list[Pair]
    unseen_values: list[Pair]
    unseen_combinations: list[Pair]


def make_phrases(train: int, test: int, seed: int) -> MadeUpCorpus:
    """Draw a corpus: ``train`` training pairs, and ``test`` pairs each for dev and for the two tests.

    One in four combinations of a phrase with a kind of value never occurs in training or dev. No value of a test
    occurs in training, and no value occurs twice.
    """
    draw = random.Random(seed)
    combinations = [(phrase, kind) for phrase in range(len(PHRASES)) for kind in range(len(KINDS))]
    draw.shuffle(combinations)
    held_out = combinations[: len(combinations) // 4]
    known = combinations[len(combinations) // 4 :]
    seen: set[str] = set()
    unseen_values, unseen_combinations, dev = (
        list(_draw_pairs(draw, source, test, seen)) for source in (known, held_out, known)
    )
    return MadeUpCorpus(list(_draw_pairs(draw, known, train, seen)), dev, unseen_values, unseen_combinations)


def _draw_pairs(draw: random.Random, combinations: list[tuple[int, int]], count: int, seen: set[str]) -> Iterator[Pair]:
    while count:
        phrase, kind = draw.choice(combinations)
        value = KINDS[kind](draw)
        if value[0] in seen:
            continue
        seen.add(value[0])
        count -= 1
        source, target = PHRASES[phrase]
        yield source.format(value[0]), target.format(value[1])
