// The conversation's sound, kept in this tab while the user wants it: left the user, right the answers.
const RATE = 24000;

export class Recording {
  #tracks = { user: [], agent: [] };

  /** `time`: seconds on the AudioContext's clock at the end of these samples. */
  add(who, samples, time) {
    this.#tracks[who].push({ at: time - samples.length / RATE, samples });
  }

  get empty() {
    return !this.#tracks.user.length && !this.#tracks.agent.length;
  }

  clear() {
    this.#tracks = { user: [], agent: [] };
  }

  /** A 16-bit stereo WAV file. */
  wav() {
    // Pieces lie in order of time, and are more than a call takes as arguments: an hour has 360,000.
    const tracks = Object.values(this.#tracks).filter((pieces) => pieces.length);
    const start = Math.min(...tracks.map((pieces) => pieces[0].at));
    const end = Math.max(...tracks.map((pieces) => pieces.at(-1).at + pieces.at(-1).samples.length / RATE));
    const pcm = new Int16Array(2 * Math.ceil((end - start) * RATE + 1));
    Object.values(this.#tracks).forEach((pieces, side) => {
      let next = 0;
      for (const { at, samples } of pieces) {
        // Frames that follow each other are laid end to end; the clock only places what comes after a gap.
        const placed = Math.round((at - start) * RATE);
        const from = Math.abs(placed - next) < RATE / 20 ? next : placed;
        samples.forEach((sample, i) => (pcm[2 * (from + i) + side] = Math.max(-1, Math.min(1, sample)) * 32767));
        next = from + samples.length;
      }
    });
    return new Blob([header(pcm.byteLength), pcm], { type: "audio/wav" });
  }
}

function header(bytes) {
  const view = new DataView(new ArrayBuffer(44));
  const text = (at, word) => [...word].forEach((c, i) => view.setUint8(at + i, c.charCodeAt(0)));
  text(0, "RIFF");
  view.setUint32(4, 36 + bytes, true);
  text(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true);
  view.setUint16(22, 2, true);
  view.setUint32(24, RATE, true);
  view.setUint32(28, RATE * 4, true);
  view.setUint16(32, 4, true);
  view.setUint16(34, 16, true);
  text(36, "data");
  view.setUint32(40, bytes, true);
  return view;
}

export function download(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
