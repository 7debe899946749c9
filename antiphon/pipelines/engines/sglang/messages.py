"""What SGLang's own ``/generate`` says, message by message. (Its OpenAI doors return text without the ids of its tokens.)

The shapes are those of the releases 0.5.10 and 0.5.23, read from their sources. A message carries ``output_ids`` (all so far,
or under ``--incremental-streaming-output`` only the new ones) and ``meta_info`` with ``completion_tokens``, how many there are
by now, and at the end ``finish_reason``. Instead of it may come an ``error``, after an HTTP 200.
"""

from __future__ import annotations

from typing import Any

from antiphon.pipelines.engines.openai.server import MAX_ERROR_TEXT, Trouble
from antiphon.pipelines.errors import PipelineError, Refused


class Reading:
    """One answer. ``made``: its ids so far; ``cached``: of its prompt's; ``finish``: how the engine says that it has ended."""

    def __init__(self) -> None:
        self.made = 0
        self.cached = 0
        self.finish = ""

    def feed(self, message: Any) -> list[int]:
        """The ids that are new. Raises Refused for what SGLang will not do, Trouble for everything that is no answer."""
        if isinstance(message, dict) and "error" in message:
            raise _error(message["error"])
        try:
            meta = message["meta_info"]
            finish = meta.get("finish_reason") or {}
            self.finish = str(finish["type"]) if finish else ""
            if self.finish not in ("", "stop", "length"):
                raise _given_up(finish)
            ids = [int(token) for token in message["output_ids"]]
            total = int(meta["completion_tokens"])
            self.cached = int(meta.get("cached_tokens") or 0)
        except (AttributeError, TypeError, KeyError, ValueError) as error:
            raise Trouble("sent a message of an unknown shape") from error
        new = max(total - self.made, 0)
        if new > len(ids):
            # Old releases drop messages when they cannot send fast enough, and with them what only those told.
            raise Trouble("left out some of what it said")
        self.made += new
        return ids[len(ids) - new :]


def _error(error: Any) -> Exception:
    """An object, or only its text. Without a code it is a request that failed the checks at the door."""
    if not isinstance(error, dict):
        return _refused(error)
    code = error.get("code")
    if isinstance(code, int) and code >= 500:
        return Trouble("reported an error in the middle of its answer")
    return _refused(error.get("message"))


def _given_up(finish: dict[str, Any]) -> Exception:
    """``abort``: by its scheduler, with a status of HTTP, or because somebody asked."""
    if finish.get("status_code") == 400:
        return _refused(finish.get("message"))
    return Trouble("is too busy" if finish.get("status_code") == 503 else "gave the answer up")


def _refused(said: Any) -> PipelineError:
    return Refused(f"the SGLang server refused the request: {str(said or 'it does not say why')[:MAX_ERROR_TEXT]}")
