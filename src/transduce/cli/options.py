"""Options that several verbs share."""

from pathlib import Path
from typing import Annotated, Literal

import typer

RunFile = Annotated[Path, typer.Argument(metavar="RUN.toml", help="The run file.")]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", file_okay=False, help="The run directory. [default: runs/NAME]")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of the run file; may be given several times."),
]
ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", help="A model or run directory.")]
BeamSize = Annotated[int | None, typer.Option(help="Open hypotheses; 1 is greedy. [default: the model's]")]
MaxSourceLength = Annotated[
    int | None,
    typer.Option(help="Most tokens of a line that is read; a longer one fails alone. [default: the model's]"),
]
PrecisionOption = Annotated[
    Literal["auto", "float32", "bfloat16", "int8"], typer.Option(help="Number format of the products.")
]
