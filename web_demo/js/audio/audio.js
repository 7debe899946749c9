// The page's one AudioContext: a microphone, a loudspeaker with an account, and taps that report levels.
const MODULES = ["capture-worklet.js", "player-worklet.js"];
let context = null;
let loading = null;

/** Whether this page may work on sound at all: browsers keep worklets to secure addresses. */
export const canSound = () => window.isSecureContext && "audioWorklet" in AudioContext.prototype;

/** The running context. The first call must come from a click: browsers allow no sound before one. */
export async function audioContext() {
  context ??= new AudioContext({ latencyHint: "interactive" });
  loading ??= Promise.all(MODULES.map((name) => context.audioWorklet.addModule(new URL(name, import.meta.url))));
  await loading;
  if (context.state !== "running") await context.resume();
  return context;
}

/** The user's microphone with the browser's echo canceller; rejects with what getUserMedia rejects with. */
export function openMicrophone() {
  return navigator.mediaDevices.getUserMedia({
    audio: { echoCancellation: true, noiseSuppression: true, autoGainControl: true, channelCount: 1 },
  });
}

/** Calls `onFrame({samples, rms, time})` for every 20 ms (24 kHz mono) of a stream or node; returns a function to stop. */
export async function tap(source, onFrame) {
  if (!canSound()) return () => {};
  const ctx = await audioContext();
  const from = source instanceof MediaStream ? ctx.createMediaStreamSource(source) : source;
  const node = new AudioWorkletNode(ctx, "capture", { numberOfOutputs: 0 });
  node.port.onmessage = ({ data }) => onFrame(data);
  from.connect(node);
  return () => {
    node.port.onmessage = null;
    from.disconnect(); // from everything: the loudspeaker may have let go of it already
  };
}

/** A loudspeaker for pieces of 24 kHz audio, in order. */
export class Speaker {
  static async open() {
    if (!canSound()) return new Speaker();
    const ctx = await audioContext();
    const speaker = new Speaker();
    speaker.node = new AudioWorkletNode(ctx, "player", { numberOfInputs: 0, outputChannelCount: [1] });
    speaker.node.connect(ctx.destination);
    speaker.node.port.onmessage = ({ data }) => speaker.#told(data);
    return speaker;
  }

  item = null; // what is being heard
  playedMs = 0; // how much of it
  busy = false;
  onProgress = () => {};
  #cleared = null;

  play(item, samples) {
    if (!this.node) return;
    this.busy = true;
    this.node.port.postMessage({ item, samples }, [samples.buffer]);
  }

  /** Stop at once. Resolves to {item, ms}: what had been heard, or item null if nothing was playing. */
  clear() {
    if (!this.node) return Promise.resolve({ item: null, ms: 0 });
    this.busy = false;
    return new Promise((resolve) => {
      this.#cleared = resolve;
      this.node.port.postMessage({ clear: true });
    });
  }

  close() {
    if (!this.node) return;
    this.node.port.onmessage = null;
    this.node.disconnect();
  }

  #told({ item, played, dry, cleared }) {
    // What the worklet has given away is heard when it has passed the sound card.
    const late = ((context.outputLatency || 0) + (context.baseLatency || 0)) * 1000;
    const ms = Math.max(0, Math.round(played / 24 - late));
    if (cleared) {
      this.item = null;
      this.#cleared?.({ item, ms });
      return;
    }
    this.item = item;
    this.playedMs = ms;
    this.busy = !dry;
    this.onProgress(item, ms, dry);
  }
}

export function toBase64(samples) {
  const pcm = new Int16Array(samples.length);
  for (let i = 0; i < samples.length; i++) pcm[i] = Math.max(-1, Math.min(1, samples[i])) * 32767;
  return btoa(String.fromCharCode(...new Uint8Array(pcm.buffer)));
}

export function fromBase64(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return Float32Array.from(new Int16Array(bytes.buffer), (v) => v / 32768);
}
