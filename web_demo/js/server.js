// What the page asks the server besides the call itself.
const POLL_MS = 1500;

export class Server {
  /** `key()`: the API key now in the form, or "". */
  constructor(key) {
    this.key = key;
  }

  /** Resolves when every model is warm. `onWait(status)` is called while it is not; rejects with {code} when it will not be. */
  async ready(onWait, signal) {
    for (;;) {
      const { status } = await this.health();
      if (status === "ready" || status === "degraded") return;
      if (status === "failed") throw Object.assign(new Error("start_failed"), { code: "start_failed" });
      if (status === "closing") throw Object.assign(new Error("closing"), { code: "server_shutting_down" });
      onWait(status);
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
      signal.throwIfAborted();
    }
  }

  async health() {
    return (await fetch("v1/health")).json();
  }

  async voices() {
    return (await this.#get("v1/audio/voices")).data;
  }

  async trace(session) {
    return this.#get(`v1/realtime/sessions/${session}/trace`);
  }

  async #get(path) {
    const key = this.key();
    const answer = await fetch(path, { headers: key ? { Authorization: `Bearer ${key}` } : {} });
    if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
    return answer.json();
  }
}
