"""A made-up task for first steps: English phrases around values that each language writes its own way, in German.

The values (dates, times, numbers, money, measures, percentages, names, lists) are written by Babel from the Unicode
locale data; the phrases around them are below. There are more values than any training could list, so a model has to
learn how they are written.
"""

import datetime
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Final, Literal

from babel import Locale, dates, lists, numbers, units

Pair = tuple[str, str]
Kind = Callable[[random.Random], Pair]

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
_LENGTHS: Final[tuple[Literal["short", "long"], ...]] = ("short", "long")
_CURRENCIES: Final = ("USD", "EUR", "GBP", "JPY")
_LANGUAGES: Final = ("en", "de", "fr", "es", "it", "nl", "pl", "pt", "ru", "sv", "da", "fi", "el", "tr", "ja", "zh")
_TERRITORIES: Final = ("DE", "FR", "ES", "IT", "NL", "PL", "PT", "RU", "SE", "DK", "FI", "GR", "TR", "JP", "CN", "US")

ENGLISH, GERMAN = Locale("en"), Locale("de")


def _both(write: Callable[[Locale], str]) -> Pair:
    # Locale data separates with narrow and no-break spaces; a task for first steps need not.
    english, german = (write(locale).replace("\u202f", " ").replace("\xa0", " ") for locale in (ENGLISH, GERMAN))
    return english, german


def _date(style: str, draw: random.Random) -> Pair:
    day = datetime.date(1950, 1, 1) + datetime.timedelta(days=draw.randrange(36_525))
    return _both(lambda locale: dates.format_date(day, style, locale))


def _time(style: str, draw: random.Random) -> Pair:
    time = datetime.time(draw.randrange(24), draw.randrange(60), draw.randrange(60))
    return _both(lambda locale: dates.format_time(time, style, locale=locale))


def _amount(draw: random.Random, decimals: int) -> float:
    magnitude: int = 10 ** draw.randrange(1, 7)
    return round(draw.random() * magnitude, decimals)


def _number(decimals: int, draw: random.Random) -> Pair:
    amount = _amount(draw, decimals)
    return _both(lambda locale: numbers.format_decimal(amount, locale=locale))


def _money(currency: str, draw: random.Random) -> Pair:
    amount = _amount(draw, draw.randrange(3))
    return _both(lambda locale: numbers.format_currency(amount, currency, locale=locale))


def _percentage(decimals: int, draw: random.Random) -> Pair:
    share = round(draw.random(), 2 + decimals)
    return _both(lambda locale: numbers.format_percent(share, locale=locale, decimal_quantization=False))


def _measure(unit: str, length: Literal["short", "long"], draw: random.Random) -> Pair:
    amount = round(2 + draw.random() * 998, draw.randrange(2))
    return _both(lambda locale: units.format_unit(amount, unit, length=length, locale=locale))


def _name(draw: random.Random) -> Callable[[Locale], str]:
    language, territory, wanted = draw.choice(_LANGUAGES), draw.choice(_TERRITORIES), draw.random() < 0.5
    return lambda locale: locale.languages[language] if wanted else locale.territories[territory]


def _names(count: int, draw: random.Random) -> Pair:
    names = [_name(draw) for _ in range(count)]
    return _both(lambda locale: lists.format_list([name(locale) for name in names], locale=locale))


# Kinds of values, by what they have in common; each way of writing is a kind of its own.
FAMILIES: Final[tuple[tuple[Kind, ...], ...]] = (
    tuple(partial(_date, style) for style in ("full", "long", "short")),
    tuple(partial(_time, style) for style in ("short", "medium")),
    tuple(partial(_number, decimals) for decimals in range(3)),
    tuple(partial(_money, currency) for currency in _CURRENCIES),
    tuple(partial(_percentage, decimals) for decimals in range(3)),
    tuple(partial(_measure, unit, length) for unit in _UNITS for length in _LENGTHS),
    tuple(partial(_names, count) for count in range(3, 6)),
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

    One in four combinations of a phrase with a kind of value (long dates, pounds, kilograms spelled out ...) never
    occurs in training or dev. No value of a test occurs in training, and no value occurs twice.
    """
    draw = random.Random(seed)
    combinations = [
        _Combination(phrase, kind, 1 / len(family)) for phrase in PHRASES for family in FAMILIES for kind in family
    ]
    draw.shuffle(combinations)
    held_out = combinations[: len(combinations) // 4]
    known = combinations[len(combinations) // 4 :]
    seen: set[str] = set()
    unseen_values, unseen_combinations, dev = (
        list(_draw_pairs(draw, source, test, seen)) for source in (known, held_out, known)
    )
    return MadeUpCorpus(list(_draw_pairs(draw, known, train, seen)), dev, unseen_values, unseen_combinations)


@dataclass(frozen=True)
class _Combination:
    """A phrase and a kind of value; families of many kinds are drawn no more often than those of few."""

    phrase: Pair
    kind: Kind
    weight: float


def _draw_pairs(draw: random.Random, combinations: list[_Combination], count: int, seen: set[str]) -> Iterator[Pair]:
    weights = list(accumulate(combination.weight for combination in combinations))
    while count:
        [drawn] = draw.choices(combinations, cum_weights=weights)
        value = drawn.kind(draw)
        if value[0] in seen:
            continue
        seen.add(value[0])
        count -= 1
        source, target = drawn.phrase
        yield source.format(value[0]), target.format(value[1])
