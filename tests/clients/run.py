"""Hold the server against stock clients, unmodified: ``python -m tests.clients.run [--only NAME] [--stub] [--json FILE]``.

Each client does a text turn, a spoken turn from a recording, a forced tool call with its answer, and an interruption.
The server is the real one on the CPU voice in its default processes; ``--stub`` is for work on the scripts themselves.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.clients import environment, serving

CHECKS = ("text_turn", "spoken_turn", "tool_call", "barge_in")
CLIENT_S = 180


@dataclass(frozen=True)
class Client:
    """A client: its script, the language it is in, and what it is called where it comes from."""

    script: str
    language: str
    title: str


CLIENTS = (
    Client("openai_ga", "py", "openai Python, GA"),
    Client("openai_beta", "py", "openai Python, beta"),
    Client("openai_agents", "py", "openai-agents Python"),
    Client("livekit_realtime", "py", "livekit-plugins-openai RealtimeModel"),
    Client("pipecat_realtime", "py", "pipecat-ai OpenAIRealtimeLLMService"),
    Client("openai_ga", "js", "npm openai, GA (ws)"),
    Client("openai_beta", "js", "npm openai, beta (ws)"),
    Client("agents_realtime", "js", "@openai/agents-realtime WebSocket"),
    Client("realtime_api_beta", "js", "openai-realtime-api, beta"),
)


@contextlib.contextmanager
def served(command: list[str], running_at: int | None = None) -> Iterator[dict[str, str]]:
    """A server, started or (``running_at`` a port) found, as the environment variables that the scripts read."""
    cert, key = environment.certificate()
    found = serving.server(command) if running_at is None else contextlib.nullcontext(running_at)
    with found as port, serving.tls_twin(port, cert, key) as tls:
        yield {
            "ANTIPHON_URL": f"ws://127.0.0.1:{port}/v1/realtime",
            "ANTIPHON_HTTP_URL": f"http://127.0.0.1:{port}/v1",
            "ANTIPHON_TLS_URL": f"https://127.0.0.1:{tls}/v1",
            "ANTIPHON_SPEECH": str(serving.recording(port, environment.CACHE)),
        }


def run(client: Client, where: dict[str, str]) -> dict[str, dict[str, Any]]:
    """One client's checks by name. A check that was never reached failed."""
    if client.language == "py":
        command = [str(environment.python()), str(environment.HERE / "py" / f"{client.script}.py")]
        folder = environment.HERE / "py"
    else:
        folder = environment.node()
        command = ["node", f"js/{client.script}.mjs"]
    try:
        done = subprocess.run(
            command, cwd=folder, env={**os.environ, **where}, capture_output=True, text=True, timeout=CLIENT_S
        )
        out, err = done.stdout, done.stderr
    except subprocess.TimeoutExpired as e:
        out, err = (s.decode() if isinstance(s, bytes) else s or "" for s in (e.stdout, e.stderr))
    told = {line["check"]: line for line in _lines(out)}
    lost = {"ok": False, "ms": 0, "detail": f"not reached; {err.strip()[-600:]}"}
    return {check: told.get(check, {"check": check, **lost}) for check in CHECKS}


def _lines(out: str) -> list[dict[str, Any]]:
    found = []
    for line in out.splitlines():
        with contextlib.suppress(ValueError):
            parsed = json.loads(line)
            if isinstance(parsed, dict) and "check" in parsed:
                found.append(parsed)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", help="part of a client's title or script; may be given again")
    parser.add_argument("--stub", action="store_true", help="on stub models")
    parser.add_argument("--port", type=int, help="of a server on this machine that runs already")
    parser.add_argument("--json", type=Path, help="write every check's outcome here")
    options = parser.parse_args()
    chosen = [c for c in CLIENTS if not options.only or any(o in f"{c.language}/{c.script} {c.title}" for o in options.only)]
    failed, results = 0, {}
    with served(serving.STUB if options.stub else serving.REAL, options.port) as where:
        for client in chosen:
            began = time.monotonic()
            checks = results[client.title] = run(client, where)
            marks = "  ".join(f"{name} {'ok' if c['ok'] else 'FAILED'}" for name, c in checks.items())
            print(f"{client.title:40} {marks}  ({serving.seconds_since(began)} s)", flush=True)
            for check in checks.values():
                if not check["ok"]:
                    failed += 1
                    print(f"    {check['check']}: {check['detail']}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    print(f"{len(chosen)} clients, {failed} checks failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
