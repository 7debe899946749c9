// How much of an answer has been said aloud. The protocol does not say which word sounds when: once a whole answer has come
// its text is laid evenly over its audio, before that a common speed of speech stands in.
const CHARACTERS_PER_S = 15;

export class Spoken {
  #audioMs = new Map();
  #whole = new Set();
  #item = null; // WebRTC: what the server plays
  #since = null;

  apply(event, now) {
    switch (event.type) {
      case "response.output_audio.delta":
        this.#audioMs.set(event.item_id, (this.#audioMs.get(event.item_id) ?? 0) + (event.delta.length * 0.75) / 48);
        break;
      case "response.output_audio.done":
        this.#whole.add(event.item_id);
        break;
      case "response.content_part.added":
        if (event.part.type === "audio") this.#item = event.item_id;
        break;
      case "output_audio_buffer.started":
        this.#since = now;
        break;
      case "output_audio_buffer.stopped":
      case "output_audio_buffer.cleared":
        this.#since = null;
        break;
    }
  }

  /** Over WebRTC: {item, ms} of what the server is playing now, or null. */
  playing(now) {
    return this.#since === null ? null : { item: this.#item, ms: now - this.#since };
  }

  /** Characters of `text` that have been said after `ms` of the item, to the end of a word. */
  said(item, ms, text) {
    const whole = this.#whole.has(item) && this.#audioMs.get(item);
    const at = whole ? (text.length * ms) / whole : (ms / 1000) * CHARACTERS_PER_S;
    const next = text.indexOf(" ", Math.floor(at));
    return next < 0 ? text.length : next;
  }
}
