// The settings form as a session of the protocol, remembered in this browser (never the key, never the consent).
import { TOOLS } from "./tools.js";

const KEPT = ["transport", "mode", "silence", "eagerness", "voice", "language", "instructions"];
const STORE = "antiphon.settings";

export class Settings {
  constructor(form, onChange) {
    this.form = form;
    this.#restore();
    this.#show();
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", () => this.#show());
    form.addEventListener("change", () => {
      this.#keep();
      onChange();
    });
  }

  value(name) {
    return this.form.elements[name].value; // also of a field that is disabled during a call
  }

  checked(name) {
    return this.form.elements[name].checked;
  }

  get pushToTalk() {
    return this.value("mode") === "push";
  }

  /** The silence that the server waits for at the end of a turn. */
  get silenceMs() {
    return this.value("mode") === "server_vad" ? Number(this.value("silence")) : 0;
  }

  get session() {
    const voice = this.value("voice");
    const instructions = this.value("instructions").trim();
    const language = this.value("language");
    return {
      type: "realtime",
      ...(instructions && { instructions }),
      tools: this.checked("tool") ? TOOLS : [],
      audio: {
        input: {
          turn_detection: this.#turnDetection(),
          transcription: { model: "whisper-1", language: language || null },
        },
        ...(voice && { output: { voice } }),
      },
    };
  }

  /** Fill the lists with what this server has. */
  offer(voices) {
    const select = this.form.elements.voice;
    for (const { id, name } of voices) select.add(new Option(name, id));
    const spoken = [...new Set(voices.flatMap((voice) => voice.languages ?? []))];
    const names = new Intl.DisplayNames(["en"], { type: "language" });
    for (const code of new Set([...spoken, "en", "de", "es", "fr", "it", "ja", "ko", "pt", "zh"])) {
      this.form.elements.language.add(new Option(names.of(code), code));
    }
    this.#restore();
  }

  #turnDetection() {
    const mode = this.value("mode");
    if (mode === "push") return null;
    if (mode === "semantic_vad") return { type: mode, eagerness: this.value("eagerness") };
    return { type: mode, silence_duration_ms: Number(this.value("silence")) };
  }

  #show() {
    this.form.querySelector("#silence-shown").value = `${this.value("silence")} ms`;
    for (const part of this.form.querySelectorAll("[data-for]")) part.hidden = part.dataset.for !== this.value("mode");
  }

  #keep() {
    const kept = Object.fromEntries(KEPT.map((name) => [name, this.value(name)]));
    try {
      localStorage.setItem(STORE, JSON.stringify(kept));
    } catch {
      // A browser that keeps nothing: the settings hold for this visit.
    }
  }

  #restore() {
    let kept = {};
    try {
      kept = Object(JSON.parse(localStorage.getItem(STORE)));
    } catch {
      return;
    }
    for (const name of KEPT) if (name in kept) put(this.form.elements[name], String(kept[name]));
    this.#show();
  }
}

/** A value that the field does not know (another server's voice, an older page's mode) leaves it as it is. */
function put(field, value) {
  const before = field.value;
  field.value = value;
  if (field.value !== value) field.value = before;
}
