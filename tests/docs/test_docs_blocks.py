"""Every code block of README and the Guides is run on tiny models, or held to what would run it; the rest says why not.

A block that is neither fails: whoever writes one finds out what its reader will. On all other pages commands stand
beside the figures that they print: their options are held to the real commands.
"""

import ast
import importlib.util
import io
import re
import shlex
import shutil
import sys
import tomllib
from functools import partial
from itertools import dropwhile, pairwise
from pathlib import Path

import pytest
import typer
from torch.distributed.run import get_args_parser

import transduce
from docs.hooks.blocks import Block, read_blocks
from transduce.bundle import Bundle, load_bundle, save_bundle
from transduce.cli import main
from transduce.config import GenerationConfig, RunConfig, TransformerConfig, read_run
from transduce.inference import load
from transduce.models import build

pytest_plugins = ["tiny_run", "tiny_treebank"]

ROOT = Path(__file__).parents[2]
NAVIGATION = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
GUIDES = re.findall(r"\S+\.md", NAVIGATION.partition("- Guides:\n")[2].partition("\n  - ")[0])
PAGES = {
    "README.md": ROOT / "README.md",
    "start.md": ROOT / "docs" / "start.md",
    **{name: ROOT / "docs" / name for name in GUIDES},
}
BLOCKS = [
    pytest.param(name, block, id=f"{name}:{block.first + 1}")
    for name, path in PAGES.items()
    for block in read_blocks(path.read_text(encoding="utf-8"))
]
OTHER_PAGES = {
    str(path.relative_to(ROOT / "docs")): path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "docs").rglob("*.md"))
    if path not in PAGES.values()
}

# Run as they stand, on models of this folder. All other verbs are parsed, option by option, by the real command.
RUN = {"translate", "score", "evaluate", "inspect", "search", "attention", "parse", "report", "shortlist"}
PARSED = {
    "demo": "trains for minutes: tests/workflows/test_workflows_demo.py",
    "doctor": "tries a training: tests/cli/test_cli_doctor.py",
    "export": "tests/interop/",
    "heads": "measures every head: tests/cli/test_cli_heads.py",
    "import": "wants models of other libraries: tests/interop/test_import_formats.py",
    "prepare": "README's line is run by tests/cli/test_readme.py",
    "serve": "runs until it is stopped: tests/serving/",
    "train": "trains: README's line is run by tests/cli/test_readme.py, its settings are read here",
    "verify-resume": "trains three times: tests/workflows/test_workflows_verify_resume.py",
}
# What no test runs, by its page and first line.
NOT_RUN = {
    ("exporting.md", "import ctranslate2"): "tests/interop/test_interop_ctranslate2.py does what it does",
    ("exporting.md", "from optimum"): "Optimum is not installed; tests/interop/test_interop_onnx.py runs the graphs",
    ("exporting.md", "import { Auto"): "JavaScript",
    ("exporting.md", "tokens = (\n    tokenizers"): "goes on from Marian's folder: tests/interop/test_marian_itself.py",
    ("serving.md", "from libretranslatepy"): "wants a running server: tests/serving/test_serving_interfaces.py",
    ("training.md", "train.log_every: was"): "what is printed",
    ("scaling.md", "t = 8 P"): "a formula",
    ("translating.md", "<p>"): "what is read and written",
    ("translating.md", '{"id"'): "what is read and written",
    (
        "text.md",
        '{ source = "train.en"',
    ): "kinds of corpora, side by side; each is read by tests/workflows/test_workflows_corpora.py",
}
OTHER_COMMANDS = {
    "cat": "joins files",
    "curl": "wants a running server: tests/serving/",
    "deploy/ssh.sh": "tests/deploy/",
    "kubectl": "wants a cluster; its files are held to their schema by tests/deploy/",
    "podman": "runs an image",
    "sbatch": "wants a cluster: tests/deploy/",
    "source": "a shell's own",
    "sudo": "installs on a machine of one's own",
}


