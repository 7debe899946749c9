"""File < environment < flags; a wrong setting is named."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from antiphon.settings import ProcessSettings, ServerSettings, SettingsError, as_toml, load


def test_flags_beat_the_environment_beats_the_file(tmp_path: Path) -> None:
    file = tmp_path / "antiphon.toml"
    file.write_text('port = 1\nhost = "file"\nthinker = "gguf:x"\n')
    environment = {"ANTIPHON_PORT": "2", "ANTIPHON_HOST": "environment", "ANTIPHON_API_KEYS": "a, b"}
    settings = load(file, environment, {"port": 3, "host": None})
    assert (settings.port, settings.host, settings.thinker) == (3, "environment", "gguf:x")
    assert settings.api_keys == ("a", "b")


def test_what_is_printed_can_be_loaded_and_shows_no_key(tmp_path: Path) -> None:
    settings = ServerSettings(api_keys=("secret",), window_s=float("inf"), weights={"silero-vad": "/w"}, text_only=True)
    printed = as_toml(settings)
    assert "secret" not in printed
    file = tmp_path / "again.toml"
    file.write_text(printed)
    assert load(file, {}) == ServerSettings(
        api_keys=("...",), window_s=float("inf"), weights={"silero-vad": "/w"}, text_only=True
    )
    assert tomllib.loads(printed)["weights"] == {"silero-vad": "/w"}


def test_a_stage_s_own_arguments_are_tables(tmp_path: Path) -> None:
    file = tmp_path / "stages.toml"
    file.write_text(
        'model = "m"\n[stage.preprocessing]\nurls = {allow_private = true, schemes = ["https"]}\n[stage.thinker]\ncontext = 8\n'
    )
    settings = load(file, {})
    assert settings.stage["preprocessing"] == {"urls": {"allow_private": True, "schemes": ["https"]}}
    file.write_text(as_toml(settings))
    assert load(file, {}) == settings


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("stage = 3", "stage"),
        ("prot = 1", "prot"),
        ('port = "many"', "port"),
        ("port = 70000", "70000"),
        ('pipeline = "ming"', "pipeline"),
        ('tls_cert = "a.pem"', "tls_cert and tls_key go together"),
        ("max_requests = 0", "max_requests"),
        ("replicas = 0", "replicas must be at least 1"),
        ('processes = "one"\nreplicas = 2', "replicas = 2 needs model processes"),
        ('processes = "one"\nthreads = 2', "threads = 2 needs model processes"),
        ("[process.model]\nreplicas = 0", r"process\.model\.replicas"),
        ("[process.model]\nstep_limit_s = -1.0", r"process\.model\.step_limit_s"),
        ("[process.model]\ncores = 2", "cores"),
        ('[process.model]\nenv = {"A=B" = "c"}', r"process\.model\.env: 'A=B'"),
        ("[process.model]\nenv = {A = 1}", "env"),
        ("process = 2", "process"),
        ("window_s = 0.0", "window_s"),
        ("conversation_tokens = -1", "conversation_tokens"),
        ("port = = 1", "is not TOML"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=said):
        load(file, {})


def test_what_a_process_group_has_of_its_own_survives_printing(tmp_path: Path) -> None:
    told = {"talker": ProcessSettings(replicas=2, step_limit_s=5.0, env={"A": 'b "c"'}), "model": ProcessSettings()}
    printed = as_toml(ServerSettings(threads=3, process=told))
    file = tmp_path / "again.toml"
    file.write_text(printed)
    assert load(file, {"ANTIPHON_REPLICAS": "2", "ANTIPHON_PROCESS": "x"}) == ServerSettings(
        replicas=2, threads=3, process=told
    )


def test_booleans_of_the_environment() -> None:
    assert load(None, {"ANTIPHON_TEXT_ONLY": "yes"}).text_only
    assert not load(None, {"ANTIPHON_REALTIME": "0"}).realtime


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot read"):
        load(tmp_path / "nowhere.toml", {})


@pytest.mark.parametrize(
    ("thinker", "asked", "early"),
    [
        ("local", "auto", True),
        ("openai:http://h/v1#m", "auto", False),
        ("openai:http://h/v1#m", "on", True),
        ("local", "off", False),
    ],
)
def test_a_remote_thinker_answers_early_only_when_asked_to(thinker: str, asked: str, early: bool) -> None:
    """It may cost money; but "on" means on, for the session that the doors make of it as well."""
    from antiphon.cli.serve import features
    from antiphon.pipelines.local.pipeline import build
    from antiphon.realtime.doors import allowed

    settings = ServerSettings(thinker=thinker, early_responses=asked)  # type: ignore[arg-type]
    assert allowed(features(settings), build(thinker=thinker).info).early is early
