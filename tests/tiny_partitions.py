"""A random model, and a folder of partitions in every format that is read; test modules ask for them."""

import gzip
import json
import random

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.random_bundle import random_bundle
from transduce.bundle import save_bundle


def _sentences(number, chance):
    return [" ".join(f"w{chance.randint(4, 30)}" for _ in range(chance.randint(1, 7))) for _ in range(number)]


@pytest.fixture(scope="session")
def random_model(tmp_path_factory):
    """The directory of a model that nobody has trained."""
    path = tmp_path_factory.mktemp("bulk") / "model"
    save_bundle(random_bundle(), path)
    return path


@pytest.fixture(scope="session")
def partitions(tmp_path_factory):
    """Six partitions, of which two lie deeper; nothing may be written into it."""
    folder, chance = tmp_path_factory.mktemp("partitions"), random.Random(3)
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "a.txt").write_text("".join(f"{line}\n" for line in ["", *_sentences(17, chance)]))
    (folder / "b.txt.gz").write_bytes(gzip.compress("\n".join(_sentences(11, chance)).encode()))
    with pa.output_stream(str(folder / "c.zst"), compression="zstd") as stream:
        stream.write("".join(f"{line}\n" for line in _sentences(13, chance)).encode())
    objects = [{"text": line, "page": number, "source": "web"} for number, line in enumerate(_sentences(5, chance))]
    (folder / "deep" / "d.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in objects))
    for name, rows in (("e", 19), ("f", 7)):
        lines = _sentences(rows, chance)
        table = pa.table({"page": pa.array(range(rows), pa.int16()), "text": lines, "score": [["x"]] * rows})
        parquet.write_table(table, folder / "deep" / "er" / f"{name}.parquet", row_group_size=5)
    return folder


def read_folder(folder):
    """The bytes of every file, but for the record that the folder keeps."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "_transduce.json"
    }