@pytest.fixture(scope="module")
def folder(trained_run, trained_parser, treebank, tmp_path_factory):
    """What the pages speak of, by the names that they use."""
    folder = tmp_path_factory.mktemp("pages")
    (folder / "runs").mkdir()
    runs = ("a", "b", "back", "domain", "reverse", "seed1", "seed2", "seed3", "student", "words")
    for name in ("en-de", *(f"runs/{run}" for run in runs)):
        (folder / name).symlink_to(trained_run)
    for name in ("runs/mine", "RUN"):  # these are written to
        _copy(trained_run, folder / name)
    run_file = folder / "runs/mine/run.toml"
    test = f"[data]\ntest = {{ source = '{folder}/test.en', target = '{folder}/test.de' }}\n"
    with_test = run_file.read_text(encoding="utf-8").replace("[data]\n", test)
    run_file.unlink()
    run_file.write_text(with_test, encoding="utf-8")
    for name in ("runs/parser", "runs/parsing-gum", "runs/parsing-craft", "OTHER"):
        (folder / name).symlink_to(trained_parser)
    for name in ("MODEL", "runs/multi30k"):
        _save_random_model(trained_run, folder / name)
    (folder / "TREES").symlink_to(treebank / "wsj" / "22")
    (folder / "recipes").symlink_to(ROOT / "recipes")
    for name in ("new", "test", "text", "train", "dev"):
        (folder / f"{name}.en").write_text("bamo dulu\nkari\n" * 5, encoding="utf-8")
        (folder / f"{name}.de").write_text("ti sor\nmup\n" * 5, encoding="utf-8")
    for name in ("corpus", "monolingual"):
        (folder / name).mkdir()
        (folder / name / "a.txt").write_text("bamo dulu\nkari\n", encoding="utf-8")
    (folder / "pairs").mkdir()
    (folder / "pairs" / "a.tsv").write_text("bamo dulu\tti sor\n", encoding="utf-8")
    (folder / "names.tsv").write_text("bamo\tti\n", encoding="utf-8")
    (folder / "sentences.txt").write_text("ti bamo fepi .\n", encoding="utf-8")
    (folder / "page.html").write_text("<p>bamo <b>dulu</b></p>\n", encoding="utf-8")
    (folder / "film.en.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\nbamo dulu\n", encoding="utf-8")
    small = "\n[tokenizer]\nvocab_size = 300\n"
    (folder / "mine.toml").write_text(_run_file("") + small, encoding="utf-8")
    return folder


@pytest.mark.parametrize(("page", "block"), BLOCKS)
def test_a_block_of_a_page(page, block, folder, trained_run, tmp_path, monkeypatch, capfd):
    if _reason(page, block):
        return
    monkeypatch.chdir(folder)
    match block.language:
        case "shell":
            for line in _commands(block.text):
                _check_command(line, monkeypatch)
        case "toml":
            Path("block.toml").write_text(_run_file(block.text), encoding="utf-8")
            read_run(Path("block.toml"))
        case "python":
            little = partial(_train_little, transduce.train, tmp_path)
            monkeypatch.setattr(transduce, "train", little)
            _run_python(block.text, load(trained_run, "float32"))
        case "text" if block.text.startswith("$ "):
            _check_command(block.text.partition("\n")[0].removeprefix("$ "), monkeypatch)
        case _:
            pytest.fail("neither run nor said why not: see NOT_RUN")
    capfd.readouterr()


@pytest.mark.parametrize("page", OTHER_PAGES)
def test_commands_beside_figures(page, folder, monkeypatch):
    """In blocks as whole command lines; in a sentence, a verb and its options."""
    monkeypatch.chdir(folder)
    for block in read_blocks(OTHER_PAGES[page]):
        for line in _commands(block.text) if block.language == "shell" else ():
            match _command_itself(shlex.split(line, comments=True)):
                case ["transduce", verb, *rest]:
                    _parse(verb, rest)
                    assert [word for word in rest if word.startswith("recipes/") and not (ROOT / word).is_file()] == []
                case ["python", "-m", module, *rest] if module.startswith("benchmarks."):
                    _check_benchmark(module, rest)
    for found in re.findall(r"(?<!`)`([^`]+)`(?!`)", OTHER_PAGES[page]):
        match _command_itself(found.split()):
            case ["transduce", verb, *rest] if verb.islower() and not verb.startswith("-"):
                known = {option for each in _command(verb).params for option in each.opts}
                assert [word for word in rest if word.partition("=")[0] not in known and word.startswith("--")] == []
            case ["python", "-m", module, *rest] if module.startswith("benchmarks."):
                _check_benchmark(module, rest)


def test_every_reason_is_of_a_block_that_is_there():
    blocks = [param.values for param in BLOCKS]
    gone = [key for key in NOT_RUN if not any(_is_of(key, page, block) for page, block in blocks)]
    assert gone == []


def _reason(page: str, block: Block) -> str | None:
    return next((why for key, why in NOT_RUN.items() if _is_of(key, page, block)), None)


def _is_of(key: tuple[str, str], page: str, block: Block) -> bool:
    return page == key[0] and block.text.startswith(key[1])


def _copy(source: Path, target: Path) -> None:
    """A folder whose files are the other's, until they are written anew."""
    target.mkdir()
    for each in source.iterdir():
        if each.is_dir():  # a model directory holds no links
            shutil.copytree(each, target / each.name)
        else:
            (target / each.name).symlink_to(each)


def _save_random_model(run, folder):
    """A model with the layers and heads that pages name, and the run's vocabulary."""
    tokenizers = load_bundle(run).tokenizers
    sizes = {"encoder_layers": 4, "decoder_layers": 4, "d_model": 18, "d_ff": 16, "heads": 3}
    model = build(TransformerConfig(vocab_size=tokenizers.target.vocab_size, **sizes)).eval()
    save_bundle(Bundle(model, tokenizers, GenerationConfig(max_extra_length=3)), folder)


