"""A file of any Hugging Face repository, for a role that the user fills (``--thinker hf:owner/repo/file.gguf``).

No hash is known beforehand: the repository tells it (``X-Linked-ETag`` is the sha256 of a file kept in its large file
store, ``X-Linked-Size`` its size), and what is cached once is not asked for again.
"""

from __future__ import annotations

import re
from pathlib import Path

from antiphon.pipelines.errors import WeightError
from antiphon.pipelines.weights.catalog import File, Weight
from antiphon.pipelines.weights.sources import HuggingFace
from antiphon.pipelines.weights.store import Progress, Store

_ADDRESS = re.compile(r"^(?P<repo>[\w.-]+/[\w.-]+)/(?P<file>[\w./-]+?)(?:@(?P<revision>[\w.-]+))?$")


def ensure_hub(address: str, progress: Progress | None = None, store: Store | None = None) -> Path:
    """``owner/repo/path/file.gguf[@revision]`` -> the path of the file in the cache, fetched if it is not there."""
    match = _ADDRESS.match(address)
    if not match or ".." in address:
        raise WeightError(f"hf:{address} is not of the form hf:owner/repo/file[@revision]")
    repo, path, revision = match["repo"], match["file"], match["revision"] or "main"
    store = store or Store()
    name = re.sub(r"[^\w.-]", "--", f"hf--{repo}--{revision}--{path}")
    file = path.rpartition("/")[2]
    kept = store.root / name / file
    try:
        if kept.is_file():  # it came here by a rename after its hash was right
            return kept
    except OSError as e:
        raise WeightError(f"hf:{address} cannot be looked for in {store.root} ({e.strerror}); set ANTIPHON_CACHE") from e
    if store.offline:
        raise WeightError(f"hf:{address} is not in the cache, and ANTIPHON_OFFLINE is set")
    source = HuggingFace(repo, {file: path}, revision)
    sha256, size = _look_up(source.url(path), address)
    source = HuggingFace(repo, {file: path}, revision, size)
    weight = Weight(name, address, "see the repository", (File(file, sha256, size),), (source,))
    return Store(store.root, {name: weight}, {}, store.offline).ensure(name, progress) / file


def _look_up(url: str, address: str) -> tuple[str, int]:
    import httpx

    try:
        answer = httpx.head(url, follow_redirects=False, timeout=20.0)
    except httpx.HTTPError as e:
        raise WeightError(f"hf:{address} cannot be reached ({type(e).__name__}); give a local file as gguf:PATH") from e
    if answer.status_code in (401, 403, 404):
        raise WeightError(f"hf:{address} does not exist or is not public (HTTP status {answer.status_code})")
    sha256 = answer.headers.get("x-linked-etag", "").strip('W/"')
    size = answer.headers.get("x-linked-size", "")
    if not re.fullmatch(r"[0-9a-f]{64}", sha256) or not size.isdigit():
        raise WeightError(f"hf:{address} has no sha256 that could be checked; fetch it yourself and give gguf:PATH")
    return sha256, int(size)
