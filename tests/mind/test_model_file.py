"""The file that the Thinker loads: requantised once, and as it comes where nothing can be written."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.pipelines.errors import WeightError
from antiphon.pipelines.local import thinker_model


@pytest.mark.real
def test_a_model_is_requantised_once(tmp_path: Path) -> None:
    pytest.importorskip("cyllama", reason="needs the extra 'local'")
    from antiphon.pipelines.engines.llama_cpp.requantise import requantised

    try:
        source = thinker_model.installed(thinker_model.SMALL)
    except WeightError as error:
        pytest.skip(str(error))
    made = requantised(source, tmp_path / "new")
    assert made.read_bytes()[:4] == b"GGUF" and made.stat().st_size < source.stat().st_size
    before = made.stat().st_mtime_ns
    assert requantised(source, tmp_path / "new") == made and made.stat().st_mtime_ns == before
    assert [p.name for p in made.parent.iterdir()] == [made.name], "nothing half made is left"


@pytest.mark.real
def test_a_file_that_is_no_model_is_an_error_by_name(tmp_path: Path) -> None:
    pytest.importorskip("cyllama", reason="needs the extra 'local'")
    from antiphon.pipelines.engines.llama_cpp.engine import Engine

    for name, content in (("missing.gguf", None), ("empty.gguf", b""), ("wrong.gguf", b"GGUF" + bytes(200))):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(WeightError, match=name):
            Engine(tmp_path / name, context=64, cells=64, sequences=1)


def test_where_nothing_can_be_written_the_model_is_used_as_it_comes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("cyllama", reason="needs the extra 'local'")
    name = thinker_model.DEFAULT
    file = tmp_path / thinker_model.weights.CATALOG[name].files[0].name
    file.write_bytes(b"GGUF")
    in_the_way = tmp_path / "file"
    in_the_way.write_text("not a folder")
    monkeypatch.setattr(thinker_model.weights, "path", lambda _: tmp_path)
    monkeypatch.setattr(thinker_model.weights, "cache_folder", lambda: in_the_way)
    assert thinker_model.installed(name) == file