def _run_file(text: str) -> str:
    """A block as a whole run file: what it lacks is README's."""
    given = tomllib.loads(text)
    parts = [] if "data" in given else ['data.train = { source = "train.en", target = "train.de" }']
    if "dev" not in given.get("data", {}):
        parts.append('data.dev = { source = "dev.en", target = "dev.de" }')
    if "model" not in given:
        parts.append('model.preset = "tiny"')
    return "\n".join([*parts, text])


def _commands(text: str) -> list[str]:
    """Whole command lines, without what is printed under them."""
    lines = text.replace("\\\n", " ")
    joined = re.sub(r"'[^']*'", lambda quoted: quoted[0].replace("\n", " "), lines).splitlines()
    return [line for line in joined if line.strip() and not line.startswith(("#", "0 |||", "millions"))]


def _check_command(line, monkeypatch):
    words = shlex.shlex(line, posix=True, punctuation_chars="|<>")
    words.whitespace_split = True
    tokens = list(words)
    stdin = ""
    while "|" in tokens:
        first, tokens = tokens[: tokens.index("|")], tokens[tokens.index("|") + 1 :]
        assert first[0] == "echo", f"{first}: say how a test would run it"
        stdin = " ".join(first[1:]) + "\n"
    if "<" in tokens:
        stdin = Path(tokens.pop(tokens.index("<") + 1)).read_text(encoding="utf-8")
        tokens.remove("<")
    if ">" in tokens:
        tokens = tokens[: tokens.index(">")]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
    match tokens:
        case ["transduce", verb, *rest] if "ray" in rest:  # an extra: tests/workflows/test_workflows_cluster.py
            _parse(verb, rest)
        case ["transduce", verb, *rest] if verb in RUN:
            assert main._run([verb, *rest]) == 0, line
        case ["transduce", verb, *rest]:
            assert verb in PARSED, f"{verb}: neither run nor said why not"
            _parse(verb, rest)
        case ["torchrun", *rest]:
            given = get_args_parser().parse_args(rest)
            assert given.training_script == "transduce" and given.module
            _parse(given.training_script_args[0], given.training_script_args[1:])
        case ["python", "-m", module, *rest] if module.startswith("benchmarks."):
            _check_benchmark(module, rest)
        case ["pip", "install", *what]:
            _check_extras(what)
        case ["make", target]:
            assert f"\n{target}:" in (ROOT / "Makefile").read_text(encoding="utf-8")
        case [other, *_]:
            assert other in OTHER_COMMANDS, f"{line}: neither run nor said why not"


def _parse(verb, arguments):
    """The real command reads the line: a verb, an option or a value that there is not is an error."""
    command = _command(verb)
    command.make_context(verb, list(arguments), obj=main._Switches())
    settings = [value for name, value in pairwise(arguments) if name == "--set"]
    # A capital letter stands for a value of the reader's own.
    run_files = [each for each in arguments if each.endswith(".toml") and Path(each).is_file()]
    read_run(Path([*run_files, "mine.toml"][0]), [each for each in settings if not re.search(r"=[A-Z]+\b", each)])


def _command(verb):
    return typer.main.get_command(main.app).commands[verb]


def _command_itself(words: list[str]) -> list[str]:
    """Without variables before it (``OMP_NUM_THREADS=1``), what is left out of it, and where its output goes."""
    words = [word for word in dropwhile(lambda word: "=" in word, words) if word != "..."]
    return words[: words.index(">")] if ">" in words else words


def _check_benchmark(module: str, arguments: list[str]) -> None:
    found = importlib.util.find_spec(module)
    assert found is not None and found.origin is not None, f"{module}: there is no such benchmark"
    source = Path(found.origin).read_text(encoding="utf-8")
    assert [option for option in arguments if option.startswith("--") and f'"{option}"' not in source] == []


def _check_extras(what: list[str]) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    asked = [extra for each in what for found in re.findall(r"\[(.*)\]", each) for extra in found.split(",")]
    assert [extra for extra in asked if extra not in extras] == []


def _train_little(train, folder, config, *, out=None, settings=(), **keywords):
    """What a page says of a training, in an empty folder and for two steps."""
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 16, "d_ff": 16, "heads": 2}
    steps = {"max_steps": 2, "log_every": 1, "batch_tokens": 64}
    if isinstance(config, RunConfig):
        changes = {"model": config.model.model_copy(update=sizes), "train": config.train.model_copy(update=steps)}
        return train(config.model_copy(update=changes), out=folder / out, **keywords)
    read_run(config, settings)
    little = {f"model.{name}": size for name, size in sizes.items()}
    little |= {f"train.{name}": value for name, value in steps.items()}
    return train(config, out=folder / (out or "run"), settings=little, **keywords)


def _run_python(text: str, translator: object) -> None:
    """Run a block as a notebook would, with the names that pages take for granted."""
    ast.parse(text)
    names = {"transduce": transduce, "translator": translator, "answers": ["ti sor"], "texts": ["bamo", "dulu"]}
    names |= {"sources": ["bamo dulu"], "targets": ["ti sor"]}
    exec(compile(text, "block", "exec"), names)
