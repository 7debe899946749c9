"""The command line as a shell sees it: output, exit codes, one line for a failure."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest


def antiphon(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "antiphon", *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
        env=os.environ | environment,
    )


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("serve", "--thinker", "gpt-5"), 2, "--thinker 'gpt-5' is not known"),
        (("serve", "--talker", "openai:example.com"), 2, "write openai:http://HOST:PORT/v1#MODEL"),
        (("serve", "--pipeline", "ming"), 2, "pipeline"),
        (("serve", "--pipeline", "qwen3_omni"), 2, "needs --model FOLDER"),
        (("serve", "--preset", "one_gpu"), 2, "--preset is for pipelines that take a checkpoint folder"),
        (("serve", "--tls-cert", "a.pem"), 2, "tls_cert and tls_key go together"),
        (("serve", "--config", "nowhere.toml"), 2, "cannot read nowhere.toml"),
        (("serve", "--processes", "one", "--replicas", "2"), 2, "replicas = 2 needs model processes"),
        (("serve", "--threads", "0"), 2, "threads must be at least 1"),
        (("models", "pull", "gpt-5"), 2, "no weight is named 'gpt-5'"),
        (("transcribe", "nowhere.wav"), 2, "cannot read nowhere.wav"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(args: tuple[str, ...], code: int, said: str) -> None:
    ran = antiphon(*args)
    assert ran.returncode == code, ran.stderr
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr
    assert len(ran.stderr.strip().splitlines()) == 1


def test_a_config_with_an_unknown_field_is_named(tmp_path: Path) -> None:
    file = tmp_path / "antiphon.toml"
    file.write_text('stages = "mine"\n')
    ran = antiphon("serve", "--config", str(file))
    assert ran.returncode == 2
    assert "stages" in ran.stderr


def test_a_fallback_that_there_is_none_for_is_refused() -> None:
    ran = antiphon("serve", "--model", "somewhere", ANTIPHON_FALLBACK="true")
    assert ran.returncode == 2
    assert "'qwen3_omni' has no fallback" in ran.stderr and len(ran.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("flags", "table", "said"),
    [
        ((), "[process.modle]\nreplicas = 2", "[process.NAME]: options for process 'modle', but 'local' has only ['model']"),
        (("--processes", "one"), "[process.main]\nthreads = 2", "process 'main' is the door's own"),
    ],
)
def test_options_that_no_process_can_have_are_named(tmp_path: Path, flags: tuple[str, ...], table: str, said: str) -> None:
    file = tmp_path / "antiphon.toml"
    file.write_text(table)
    ran = antiphon("serve", *flags, "--config", str(file))
    assert ran.returncode == 2
    assert said in ran.stderr and len(ran.stderr.strip().splitlines()) == 1


def test_the_effective_settings_can_be_printed() -> None:
    flags = ("--port", "81", "--replicas", "2")
    ran = antiphon("serve", "--print-config", *flags, ANTIPHON_HOST="::1", ANTIPHON_API_KEYS="secret")
    assert ran.returncode == 0
    assert "replicas = 2\nthreads = 1\n" in ran.stdout
    assert "port = 81" in ran.stdout
    assert 'host = "::1"' in ran.stdout
    assert "secret" not in ran.stdout


@pytest.mark.real
def test_a_port_in_use_is_named_with_the_remedy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = antiphon("serve", "--port", str(port))
    assert ran.returncode == 1
    assert f"127.0.0.1:{port}" in ran.stderr
    assert "--port" in ran.stderr


@pytest.mark.real
def test_no_network_on_the_first_start_is_one_line_with_the_remedy(tmp_path: Path) -> None:
    ran = antiphon("say", "Hello.", "-o", str(tmp_path / "x.wav"), ANTIPHON_CACHE=str(tmp_path / "empty"), ANTIPHON_OFFLINE="1")
    assert ran.returncode == 1
    assert "Traceback" not in ran.stderr
    assert "ANTIPHON_OFFLINE" in ran.stderr or "models pull" in ran.stderr


@pytest.mark.real
def test_what_is_said_can_be_read_back(tmp_path: Path) -> None:
    file = tmp_path / "said.mp3"
    said = antiphon("say", "The train leaves at half past nine.", "-o", str(file))
    assert said.returncode == 0, said.stderr
    read = antiphon("transcribe", str(file))
    assert read.returncode == 0, read.stderr
    assert "train leaves" in read.stdout.lower()


@pytest.mark.real
def test_a_text_with_nothing_to_say_is_said_to_be_one(tmp_path: Path) -> None:
    ran = antiphon("say", "🙂 ...", "-o", str(tmp_path / "x.wav"))
    assert ran.returncode == 1
    assert "nothing to say" in ran.stderr


@pytest.mark.real
def test_a_question_is_answered_in_writing() -> None:
    ran = antiphon("chat", "What is the capital of France?")
    assert ran.returncode == 0, ran.stderr
    assert "Paris" in ran.stdout


@pytest.mark.real
def test_the_weights_are_listed_and_right() -> None:
    listed = antiphon("models", "list")
    assert "silero-vad" in listed.stdout
    assert antiphon("models", "verify", "silero-vad", "hibari-heart").returncode == 0
