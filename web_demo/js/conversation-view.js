// Draws the conversation: who, what has been said aloud, what is still to come, what an interruption cut.
const NAMES = { user: "You", agent: "Antiphon", tool: "Tool" };

export class ConversationView {
  #rows = new Map();
  #following = true;
  #left = 0; // where this view has scrolled to; anywhere else is the reader's own doing

  constructor(list, announce) {
    this.list = list;
    this.announce = announce;
    list.addEventListener("scroll", () => {
      if (Math.abs(list.scrollTop - this.#left) < 2) return;
      this.#following = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
    });
  }

  /** Redraw one item. `said`: how many characters of it have been heard so far, or null when that is not known. */
  draw(item, items, said = null) {
    if (item.gone) {
      this.#rows.get(item.id)?.remove();
      this.#rows.delete(item.id);
      return;
    }
    const row = this.#row(item, items);
    row.lastChild.replaceChildren(...pieces(item, said));
    if (item.state === "done" && !row.dataset.told && item.text) {
      row.dataset.told = "yes";
      this.announce.textContent = `${NAMES[item.role]}: ${item.text}`;
    }
    if (this.#following) this.#follow(row);
  }

  clear() {
    this.#rows.clear();
    this.list.replaceChildren();
    this.#following = true;
  }

  /** Keep in view what is being said, with a few of the words to come; without these the end of the list. */
  #follow(row) {
    const { list } = this;
    const end = list.scrollHeight - list.clientHeight;
    const coming = row.querySelector(".coming")?.getClientRects()[0];
    const said = coming ? list.scrollTop + coming.top - list.getBoundingClientRect().top : Infinity;
    list.scrollTop = Math.max(0, Math.min(end, said - list.clientHeight * 0.6));
    this.#left = list.scrollTop;
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
