// The call over a WebSocket: audio travels inside events, and the page itself keeps account of what was heard.
import { Speaker, fromBase64, toBase64 } from "./audio/audio.js";

export class WebSocketCall {
  onEvent = () => {};
  onClose = () => {};
  onProgress = () => {};
  #heard = Promise.resolve();

  constructor({ key }) {
    this.key = key;
  }

  /** Resolves when the socket is open; `microphone` is not needed here: frames come by `hear`. */
  async open() {
    const url = new URL("v1/realtime?model=antiphon", location.href);
    url.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    const protocols = ["realtime"];
    if (this.key) protocols.push(`openai-insecure-api-key.${this.key}`);
    this.speaker = await Speaker.open();
    this.speaker.onProgress = (item, ms, dry) => this.onProgress(item, ms, dry);
    this.socket = new WebSocket(url, protocols);
    this.socket.onmessage = ({ data }) => this.#receive(JSON.parse(data));
    this.socket.onclose = ({ code, reason }) => {
      this.speaker.close();
      this.onClose({ code, reason });
    };
    await new Promise((resolve, reject) => {
      this.socket.addEventListener("open", resolve, { once: true });
      this.socket.addEventListener("close", () => reject(new Error("The server cannot be reached.")), { once: true });
    });
  }

  send(event) {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(event));
  }

  /** 20 ms of the user, 24 kHz. */
  hear(samples) {
    this.send({ type: "input_audio_buffer.append", audio: toBase64(samples) });
  }

  setMuted() {}

  /** Silence the answer now, and tell the server how much of it was heard. */
  interrupt() {
    if (!this.speaker.busy) return;
    this.#heard = this.speaker.clear().then(({ item, ms }) => {
      if (item) this.send({ type: "conversation.item.truncate", item_id: item, content_index: 0, audio_end_ms: ms });
    });
  }

  get speaking() {
    return this.speaker?.busy ?? false;
  }

  get outputNode() {
    return this.speaker.node;
  }

  close() {
    this.socket?.close(1000);
    this.speaker?.clear();
  }

  #receive(event) {
    if (event.type === "response.output_audio.delta") this.speaker.play(event.item_id, fromBase64(event.delta));
    if (event.type === "input_audio_buffer.speech_started") this.interrupt();
    this.onEvent(event);
  }
}
