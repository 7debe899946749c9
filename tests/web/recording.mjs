// The page's recording without a browser: `node recording.mjs MODULE`. As many pieces as an hour has, each a tenth as long;
// prints how many frames its WAV file has, and some of them: left the user, right the agent, who begins a second later.
const { Recording } = await import(process.argv[2]);
const RATE = 24000;
const PIECE = 48;
const recording = new Recording();
const user = new Float32Array(PIECE).fill(0.25);
const agent = new Float32Array(PIECE).fill(0.5);
for (let n = 1; n <= 180_000; n++) {
  const time = (n * PIECE) / RATE;
  recording.add("user", user, time);
  if (time > 1) recording.add("agent", agent, time);
}
const pcm = new Int16Array((await recording.wav().arrayBuffer()).slice(44));
const at = (frame) => [pcm[2 * frame], pcm[2 * frame + 1]];
const frames = 180_000 * PIECE;
console.log(JSON.stringify({ frames: pcm.length / 2, first: at(0), second: at(RATE), last: at(frames - 1) }));
