"""The notebooks run from their first cell to their last, at small sizes: what is injected behind their parameters."""

import asyncio
import base64
import gzip
import json
import re
from pathlib import Path

import nbformat
import pytest
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

from docs.hooks.links import targets
from docs.hooks.notebooks import to_markdown
from transduce.data.phrases import make_phrases

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
BYTES = 300_000  # of a notebook, the pictures that it keeps included
DIGITS = list(range(4, 14))


@pytest.fixture(scope="module")
def kernel():
    """One process for all notebooks, which loads PyTorch once; each begins without the others' names."""
    started = AsyncKernelManager(kernel_name="python3")
    yield started
    asyncio.run(started.shutdown_kernel(now=True))


@pytest.fixture
def run(kernel):
    def run(name, parameters):
        """The notebook as it is once it has run, and what all its cells printed."""
        notebook = nbformat.read(ROOT / "notebooks" / name, as_version=4)
        (place,) = [
            number for number, cell in enumerate(notebook.cells) if "parameters" in cell.metadata.get("tags", ())
        ]
        notebook.cells.insert(place + 1, nbformat.v4.new_code_cell(parameters))
        notebook.cells.insert(0, nbformat.v4.new_code_cell("%reset -f"))
        folder = {"metadata": {"path": str(ROOT / "notebooks")}}
        NotebookClient(notebook, km=kernel, resources=folder, timeout=300, startup_timeout=300).execute(reset_kc=False)
        outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
        return outputs, "".join(output.get("text", "") for output in outputs)

    return run


@pytest.fixture(scope="module")
def captions(tmp_path_factory):
    """A folder with the files of Multi30k, of a made-up task."""
    folder = tmp_path_factory.mktemp("captions")
    corpus = make_phrases(train=300, test=20, seed=5)
    for part, pairs in {"train": corpus.train, "val": corpus.dev, "test2016": corpus.unseen_values}.items():
        for side, language in enumerate(("en", "de")):
            text = "".join(f"{pair[side]}\n" for pair in pairs)
            (folder / f"{part}.{language}.gz").write_bytes(gzip.compress(text.encode()))
    return folder


def test_the_copy_task_learns_something_and_draws_what_it_says(run):
    outputs, printed = run("copy-task.ipynb", "STEPS, ROWS = 12, 8")
    assert "hidden states (8, 64)  scores (8, 14)" in printed
    first, last = map(float, re.search(r"([\d.]+) at the first step, ([\d.]+) at the last", printed).groups())
    assert last < first < 6
    assert f"in  {DIGITS}" in printed
    assert re.search(r"^\d+ of 200$", printed, flags=re.M)
    assert len(_pictures(outputs)) == 6


def test_multi30k_goes_from_text_to_pictures_of_attention(run, captions, tmp_path):
    small = ["model.d_model=16", "model.d_ff=16", "model.heads=2", "tokenizer.vocab_size=300", "train.average_last=1"]
    small += ["train.max_steps=4", "train.warmup_steps=1", "train.cooldown_steps=1", "train.log_every=2"]
    small += ["train.validate_every=4", "train.checkpoint_every=4", "train.batch_tokens=128"]
    small += ["model.encoder_layers=1", "model.decoder_layers=1", "generation.max_extra_length=3"]
    parameters = f"DATA, MODEL, TEST, CHANGES = {str(captions)!r}, {str(tmp_path / 'run')!r}, 7, {small}"
    outputs, printed = run("multi30k.ipynb", parameters)
    assert "vocab_size = 4000" in printed  # the recipe, as it stands
    assert len(re.findall(r"^ *-?\d+\.\d\d  ", printed, flags=re.M)) == 3  # so many translations of one sentence
    assert re.search(r"^\d+\.\d BLEU \(nrefs:1", printed, flags=re.M)
    assert len(_pictures(outputs)) == 3  # the curve, a head, all heads
    assert "<iframe" in "".join(output.get("data", {}).get("text/html", "") for output in outputs)
    assert (tmp_path / "run" / "attention.html").read_text(encoding="utf-8").startswith("<!")


def _pictures(outputs):
    found = [output["data"]["image/png"] for output in outputs if "image/png" in output.get("data", {})]
    assert all(base64.b64decode(picture).startswith(b"\x89PNG") for picture in found)
    return found


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_whole_and_small_and_uses_public_names_alone(path):
    text = path.read_text(encoding="utf-8")
    nbformat.validate(nbformat.reads(text, as_version=4))
    assert len(text) < BYTES
    page = to_markdown(text)
    assert [target for target in targets(page, f"notebooks/{path.name}") if not (ROOT / target).exists()] == []
    imported = re.findall(r"^(?:from|import) (transduce\S*)(?: import (.+))?$", page, flags=re.M)
    assert imported
    # What is public stands in the __init__ of its room.
    assert [name for name in imported if name[0].count(".") > 1 or re.search(r"\b_", name[1])] == []
    assert str(ROOT) not in text


def test_a_notebook_becomes_a_page_with_what_it_printed_and_drew():
    code = {"cell_type": "code", "source": ["1 +\n", "1"], "outputs": []}
    printed = {"output_type": "stream", "name": "stdout", "text": ["two\n"]}
    drawn = {"output_type": "display_data", "data": {"image/png": "QUJD\n", "text/plain": ["<Figure>"]}}
    cells = [{"cell_type": "markdown", "source": ["# Title\n", "text"]}, code | {"outputs": [printed, drawn]}]
    page = to_markdown(json.dumps({"cells": cells}))
    assert page == (
        "# Title\ntext\n\n```python\n1 +\n1\n```\n\n```text\ntwo\n```\n\n"
        "![what the cell draws](data:image/png;base64,QUJD)\n"
    )
