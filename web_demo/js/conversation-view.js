// Draws the conversation: who, what has been said aloud, what is still to come, what an interruption cut.
const NAMES = { user: "You", agent: "Antiphon", tool: "Tool" };

export class ConversationView {
  #rows = new Map();

  constructor(list, announce) {
    this.list = list;
    this.announce = announce;
  }

  /** Redraw one item. `said`: how many characters of it have been heard so far, or null when that is not known. */
  draw(item, items, said = null) {
    if (item.gone) {
      this.#rows.get(item.id)?.remove();
      this.#rows.delete(item.id);
      return;
    }
    const row = this.#row(item, items);
    const follow = this.list.scrollHeight - this.list.scrollTop - this.list.clientHeight < 80;
    row.lastChild.replaceChildren(...pieces(item, said));
    if (item.state === "done" && !row.dataset.told && item.text) {
      row.dataset.told = "yes";
      this.announce.textContent = `${NAMES[item.role]}: ${item.text}`;
    }
    if (follow) this.list.scrollTop = this.list.scrollHeight;
  }

  clear() {
    this.#rows.clear();
    this.list.replaceChildren();
  }

  #row(item, items) {
    let row = this.#rows.get(item.id);
    if (!row) {
      row = document.createElement("li");
      row.className = `utterance ${item.role}`;
      row.dataset.item = item.id;
      row.append(element("span", "who", NAMES[item.role]), document.createElement("div"));
      const next = items.slice(items.indexOf(item) + 1).find((other) => this.#rows.has(other.id));
      this.list.insertBefore(row, next ? this.#rows.get(next.id) : null);
      this.#rows.set(item.id, row);
    }
    return row;
  }
}

function pieces(item, said) {
  if (item.heard !== null && item.heard.length < item.text.length) {
    const cut = element("s", "", item.text.slice(item.heard.length));
    return [item.heard, element("span", "visually-hidden", " (cut off, not heard: "), cut, element("span", "visually-hidden", ")")];
  }
  if (!item.text) {
    const words = { speaking: "listening", transcribing: "reading", writing: "" };
    return [element("span", "coming dots", words[item.state] ?? "")];
  }
  if (item.role === "user" && item.state !== "done") return [item.text, element("span", "coming dots", "")];
  if (said === null || said >= item.text.length) return [item.text];
  return [item.text.slice(0, said), element("span", "coming", item.text.slice(said))];
}

export function element(name, className, text = "") {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.textContent = text;
  return made;
}
