"""Two SentencePiece models of made-up languages, and the vocabulary that both share, as OPUS-MT's models have them."""

import random
from pathlib import Path
from typing import Final, Literal

import pytest
import sentencepiece as spm

SIDES: Final = ("source", "target")
_VOWELS: Final = {"source": "aeiou", "target": "aeiouäöü"}
_CONSONANTS: Final = {"source": "bdfgklmnprst", "target": "bdfgklmnprstwzж中"}


def sentences(side: str, count: int, seed: int = 1) -> list[str]:
    """Sentences of one language; both have words in common, and only the target's has some characters."""
    draws = random.Random(seed)

    def word() -> str:
        syllables = range(draws.randint(1, 4))
        return "".join(draws.choice(_CONSONANTS[side]) + draws.choice(_VOWELS[side]) for _ in syllables)

    words = [word() for _ in range(150)]
    odd = [] if side == "source" else ["中国", "жж", *(f"{word}中国" for word in words[:20])]
    return [
        " ".join(draws.choices([*words, *odd], k=draws.randint(2, 9))).capitalize() + draws.choice([".", "!", ","])
        for _ in range(count)
    ]


def learn(folder: Path, kind: Literal["unigram", "bpe"] = "unigram", pieces: int = 120) -> None:
    """Write ``source.spm`` and ``target.spm``."""
    for side in SIDES:
        (folder / f"{side}.txt").write_text("\n".join(sentences(side, 400)), encoding="utf-8")
        spm.SentencePieceTrainer.train(
            input=str(folder / f"{side}.txt"),
            model_prefix=str(folder / side),
            vocab_size=pieces,
            model_type=kind,
            character_coverage=1.0,
            minloglevel=2,
        )
        (folder / f"{side}.model").rename(folder / f"{side}.spm")
        for left in (f"{side}.txt", f"{side}.vocab"):
            (folder / left).unlink()


def pieces_of(path: Path) -> list[str]:
    """A model's pieces, without its control symbols."""
    model = spm.SentencePieceProcessor(str(path))
    return [model.id_to_piece(i) for i in range(len(model)) if not (model.is_control(i) or model.is_unknown(i))]


@pytest.fixture(scope="session")
def spm_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both models, of unigrams."""
    folder: Path = tmp_path_factory.mktemp("two spm")
    learn(folder)
    return folder
