"""Files of each kind, and how it is used: ``python families.py KIND FOLDER CASES SEED``, in a process of its own.

Every case damages one file and reads all of them. It must end in an error of ours of one line, or in a result.
"""

import gzip
import json
import random
import resource
import shutil
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from damage import damage  # type: ignore[import-not-found] # beside this script
from pyarrow import parquet

from transduce.config import BadInputError, Corpus, TransduceError, read_run, write_run
from transduce.data import Store, read_corpus, write_store
from transduce.text import Tokenizer, import_sentencepiece, learn_tokenizer

TEXTS = ["the cat sat on the mat", "a dog, and 12 cats", "", "<s> \u4e2d\U0001f642 </s>", "x" * 300]
LINES = [f"the {a} sat on the {b}" for a in ("cat", "dog", "cow") for b in ("mat", "rug", "bed", "hay")] * 3
GIB = 2**30


@dataclass(frozen=True)
class Family:
    """How whole files are made in a folder, and how they are used there."""

    make: Callable[[Path], None]
    use: Callable[[Path], object]
    limit: int = 3 * GIB  # of address space beyond what the process has before


def make_model(folder):
    import torch

    from transduce.bundle import Bundle, save_bundle
    from transduce.config import GenerationConfig, TransformerConfig
    from transduce.models import build
    from transduce.text import TokenizerPair

    torch.manual_seed(1)
    tokenizer = learn_tokenizer("bpe", LINES, 300)
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 8, "d_ff": 12, "heads": 2}
    config = TransformerConfig(**sizes, vocab_size=tokenizer.vocab_size)
    save_bundle(Bundle(build(config), TokenizerPair.of(tokenizer), GenerationConfig(max_extra_length=3)), folder)


def use_model(folder: Path) -> None:
    from transduce.bundle import load_bundle
    from transduce.inference import Translator

    bundle = load_bundle(folder)
    few = bundle.generation.beam_size <= 8 and bundle.generation.max_extra_length <= 50
    if few:  # what else is asked for is allowed, and takes its time
        outputs = Translator(bundle, "float32").translate(TEXTS)
        assert len(outputs) == len(TEXTS)


def make_tokenizer(kind):
    return lambda folder: learn_tokenizer(kind, LINES, 330).save(folder / "tokenizer.json")


def use_tokenizer(folder: Path) -> None:
    exercise(Tokenizer.load(folder / "tokenizer.json"))


def exercise(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(TEXTS)
    assert len(ids) == len(tokenizer.decode(ids)) == len(TEXTS)
    assert all(0 <= index < tokenizer.vocab_size for line in ids for index in line)
    assert len(tokenizer.pieces(TEXTS[0])) >= 0


def make_sentencepiece(kind: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        import sentencepiece

        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(LINES),
            model_prefix=str(folder / "m"),
            vocab_size=40,
            model_type=kind,
            minloglevel=2,
            hard_vocab_limit=False,
        )
        (folder / "m.vocab").unlink()

    return make


def use_sentencepiece(folder: Path) -> None:
    exercise(import_sentencepiece(folder / "m.model"))


def make_store(folder: Path) -> None:
    pairs = (([i, i + 1] * (i % 5), [7] * (i % 3), i % 2) for i in range(100))
    write_store(folder / "train.arrow", pairs, {"text": "0123"})


def use_store(folder: Path) -> None:
    store = Store(folder / "train.arrow")
    store.verify()
    pairs = [store.pair(index) for index in range(len(store))]
    assert store.count(0) + store.count(1) == len(pairs)
    assert store.tokens == tuple(sum(len(ids) for ids in side) for side in zip(*pairs, strict=True))
    assert sum(int(ids.sum()) for pair in pairs for ids in pair) is not None  # every id is touched


def make_run(folder: Path) -> None:
    recipes = Path(__file__).parents[2] / "recipes"
    shutil.copy(recipes / "multi30k.toml", folder / "run.toml")


def use_run(folder: Path) -> None:
    config = read_run(folder / "run.toml")
    write_run(config, folder / "again.toml")
    assert read_run(folder / "again.toml") == config


CORPORA = {
    "plain": Corpus(source="a.txt", target="b.txt"),
    "gz": Corpus(source="a.gz", target="b.txt"),
    "zst": Corpus(source="a.zst", target="b.txt"),
    "tsv": Corpus(pairs="p.tsv"),
    "jsonl": Corpus(pairs="p.jsonl"),
    "parquet": Corpus(pairs="p.parquet"),
}


def make_corpora(folder: Path) -> None:
    text = "".join(f"{line}\n" for line in LINES).encode()
    (folder / "a.txt").write_bytes(text)
    (folder / "b.txt").write_bytes(text)
    (folder / "a.gz").write_bytes(gzip.compress(text, mtime=0))
    with pa.output_stream(str(folder / "a.zst"), compression="zstd") as stream:
        stream.write(text)
    (folder / "p.tsv").write_text("".join(f"{line}\t{line}\n" for line in LINES))
    (folder / "p.jsonl").write_text("".join(json.dumps({"source": line, "target": "12"}) + "\n" for line in LINES))
    parquet.write_table(pa.table({"source": LINES, "target": LINES}), folder / "p.parquet")


def use_corpora(folder: Path) -> None:
    refused = []
    for corpus in CORPORA.values():
        for drop in (False, True):
            try:
                for source, target in read_corpus(corpus, folder, keep_invalid=drop):
                    assert isinstance(source, str)
                    assert isinstance(target, str)
            except BadInputError as error:
                refused.append(error)
    if refused:
        raise refused[0]


FAMILIES = {
    "model": Family(make_model, use_model),
    **{name: Family(make_tokenizer(name), use_tokenizer) for name in ("bpe", "wordpiece", "words", "characters")},
    **{name: Family(make_sentencepiece(name), use_sentencepiece) for name in ("unigram",)},
    "sentencepiece-bpe": Family(make_sentencepiece("bpe"), use_sentencepiece),
    "store": Family(make_store, use_store),
    "run": Family(make_run, use_run),
    "corpora": Family(make_corpora, use_corpora),
}


def try_case(family: Family, whole: dict[str, bytes], folder: Path, case: int) -> str:
    """``refused`` or ``read``, or the trace of what should not have happened."""
    chance = random.Random(case)
    name = chance.choice(sorted(whole))
    changed = damage(whole[name], [*whole.values(), b"", b"{}", b"[]", b"null"], chance)
    (folder / name).write_bytes(changed)
    try:
        family.use(folder)
    except TransduceError as error:  # of weights that are finite, and no model's, search says so
        return "refused" if len(str(error).splitlines()) == 1 else f"case {case}: several lines: {error}"
    except BaseException:
        return f"case {case} ({name}): {traceback.format_exc()}"
    finally:
        (folder / name).write_bytes(whole[name])
    return "read"


def limit_memory(more: int) -> None:
    used = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmSize:"))
    resource.setrlimit(resource.RLIMIT_AS, (1024 * int(used.split()[1]) + more,) * 2)


def report(case: int, outcome: str) -> None:
    sys.stdout.write(json.dumps([case, outcome]) + "\n")
    sys.stdout.flush()


def main() -> None:
    kind, folder, cases, seed = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    family = FAMILIES[kind]
    family.make(folder)
    family.use(folder)  # whole, it is read; and all modules are there before memory is limited
    whole = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "again.toml"}
    limit_memory(family.limit)
    for case in range(seed, seed + cases):
        report(case, "begins")  # the last word of a process that dies
        report(case, try_case(family, whole, folder, case))


if __name__ == "__main__":
    main()
