// A loudspeaker queue: 24 kHz pieces in, sound out, and an account of what of each item has been played.
import { Resampler } from "./resample.js";

const RATE = 24000;
const PIECE = 120;
const FADE_S = 0.004;
const EDGE_S = 0.002;

class Player extends AudioWorkletProcessor {
  constructor() {
    super();
    this.silence();
    this.playing = null;
    this.played = 0;
    this.told = 0;
    this.dry = false;
    this.port.onmessage = ({ data }) => (data.clear ? this.clear() : this.queue.push(data));
  }

  silence() {
    this.queue = [];
    this.ready = new Float32Array(0);
    this.resampler = new Resampler(RATE, sampleRate);
  }

  /** Stop now: what is on its way fades out within a few milliseconds, the rest is thrown away. */
  clear() {
    const { playing, played } = this;
    const length = Math.round(FADE_S * sampleRate);
    while (this.ready.length < length && this.pull());
    const fade = this.ready.slice(0, length);
    for (let i = 0; i < fade.length; i++) fade[i] *= 1 - i / fade.length;
    this.port.postMessage({ cleared: true, item: playing, played });
    this.silence();
    this.ready = fade;
    this.playing = null;
    this.played = 0;
  }

  /** Another few milliseconds from the queue; false when it is empty. */
  pull() {
    const head = this.queue[0];
    if (!head) return false;
    const piece = head.samples.subarray(0, PIECE);
    head.samples = head.samples.subarray(PIECE);
    if (!head.samples.length) this.queue.shift();
    if (head.item !== this.playing) {
      this.playing = head.item;
      this.played = 0;
    }
    this.played += piece.length;
    const made = this.resampler.feed(piece);
    const joined = new Float32Array(this.ready.length + made.length);
    joined.set(this.ready);
    joined.set(made, this.ready.length);
    this.ready = joined;
    return true;
  }

  /** No click where the sound runs dry inside of this block, nor where it goes on. */
  soften(out, have) {
    if (!have) return;
    const edge = Math.min(have, Math.round(EDGE_S * sampleRate));
    if (this.dry) for (let i = 0; i < edge; i++) out[i] *= i / edge;
    this.dry = have < out.length;
    if (this.dry) for (let i = 0; i < edge; i++) out[have - 1 - i] *= i / edge;
  }

  process(_, [channels]) {
    const out = channels[0];
    while (this.ready.length < out.length && this.pull());
    const have = Math.min(out.length, this.ready.length);
    out.set(this.ready.subarray(0, have));
    this.ready = this.ready.subarray(have);
    this.soften(out, have);
    for (const other of channels.slice(1)) other.set(out);
    if (this.playing && currentTime - this.told > 0.05) {
      this.told = currentTime;
      const dry = !this.queue.length && !this.ready.length;
      this.port.postMessage({ item: this.playing, played: this.played, dry });
    }
    return true;
  }
}

registerProcessor("player", Player);
