"""``antiphon models``: the named weights on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from antiphon.cli.backend import fetch
from antiphon.cli.console import fail
from antiphon.pipelines import weights
from antiphon.pipelines.errors import WeightError

app = typer.Typer(no_args_is_help=True, help="The named weights: list, pull, verify.")
Names = Annotated[list[str] | None, typer.Argument(help="Names; none means all.")]


@app.command("list")
def list_() -> None:
    """Every weight that has a name, and whether it is here."""
    for name in weights.names():
        about = weights.describe(name)
        here = "installed" if about.installed else "not here "
        print(f"{name:32} {here} {about.disk / 1e6:7.0f} MB  {about.licence:12} {about.title}")


@app.command()
def pull(names: Names = None) -> None:
    """Fetch weights into the cache; afterwards no network is needed."""
    fetch(_known(names))


@app.command()
def verify(names: Names = None) -> None:
    """Read every byte of installed weights and compare hashes."""
    broken = 0
    for name in _known(names):
        if not weights.describe(name).installed and not names:
            continue
        try:
            weights.verify(name)
            print(f"{name}: right")
        except WeightError as error:
            broken += 1
            print(f"{name}: {error}")
    if broken:
        fail(f"{broken} of the weights are wrong")


def _known(names: list[str] | None) -> list[str]:
    unknown = sorted(set(names or ()) - set(weights.names()))
    if unknown:
        fail(f"no weight is named {unknown[0]!r}; there are: {', '.join(weights.names())}", code=2)
    return names or list(weights.names())
