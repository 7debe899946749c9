// The conversation as the protocol's events tell it. Pure: events in, items out; nothing of the page is known here.

/** An item: {id, role: user|agent|tool, text, state, heard, note}. `heard`: the text up to an interruption, or null. */
export class Conversation {
  items = [];

  get(id) {
    return this.items.find((item) => item.id === id);
  }

  /** Takes one server event; returns the item it changed, or undefined. */
  apply(event) {
    switch (event.type) {
      case "input_audio_buffer.speech_started":
        return this.#add({ id: event.item_id, role: "user", text: "", state: "speaking" });
      case "input_audio_buffer.speech_stopped":
        return this.#set(event.item_id, { state: "transcribing" });
      case "conversation.item.added":
        return this.#added(event.item, event.previous_item_id);
      case "conversation.item.deleted":
        this.items = this.items.filter((item) => item.id !== event.item_id);
        return { id: event.item_id, gone: true };
      case "conversation.item.input_audio_transcription.delta":
        return this.#append(event.item_id, event.delta);
      case "conversation.item.input_audio_transcription.completed":
        return this.#set(event.item_id, { text: event.transcript.trim() || "(nothing understood)", state: "done" });
      case "conversation.item.input_audio_transcription.failed":
        return this.#set(event.item_id, { text: "(not transcribed)", state: "done" });
      case "response.output_audio_transcript.delta":
        return this.#append(event.item_id, event.delta, true);
      case "response.output_text.delta":
        return this.#append(event.item_id, event.delta);
      case "response.function_call_arguments.done":
        return this.#set(event.item_id, { text: `${event.name}(${event.arguments})`, state: "done" });
      case "response.output_item.done":
        return event.item.type === "message" ? this.#set(event.item.id, { state: "done" }) : undefined;
      case "conversation.item.retrieved":
        return this.#retrieved(event.item);
    }
  }

  /** What a new session needs to go on from here: the items as text, cut to what was heard. */
  history() {
    return this.items
      .filter((item) => item.role !== "tool" && item.state === "done" && (item.heard ?? item.text))
      .map((item) => ({
        type: "message",
        role: item.role === "user" ? "user" : "assistant",
        content: [{ type: item.role === "user" ? "input_text" : "output_text", text: item.heard ?? item.text }],
      }));
  }

  #add(item, after) {
    const known = this.get(item.id);
    if (known) return known;
    const fresh = { heard: null, spoken: false, ...item };
    const place = this.items.findIndex((other) => other.id === after);
    if (place >= 0) this.items.splice(place + 1, 0, fresh);
    else this.items.push(fresh);
    return fresh;
  }

  #added(item, after) {
    if (item.type === "function_call") return this.#add({ id: item.id, role: "tool", text: item.name, state: "writing" }, after);
    if (item.type !== "message" || item.role === "system") return;
    const text = (item.content ?? []).map((part) => part.text ?? part.transcript ?? "").join("");
    const role = item.role === "user" ? "user" : "agent";
    const waits = role === "agent" ? "writing" : text ? "done" : "transcribing";
    return this.#add({ id: item.id, role, text, state: item.status === "completed" && text ? "done" : waits }, after);
  }

  #append(id, delta, spoken = false) {
    const item = this.get(id);
    if (item) Object.assign(item, { text: item.text + delta, spoken });
    return item;
  }

  #set(id, change) {
    const item = this.get(id);
    return item && Object.assign(item, change);
  }

  /** Asked for after an interruption: the server renders an item up to what was heard of it. */
  #retrieved(item) {
    const heard = (item.content ?? []).map((part) => part.transcript ?? part.text ?? "").join("");
    return item.role === "assistant" ? this.#set(item.id, { heard }) : undefined;
  }
}
