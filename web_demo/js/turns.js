// Where the time of a turn goes. What the page sees itself comes from the protocol's events; where the server lets it, its
// own trace takes their place, which also knows when the voice really ended and what an early answer did.
import { element } from "./conversation-view.js";

const ENDS = { completed: "Answered", cancelled: "Stopped", failed: "Failed", incomplete: "Ran out of room" };
const LANES = ["silence", "transcript", "first token", "first sound"];

export class Turns {
  #turn = null;
  #rows = new Map();

  constructor(list, { silenceMs, fetchTrace }) {
    this.list = list;
    this.silenceMs = silenceMs;
    this.fetchTrace = fetchTrace;
    this.done = [];
  }

  /** `now`: milliseconds on any steady clock. */
  apply(event, now) {
    const turn = this.#turn;
    switch (event.type) {
      case "input_audio_buffer.speech_stopped":
        this.#turn = { item: event.item_id, zero: now - this.silenceMs(), stopped: now };
        break;
      case "conversation.item.input_audio_transcription.completed":
        if (turn?.item === event.item_id) turn.transcript = now;
        break;
      case "response.created":
        if (!turn || turn.response) this.#turn = { zero: now };
        this.#turn.response = event.response.id;
        break;
      case "response.output_audio_transcript.delta":
      case "response.output_text.delta":
        if (turn?.response === event.response_id) turn.token ??= now;
        break;
      case "response.output_audio.delta":
      case "output_audio_buffer.started":
        if (turn?.response === event.response_id) turn.sound ??= now;
        break;
      case "response.done":
        if (turn?.response === event.response.id) this.#finish(turn, event.response);
        break;
      default:
        return;
    }
  }

  async #finish(turn, { status, status_details: details }) {
    this.#turn = null;
    const since = (at) => (at === undefined ? undefined : Math.round(at - turn.zero));
    const known = {
      stopped: since(turn.stopped),
      transcript: [0, since(turn.transcript)],
      token: [since(turn.stopped) ?? 0, since(turn.token)],
      sound: [since(turn.token) ?? 0, since(turn.sound)],
      interrupted: details?.reason === "turn_detected",
      status,
    };
    this.#draw(turn.response, known);
    const traced = (await this.fetchTrace().catch(() => null))?.timeline?.find((t) => t.response_id === turn.response);
    if (traced) this.#draw(turn.response, fromTrace(traced, known));
  }

  #draw(id, turn) {
    this.done = [...this.done.filter((t) => t.id !== id), { id, ...turn }];
    let row = this.#rows.get(id);
    if (!row) {
      row = document.createElement("li");
      this.#rows.set(id, row);
      this.list.prepend(row);
    }
    const total = turn.sound[1] ?? turn.token[1];
    const title = turn.interrupted ? "Interrupted" : ENDS[turn.status];
    const early = { won: ", early answer won", wasted: ", early answer wasted" }[turn.early] ?? "";
    const head = element("div", "turn-head");
    head.append(element("span", "", title + early), element("b", "", total === undefined ? "" : `${total} ms`));
    row.replaceChildren(head, bars(turn));
  }
}

/** The server's timeline of a turn, moved so that 0 is the end of the voice. */
function fromTrace({ at_ms: at, generation_at_ms: made, early }, known) {
  const zero = at.last_voiced ?? at.asked ?? at.response_created ?? 0;
  const since = (ms) => (ms === undefined ? undefined : Math.round(ms - zero));
  const began = since(at.early_started) ?? since(at.speech_stopped) ?? 0;
  return {
    ...known,
    early,
    stopped: since(at.speech_stopped),
    transcript: [Math.max(0, began), since(at.transcript_known) ?? known.transcript[1]],
    token: [Math.max(0, began), since(made["first:text"]) ?? since(at.first_text)],
    sound: [Math.max(0, since(made["first:text"]) ?? since(at.first_text) ?? 0), since(at.first_audio)],
  };
}

function bars(turn) {
  const spans = { silence: [0, turn.stopped], transcript: turn.transcript, "first token": turn.token, "first sound": turn.sound };
  const longest = Math.max(1, ...Object.values(spans).map(([, end]) => end ?? 0));
  const box = element("div", "bars");
  const told = [];
  for (const lane of LANES) {
    const [start, end] = spans[lane];
    if (end === undefined) continue;
    const strip = element("span", "lane");
    const bar = element("span", `bar ${lane === "silence" ? "silence" : ""} ${turn.early === "won" && lane.startsWith("first") ? "early" : ""}`);
    bar.style.left = `${(100 * Math.max(0, start)) / longest}%`;
    bar.style.width = `${(100 * Math.max(0, end - Math.max(0, start))) / longest}%`;
    strip.append(bar);
    box.append(element("span", "", lane), strip, element("span", "ms", `${end}`));
    told.push(`${lane} ${end} milliseconds`);
  }
  box.setAttribute("role", "img");
  box.setAttribute("aria-label", told.join(", "));
  return box;
}
