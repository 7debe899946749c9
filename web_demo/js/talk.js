// One talk: from the button to hanging up, over whichever transport, through lost connections. The page listens to it.
import { audioContext, canSound, openMicrophone, tap } from "./audio/audio.js";
import * as problems from "./problems.js";
import { run as runTool } from "./tools.js";
import { NoMedia, WebRtcCall } from "./webrtc.js";
import { WebSocketCall } from "./websocket.js";

const RETRIES_MS = [300, 1000, 2000, 4000, 8000];
const SHORTEST_PRESS_MS = 250;
const TAIL_MS = 150; // what is still on its way when the button is let go

export class Talk {
  state = "idle"; // idle | connecting | live | lost
  muted = false;
  held = false;
  session = null;
  #call = null;
  #microphone = null;
  #stops = [];
  #active = null; // the running response
  #starting = null;
  #toolReplies = 0;
  #leaving = new AbortController();
  #past = [];
  #letGo = 0;

  /** `page`: {onState, onStatus, onProblem, onEvent, onSent, onLevel, onFrame, onProgress, history}. */
  constructor(settings, server, page) {
    this.settings = settings;
    this.server = server;
    this.page = page;
  }

  /** Begin; without a microphone one can still write and listen. */
  start(how) {
    return (this.#starting = this.#start(how));
  }

  async #start({ microphone = true } = {}) {
    const { signal } = (this.#leaving = new AbortController());
    this.#past = [];
    this.muted = false;
    this.#to("connecting", "Connecting…");
    this.page.onProblem(null);
    try {
      if (canSound()) await audioContext();
      signal.throwIfAborted();
      if (microphone) await this.#openMicrophone(signal);
      await this.#connect(signal);
    } catch (error) {
      if (signal.aborted) return; // hung up meanwhile; perhaps the next call has begun
      this.#release();
      this.page.onProblem(error.code ? problems.ofError(error) : problems.GONE);
      this.#to("idle", "Press to talk.");
    }
  }

  stop(status = "The call has ended. Press to talk again.") {
    this.#leaving.abort();
    this.#drop();
    this.#release();
    this.#to("idle", status);
  }

  setMuted(muted) {
    this.muted = muted;
    this.#call?.setMuted(!this.#open);
    this.page.onStatus(this.#invitation);
  }

  /** Push to talk: everything before this moment does not count. */
  press() {
    clearTimeout(this.#letGo); // pressed again at once: it goes on
    if (this.state !== "live" || this.held) return;
    this.held = true;
    this.pressedAt = performance.now();
    this.#silence();
    this.#send({ type: "input_audio_buffer.clear" });
    this.#call.setMuted(!this.#open);
    this.page.onStatus("Listening. Let go when you are done.");
  }

  release() {
    if (!this.held) return;
    const short = performance.now() - this.pressedAt < SHORTEST_PRESS_MS;
    clearTimeout(this.#letGo);
    this.#letGo = setTimeout(() => this.#released(short), TAIL_MS);
  }

  async write(text) {
    if (this.state === "idle") await this.start({ microphone: false });
    if (this.state === "connecting") await this.#starting;
    if (this.state !== "live") return false;
    this.#silence();
    const content = [{ type: "input_text", text }];
    this.#send({ type: "conversation.item.create", item: { type: "message", role: "user", content } });
    this.#ask();
    return true;
  }

  /** The settings have changed during the call. */
  update() {
    if (this.state !== "live") return;
    this.#send({ type: "session.update", session: this.settings.session });
    this.#call.setMuted(!this.#open);
    this.page.onStatus(this.#invitation);
  }

  get speaking() {
    return this.#call?.speaking ?? false;
  }

  get hasMicrophone() {
    return this.#microphone !== null;
  }

  /** Whether the user is to be heard right now. */
  get #open() {
    return !this.muted && (!this.settings.pushToTalk || this.held);
  }

  get #invitation() {
    if (!this.hasMicrophone) return "Connected. Write below.";
    if (this.muted) return "You are muted: nothing you say is sent.";
    return this.settings.pushToTalk ? "Hold the button, or the space bar, and speak." : "Go ahead, I am listening.";
  }

  #released(short) {
    this.held = false;
    this.#call?.setMuted(!this.#open);
    this.page.onStatus(this.#invitation);
    this.page.onProblem(short ? problems.SHORT_PRESS : null);
    if (short) return;
    this.#send({ type: "input_audio_buffer.commit" });
    this.#ask();
  }

  // ---- connecting. A `signal` is of one start; everything stops at the next step once that has been hung up.

  async #openMicrophone(signal) {
    const missing = problems.beforeMicrophone();
    if (missing) return this.page.onProblem(missing);
    this.page.onStatus("Allow the microphone, please.");
    let opened;
    try {
      opened = await openMicrophone();
    } catch (error) {
      signal.throwIfAborted();
      return this.page.onProblem(problems.ofMicrophone(error));
    }
    if (signal.aborted) for (const track of opened.getTracks()) track.stop();
    signal.throwIfAborted();
    this.#microphone = opened;
    this.#microphone.getAudioTracks()[0].onended = () => this.page.onProblem(problems.ofMicrophone({ name: "NotFoundError" }));
    const stop = await tap(this.#microphone, ({ samples, rms, time }) => {
      this.page.onLevel("user", this.#open ? rms : 0);
      if (this.state !== "live" || !this.#open) return;
      this.page.onFrame("user", samples, time);
      this.#call.hear(samples);
    });
    this.#keep(stop, signal);
  }

  async #connect(signal) {
    await this.server.ready(() => {
      this.page.onStatus("The server is warming up: its models are still being loaded.");
    }, signal);
    signal.throwIfAborted();
    this.page.onStatus("Connecting…");
    const Chosen = this.settings.value("transport") === "webrtc" ? WebRtcCall : WebSocketCall;
    try {
      await this.#join(new Chosen({ key: this.settings.value("key") }), signal);
    } catch (error) {
      signal.throwIfAborted();
      const missing = error.code === "webrtc_not_installed" || error.code === "unknown_url";
      if (Chosen !== WebRtcCall || !(error instanceof NoMedia || missing)) throw error;
      this.page.onProblem(missing ? problems.NO_WEBRTC : problems.NO_UDP);
      await this.#join(new WebSocketCall({ key: this.settings.value("key") }), signal);
    }
  }

  /** Resolves when the session is there. */
  async #join(call, signal) {
    this.#drop();
    this.#call = call;
    const created = new Promise((resolve, reject) => {
      call.onClose = ({ reason }) => reject(new Error(reason || "closed"));
      call.onEvent = (event) => {
        this.page.onEvent(event);
        if (event.type === "session.created") resolve(event.session);
        if (event.type === "error") reject(Object.assign(new Error(event.error.message), { code: event.error.code }));
      };
    });
    created.catch(() => {});
    call.onProgress = (item, ms, dry) => this.page.onProgress(item, ms, dry);
    await call.open(this.#microphone);
    const session = await created;
    if (signal.aborted) call.close();
    signal.throwIfAborted();
    this.session = session;
    call.onEvent = (event) => this.#receive(event);
    call.onClose = (end) => this.#closed(end);
    this.#send({ type: "session.update", session: this.settings.session });
    this.#past.forEach((item, n) => this.#send({ type: "conversation.item.create", item: { id: `past_${n}`, ...item } }));
    this.#active = null;
    this.#toolReplies = 0;
    call.setMuted(!this.#open);
    const stop = await tap(call.outputNode, ({ samples, rms, time }) => {
      this.page.onLevel("agent", rms);
      this.page.onFrame("agent", samples, time);
    });
    this.#keep(stop, signal);
    this.#to("live", this.#invitation);
  }

  /** What is to be undone at the end; at once, if that has come. */
  #keep(stop, signal) {
    if (signal.aborted) stop();
    signal.throwIfAborted();
    this.#stops.push(stop);
  }

  async #closed({ code, reason }) {
    if (this.state !== "live") return;
    if (code === 1000) return this.stop();
    if (reason.includes("maximum duration")) {
      this.page.onProblem(problems.ofError({ code: "session_expired" }));
      return this.stop("Press to talk again.");
    }
    const { signal } = this.#leaving;
    this.#past = this.page.history();
    this.#to("lost", "Reconnecting…");
    this.page.onProblem(problems.LOST);
    for (const wait of RETRIES_MS) {
      await new Promise((resolve) => setTimeout(resolve, wait));
      if (signal.aborted) return;
      try {
        await this.#connect(signal);
        this.page.onProblem(null);
        return;
      } catch {
        if (signal.aborted) return;
        this.page.onStatus("Reconnecting…");
      }
    }
    this.page.onProblem(problems.GONE);
    this.stop("Press to talk.");
  }

  // ---- the call

  #receive(event) {
    this.page.onEvent(event);
    switch (event.type) {
      case "error":
        if (event.error.code !== "response_cancel_not_active") this.page.onProblem(problems.ofError(event.error));
        break;
      case "response.created":
        this.#active = event.response.id;
        break;
      case "response.output_item.done":
        if (event.item.type === "function_call") this.#answerCall(event.item);
        break;
      case "conversation.item.truncated":
        this.#send({ type: "conversation.item.retrieve", item_id: event.item_id });
        break;
      case "response.done":
        this.#active = null;
        if (this.#toolReplies && event.response.status === "completed") this.#ask();
        this.#toolReplies = 0;
        break;
    }
  }

  #answerCall({ name, arguments: args, call_id: call }) {
    const item = { type: "function_call_output", call_id: call, output: runTool(name, args) };
    this.#send({ type: "conversation.item.create", item });
    this.#toolReplies += 1;
  }

  #ask() {
    this.#active = "asked"; // its id comes with response.created; until then it can be cancelled all the same
    this.#send({ type: "response.create" });
  }

  /** Stop whatever is being answered or heard. */
  #silence() {
    if (this.#active) this.#send({ type: "response.cancel" });
    this.#call.interrupt();
  }

  #send(event) {
    this.page.onSent(event);
    this.#call?.send(event);
  }

  #to(state, status) {
    this.state = state;
    this.page.onState(state);
    this.page.onStatus(status);
  }

  #drop() {
    if (this.#call) {
      this.#call.onClose = () => {};
      this.#call.close();
    }
    this.#call = null;
  }

  #release() {
    for (const stop of this.#stops.splice(0)) stop();
    for (const track of this.#microphone?.getTracks() ?? []) track.stop();
    this.#microphone = null;
    clearTimeout(this.#letGo);
    this.held = false;
    this.page.onLevel("user", 0);
    this.page.onLevel("agent", 0);
  }
}
