// Windowed-sinc resampling of a stream at any ratio (J. O. Smith, "Digital Audio Resampling", CCRMA): a table of filter
// phases, and a position that walks over the input. Pieces of any length give the same samples as one long piece.
const PHASES = 256;
const ZERO_CROSSINGS = 12;

export class Resampler {
  constructor(from, to) {
    const narrow = Math.min(1, to / from);
    this.step = from / to;
    this.half = Math.ceil(ZERO_CROSSINGS / narrow);
    this.taps = phases(narrow * 0.94, this.half);
    this.held = new Float32Array(2 * this.half);
    this.at = this.half;
  }

  /** The samples (Float32Array, mono) that `input` completes; a few are held back for the next call. */
  feed(input) {
    const { half, step, taps } = this;
    const all = new Float32Array(this.held.length + input.length);
    all.set(this.held);
    all.set(input, this.held.length);
    const room = Math.max(0, Math.ceil((all.length - half - this.at) / step) + 1);
    const out = new Float32Array(room);
    let made = 0;
    while (this.at + half + 1 < all.length) {
      const whole = Math.floor(this.at);
      const row = taps[Math.round((this.at - whole) * PHASES)];
      let sum = 0;
      for (let k = 0, i = whole - half + 1; k < row.length; k++, i++) sum += all[i] * row[k];
      out[made++] = sum;
      this.at += step;
    }
    const past = Math.max(0, Math.floor(this.at) - half);
    this.held = all.slice(past);
    this.at -= past;
    return out.subarray(0, made);
  }
}

/** Row p weighs the 2 * half inputs around a point that lies p / PHASES after one of them. */
function phases(cutoff, half) {
  return Array.from({ length: PHASES + 1 }, (_, p) => {
    const row = new Float32Array(2 * half);
    let total = 0;
    for (let k = 0; k < row.length; k++) {
      const x = k - half + 1 - p / PHASES;
      const angle = Math.PI * cutoff * x;
      const window = 0.5 + 0.5 * Math.cos(Math.PI * Math.max(-1, Math.min(1, x / half)));
      row[k] = cutoff * (x === 0 ? 1 : Math.sin(angle) / angle) * window;
      total += row[k];
    }
    return row.map((tap) => tap / total);
  });
}
