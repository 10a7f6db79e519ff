"""The --help of a verb: its options in sections."""

from typing import Any, Final, final

from typer.core import TyperCommand

_REST: Final = "Options"


@final
class Verb(TyperCommand):
    """A verb whose --help lists each option in the section that it names as its ``rich_help_panel``.

    Typer's own sections are boxes with a column for everything, which cut the names of options on 80 columns.
    """

    def format_options(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - Typer's own copy of click, or click
        """Write the arguments, then the sections in the order of their first options, then what is in none."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        rest: list[tuple[str, str]] = []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            if parameter.param_type_name == "argument":
                name, text = record
                # That it is a path, its text says.
                sections["Arguments"].append((name.removesuffix(" <path>").removesuffix(" <list[Path]>"), text))
            elif (title := getattr(parameter, "rich_help_panel", None)) is not None:
                sections.setdefault(title, []).append(record)
            else:
                rest.append(record)
        for title, records in {**sections, _REST: rest}.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)
