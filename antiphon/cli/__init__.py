"""The command line: the only place that knows every room.

Exit codes: 0 done; 1 the work failed (one line says why and what mends it); 2 the command line or a setting is wrong.
"""

from __future__ import annotations

import sys

import typer

from antiphon.cli import demo, doctor, models, offline, serve, talk
from antiphon.cli.console import fail
from antiphon.codecs.errors import CodecError
from antiphon.pipelines.errors import ConfigError, PipelineError
from antiphon.settings import SettingsError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="A self-hosted realtime voice agent server.",
)
app.command("serve")(serve.serve)
app.command("say")(offline.say)
app.command("transcribe")(offline.transcribe)
app.command("chat")(offline.chat)
app.command("demo")(demo.demo)
app.command("talk")(talk.talk)
app.command("doctor")(doctor.doctor)
app.add_typer(models.app, name="models")


def main() -> None:
    """The ``antiphon`` command."""
    try:
        app()
    except (SettingsError, ConfigError) as error:
        fail(str(error), code=2)
    except (PipelineError, CodecError) as error:
        fail(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
