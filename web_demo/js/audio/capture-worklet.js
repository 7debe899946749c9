// Whatever comes in, as mono frames of 20 ms at 24 kHz, each with its level and its time.
import { Resampler } from "./resample.js";

const RATE = 24000;
const FRAME = 480;

class Capture extends AudioWorkletProcessor {
  constructor() {
    super();
    this.resampler = new Resampler(sampleRate, RATE);
    this.frame = new Float32Array(FRAME);
    this.filled = 0;
  }

  process([channels]) {
    if (!channels.length) return true;
    const mono = channels[0].slice();
    if (channels.length > 1) for (let i = 0; i < mono.length; i++) mono[i] = (mono[i] + channels[1][i]) / 2;
    for (const sample of this.resampler.feed(mono)) {
      this.frame[this.filled++] = sample;
      if (this.filled === FRAME) this.flush();
    }
    return true;
  }

  flush() {
    let power = 0;
    for (const sample of this.frame) power += sample * sample;
    const samples = this.frame;
    this.frame = new Float32Array(FRAME);
    this.filled = 0;
    this.port.postMessage({ samples, rms: Math.sqrt(power / FRAME), time: currentTime }, [samples.buffer]);
  }
}

registerProcessor("capture", Capture);
