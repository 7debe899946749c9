"""One response: its items, parts and indexes, its pace, its single end."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

from antiphon.pipelines.outputs import Usage
from antiphon.session.conversation import Conversation, Item
from antiphon.session.core import Core
from antiphon.session.events import OUT_RATE, AudioMade, CallMade, Ended, Json, Play, Progress, TextMade
from antiphon.session.params import ResponseParams
from antiphon.session.playback import Ledger
from antiphon.session.request import Request, standing

PROGRESS_EVERY_S = 0.2
SHORTEST_WAIT_S = 0.02
AUDIO_TOKENS_PER_S = 20
"""As OpenAI counts what is spoken: one token for 50 ms."""


@dataclass
class Output:
    """One item of the response. ``made``: samples of it that have come from the model, sent or waiting in ``queue``."""

    item: Item
    index: int
    open: bool = True
    text: str = ""
    made: int = 0
    queue: deque[AudioMade] = field(default_factory=deque)
    sent: deque[tuple[int, AudioMade]] = field(default_factory=deque)  # (end in the item, piece), until it was heard

    def unheard(self, heard: int) -> tuple[int, list[AudioMade]]:
        """The pieces that were not heard to their end, and where in the item the first of them begins."""
        pieces = [(end, piece) for end, piece in self.sent if end > heard]
        end = self.item.ledger.sent if self.item.ledger else 0
        start = pieces[0][0] - pieces[0][1].samples if pieces else end
        return start, [piece for _, piece in pieces] + list(self.queue)


class Response:
    """Nothing of it is sent before ``begin`` or after ``finish``; every thing opened is closed by ``finish``."""

    def __init__(
        self,
        core: Core,
        response_id: str,
        gen: str,
        request: Request,
        conversation: Conversation | None,
        params: ResponseParams,
    ) -> None:
        self.id = response_id
        self.gen = gen
        self.request = request
        self.aside = conversation is None
        self.outputs: list[Output] = []
        self.status = "in_progress"
        self.ending: tuple[str, Json | None] | None = None  # the model is done, audio may still wait
        self.ended_with: Ended | None = None
        self.usage: Usage | None = None
        self.shift = (0, 0)  # samples and characters of the answer that came in an earlier response
        self.buffered = False  # WebRTC: output_audio_buffer.started was sent, .stopped or .cleared was not
        self._core = core
        self._conversation = conversation
        self._metadata = params.metadata
        self._format = core.config["audio"]["output"]["format"]
        self._text_tokens = 0
        self._progress_at = 0.0

    @property
    def called(self) -> bool:
        """Its calls are complete: clients send the results without waiting for its end, which what is said aloud before
        them may keep for as long as it takes to be heard."""
        calls = [o.open for o in self.outputs if o.item.wire["type"] == "function_call"]
        return bool(calls) and not any(calls)

    def wire(self, details: Json | None = None) -> Json:
        ended = self.status != "in_progress"
        return {
            "object": "realtime.response",
            "id": self.id,
            "status": self.status,
            "status_details": details,
            "output": [replace(output.item, mark=None).public() for output in self.outputs] if ended else [],
            "conversation_id": self._conversation.id if self._conversation else None,
            "output_modalities": [self.request.modality],
            "max_output_tokens": self.request.max_tokens or "inf",
            "audio": {"output": {"format": self._format, "voice": self.request.voice}},
            "metadata": self._metadata,
            "usage": self._usage() if ended else None,
        } | ({} if self.request.temperature is None else {"temperature": self.request.temperature})

    def begin(self) -> None:
        self._core.emit("response.created", response=self.wire())

    # ---- what the model makes

    def text(self, piece: TextMade, heard_from: float) -> None:
        self._text_tokens += piece.tokens
        if not piece.text:
            return
        output = self._message(heard_from)
        output.text += piece.text
        kind = "output_audio_transcript" if self.request.modality == "audio" else "output_text"
        self._core.emit(f"response.{kind}.delta", delta=piece.text, **_at(self.id, output, part=True))

    def audio(self, chunk: AudioMade, heard_from: float) -> None:
        output = self._message(heard_from)
        if output.item.mark is not None and self._core.features.transport == "webrtc":
            return  # the listener's queue was cleared: what comes late is not to be heard
        output.made += chunk.samples
        output.queue.append(chunk)

    def call(self, piece: CallMade) -> None:
        output = next((o for o in self.outputs if o.item.wire.get("call_id") == piece.call_id), None)
        if output is None:
            self._end_written()
            output = self._open(
                Item(
                    {
                        "id": self._core.new_id("item"),
                        "object": "realtime.item",
                        "type": "function_call",
                        "status": "in_progress",
                        "name": piece.name,
                        "call_id": piece.call_id,
                        "arguments": "",
                    }
                )
            )
        if not output.open:
            return
        if piece.arguments:
            output.item.wire["arguments"] += piece.arguments
            self._core.emit(
                "response.function_call_arguments.delta",
                call_id=piece.call_id,
                delta=piece.arguments,
                **_at(self.id, output),
            )
        if piece.last:
            self._close(output, "completed")

    def _end_written(self) -> None:
        """What was written before a call is whole when the call begins; what is spoken still waits to be sent."""
        for output in self.outputs:
            if output.open and output.item.wire["type"] == "message" and output.item.ledger is None:
                self._close(output, "completed")

    def ended(self, event: Ended) -> None:
        """The model is done; the response is when its audio is sent."""
        self.ended_with, self.usage = event, event.usage
        if event.reason == "length":
            self.ending = ("incomplete", {"type": "incomplete", "reason": "max_output_tokens"})
        else:
            self.ending = ("completed", None)

    @property
    def speech(self) -> Output | None:
        """The spoken message of it, if it has begun."""
        return next((output for output in self.outputs if output.item.ledger), None)

    # ---- pace and end

    def pump(self) -> float | None:
        """Send the audio that is due; the time to come back, or None when nothing waits."""
        core, window = self._core, self._core.features.window_s
        again: float | None = None
        for output in self.outputs:
            ledger = output.item.ledger
            while output.queue and ledger is not None:
                wait = ledger.lead(core.now) - window
                if wait > 0:
                    again = core.now + max(wait, SHORTEST_WAIT_S)
                    break
                self._send(output, ledger, output.queue.popleft())
        return again

    def progress(self) -> float | None:
        """Tell the graph how the listener stands, at most five times a second while the model still works."""
        output = self.speech
        if self.ending or output is None or output.item.ledger is None or not output.made:
            return None
        core, ledger = self._core, output.item.ledger
        if core.now >= self._progress_at:
            self._progress_at = core.now + PROGRESS_EVERY_S
            ahead = ledger.lead(core.now) + sum(chunk.samples for chunk in output.queue) / OUT_RATE
            heard = ledger.heard(core.now) * 1000 / OUT_RATE
            core.do(Progress(self.gen, ahead * 1000, heard, core.features.window_s * 1000))
        return self._progress_at

    def finish(self, status: str, details: Json | None) -> None:
        """The single end: whatever is open is closed, then response.done."""
        cut_short = self.ending is None or status in ("cancelled", "failed")
        for output in self.outputs:
            ledger = output.item.ledger
            if ledger is not None and (cut_short or output.queue) and output.item.mark is None:
                output.item.mark = ledger.sent  # what was never sent was never heard
            output.queue.clear()
        self.status = status
        for output in self.outputs:
            if output.open:
                self._close(output, "completed" if status == "completed" else "incomplete")
        self._core.emit("response.done", response=self.wire(details))

    # ---- inside

    def _send(self, output: Output, ledger: Ledger, chunk: AudioMade) -> None:
        core = self._core
        marks = tuple((sample - self.shift[0], offset - self.shift[1]) for sample, offset in chunk.marks)
        ledger.send(chunk.samples, marks, chunk.exact, core.now)
        if core.features.resume_after_false_interruption:
            output.sent.append((ledger.sent, chunk))
            while output.sent[0][0] <= ledger.heard(core.now):
                output.sent.popleft()
        if core.features.transport == "websocket":
            core.emit("response.output_audio.delta", delta=chunk.pcm, **_at(self.id, output, part=True))
            return
        if not self.buffered:
            self.buffered = True
            core.emit("output_audio_buffer.started", response_id=self.id)
        core.do(Play(self.id, output.item.id, chunk.pcm, chunk.samples))

    def _open(self, item: Item) -> Output:
        output = Output(item, len(self.outputs))
        self.outputs.append(output)
        self._core.emit("response.output_item.added", response_id=self.id, output_index=output.index, item=item.public())
        if self._conversation is not None:
            before = self._conversation.add(item)
            self._core.emit("conversation.item.added", previous_item_id=before, item=item.public())
        return output

    def _message(self, heard_from: float) -> Output:
        for output in self.outputs:
            if output.open and output.item.wire["type"] == "message":
                return output
        speaks = self.request.modality == "audio"
        told = self._core.features.transport == "webrtc"
        wire: Json = {
            "id": self._core.new_id("item"),
            "object": "realtime.item",
            "type": "message",
            "role": "assistant",
            "status": "in_progress",
            "content": [],
        }
        output = self._open(Item(wire, ledger=Ledger(told, until=heard_from) if speaks else None))
        part = {"type": "audio", "transcript": ""} if speaks else {"type": "text", "text": ""}
        self._core.emit("response.content_part.added", part=part, **_at(self.id, output, part=True))
        return output

    def _close(self, output: Output, status: str) -> None:
        core, wire, at = self._core, output.item.wire, _at(self.id, output, part=True)
        output.open = False
        wire["status"] = status
        if wire["type"] == "function_call":
            core.emit(
                "response.function_call_arguments.done",
                call_id=wire["call_id"],
                name=wire["name"],
                arguments=wire["arguments"],
                **_at(self.id, output),
            )
        elif self.request.modality == "audio":
            wire["content"] = [{"type": "output_audio", "transcript": output.text}]
            core.emit("response.output_audio.done", **at)
            core.emit("response.output_audio_transcript.done", transcript=output.text, **at)
            core.emit("response.content_part.done", part={"type": "audio", "transcript": output.text}, **at)
        else:
            wire["content"] = [{"type": "output_text", "text": output.text}]
            core.emit("response.output_text.done", text=output.text, **at)
            core.emit("response.content_part.done", part={"type": "text", "text": output.text}, **at)
        whole = replace(output.item, mark=None)  # its end tells the whole text; what was heard is told afterwards
        shown = whole.public()
        if self._conversation is not None and self._conversation.holds(output.item):
            before = self._conversation.before(output.item.id)
            core.emit("conversation.item.done", previous_item_id=before, item=shown)
        core.emit("response.output_item.done", response_id=self.id, output_index=output.index, item=shown)

    def _usage(self) -> Json:
        asked = self.request
        read_first = standing(asked.instructions, "[]" if asked.tool_choice == '"none"' else asked.tools)
        used = self.usage or Usage(
            prompt_tokens=sum(map(self._core.features.estimate, (*read_first, *asked.context))),
            completion_tokens=self._text_tokens,
        )
        sent = sum(o.item.ledger.sent for o in self.outputs if o.item.ledger)
        spoken = -(-sent * AUDIO_TOKENS_PER_S // OUT_RATE)
        read = max(0, used.prompt_tokens - used.prompt_audio_tokens - used.prompt_image_tokens)
        cached_text = min(used.cached_tokens, read)  # of what kind they are is not counted, but never more than there are
        cached_audio = min(used.cached_tokens - cached_text, used.prompt_audio_tokens)
        cached_image = used.cached_tokens - cached_text - cached_audio
        return {
            "total_tokens": used.prompt_tokens + used.completion_tokens + spoken,
            "input_tokens": used.prompt_tokens,
            "output_tokens": used.completion_tokens + spoken,
            "input_token_details": {
                "text_tokens": read,
                "audio_tokens": used.prompt_audio_tokens,
                "image_tokens": used.prompt_image_tokens,
                "cached_tokens": used.cached_tokens,
                "cached_tokens_details": {
                    "text_tokens": cached_text,
                    "audio_tokens": cached_audio,
                    "image_tokens": cached_image,
                },
            },
            "output_token_details": {"text_tokens": used.completion_tokens, "audio_tokens": spoken},
        }


def _at(response_id: str, output: Output, part: bool = False) -> Json:
    at: Json = {"response_id": response_id, "item_id": output.item.id, "output_index": output.index}
    return dict(at, content_index=0) if part else at
