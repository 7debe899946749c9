// Every event of the protocol, both ways, as it went over the wire; audio is shown by its length.
import { element } from "./conversation-view.js";

const SHOWN = 400;

export class EventLog {
  #lines = [];
  #began = performance.now();

  constructor(list, count) {
    this.list = list;
    this.count = count;
  }

  /** `way`: "→" to the server, "←" from it. */
  add(way, event) {
    if (event.type === "input_audio_buffer.append") return;
    const at = ((performance.now() - this.#began) / 1000).toFixed(3);
    const body = JSON.stringify(event, (key, value) =>
      (key === "delta" || key === "audio") && typeof value === "string" && value.length > 400 ? `[${value.length} characters]` : value,
    );
    this.#lines.push(`${at} ${way} ${body}`);
    this.count.textContent = this.#lines.length;
    const row = document.createElement("li");
    row.title = body.slice(0, 2000);
    row.append(element("span", "", at), element("span", "", way), element("span", "", event.type));
    this.list.append(row);
    if (this.list.childElementCount > SHOWN) this.list.firstChild.remove();
    this.list.scrollTop = this.list.scrollHeight;
  }

  get text() {
    return this.#lines.join("\n");
  }

  clear() {
    this.#lines = [];
    this.count.textContent = "0";
    this.list.replaceChildren();
  }
}
