// The page's loudspeaker without a browser: `node player.mjs WORKLET RATE`. Prints what it made of a 440 Hz tone of 24 kHz,
// given in odd pieces: "whole" (all of it), "cleared" (cut off at every possible block), "dry" (a gap between two halves).
const [, , worklet, rate] = process.argv;
globalThis.sampleRate = Number(rate);
globalThis.currentTime = 0;
globalThis.AudioWorkletProcessor = class {
  port = { postMessage() {} };
};
let Player;
globalThis.registerProcessor = (_, made) => (Player = made);
await import(worklet);

const SIZES = [1, 7, 480, 1365, 3, 1920, 4800, 33];
const BLOCK = 128;
const tone = (from, to) => Float32Array.from({ length: to - from }, (_, i) => 0.4 * Math.sin((2 * Math.PI * 440 * (from + i)) / 24000));

function say(player, from, to) {
  for (let at = from, n = 0; at < to; n++) {
    const end = Math.min(to, at + SIZES[n % SIZES.length]);
    player.port.onmessage({ data: { item: "a", samples: tone(at, end) } });
    at = end;
  }
}

function hear(player, blocks) {
  const heard = [];
  for (let n = 0; n < blocks; n++) {
    const out = new Float32Array(BLOCK);
    player.process([], [[out]]);
    heard.push(...out);
  }
  return heard;
}

const blocks = (samples) => Math.floor((samples * sampleRate) / 24000 / BLOCK);
const whole = new Player();
say(whole, 0, 24000);
const cleared = [];
for (let n = 8; n < 24; n++) {
  const player = new Player();
  say(player, 0, 24000);
  const before = hear(player, n);
  player.port.onmessage({ data: { clear: true } });
  cleared.push([...before, ...hear(player, 8)]);
}
const dry = new Player();
say(dry, 0, 4830);
const gap = hear(dry, blocks(4830) + 4);
say(dry, 4830, 9000);
console.log(JSON.stringify({ whole: hear(whole, blocks(24000)), cleared, dry: [...gap, ...hear(dry, blocks(4000))] }));
