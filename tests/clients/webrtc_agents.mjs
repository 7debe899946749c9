// @openai/agents-realtime over WebRTC, in Node by @roamhq/wrtc: a written turn, a spoken one, an interruption.
import { readFileSync } from 'node:fs';
import wrtc from '@roamhq/wrtc';
import { OpenAIRealtimeWebRTC, RealtimeAgent, RealtimeSession } from '@openai/agents-realtime';

const { RTCAudioSink, RTCAudioSource } = wrtc.nonstandard;
Object.assign(globalThis, { RTCPeerConnection: wrtc.RTCPeerConnection, MediaStream: wrtc.MediaStream });

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const speech = readFileSync(process.env.ANTIPHON_SPEECH).subarray(44); // 24 kHz mono s16le
const source = new RTCAudioSource();
const microphone = new wrtc.MediaStream([source.createTrack()]);

// The microphone: 10 ms at a time, silence unless something is to be said.
let saying = Buffer.alloc(0);
setInterval(() => {
  const samples = new Int16Array(240);
  const piece = saying.subarray(0, 480);
  saying = saying.subarray(480);
  for (let i = 0; i < piece.length >> 1; i++) samples[i] = piece.readInt16LE(2 * i);
  source.onData({ samples, sampleRate: 24000, bitsPerSample: 16, channelCount: 1, numberOfFrames: 240 });
}, 10);

let loud = 0; // milliseconds of sound that have come
const loudspeaker = {
  set srcObject(stream) {
    const sink = new RTCAudioSink(stream.getAudioTracks()[0]);
    sink.ondata = ({ samples }) => (loud += samples.some((s) => Math.abs(s) > 300) ? 10 : 0);
  },
};

const events = [];
const transport = new OpenAIRealtimeWebRTC({
  baseUrl: `${process.env.ANTIPHON_HTTP_URL}/realtime/calls`,
  mediaStream: microphone,
  audioElement: loudspeaker,
  useInsecureApiKey: true,
});
transport.on('*', (event) => events.push(event));
const agent = new RealtimeAgent({ name: 'assistant', instructions: 'Answer in three long sentences.' });
const session = new RealtimeSession(agent, { transport });
session.on('error', (error) => events.push({ type: 'error', error }));

let from = 0;
async function until(test, what) {
  for (let waited = 0; waited < 60000; waited += 20) {
    const at = events.findIndex((e, n) => n >= from && test(e));
    if (at >= 0) {
      from = at + 1;
      return events[at];
    }
    await sleep(20);
  }
  throw new Error(`waited for ${what}; last: ${events.slice(-10).map((e) => e.type).join(' ')}`);
}
const type = (name) => until((e) => e.type === name, name);
async function check(name, body) {
  const detail = await body();
  console.log(JSON.stringify({ check: name, ok: true, detail: String(detail) }));
}

await check('connect', async () => {
  await session.connect({ apiKey: 'dummy' });
  if (!transport.callId.startsWith('rtc_')) throw new Error(`call id ${transport.callId}`);
  return transport.callId;
});
await check('text_turn', async () => {
  session.sendMessage('Say hello.');
  await type('output_audio_buffer.started');
  await type('response.done');
  await type('output_audio_buffer.stopped');
  await sleep(500);
  if (loud < 200) throw new Error(`only ${loud} ms of sound`);
  return `${loud} ms of sound`;
});
await check('spoken_turn', async () => {
  saying = speech;
  await type('input_audio_buffer.speech_started');
  const done = await type('conversation.item.input_audio_transcription.completed');
  await type('output_audio_buffer.started');
  return done.transcript;
});
await check('barge_in', async () => {
  await sleep(600);
  saying = speech;
  await type('input_audio_buffer.speech_started');
  await type('output_audio_buffer.cleared');
  const cut = await type('conversation.item.truncated');
  await type('output_audio_buffer.started');
  session.interrupt();
  await type('output_audio_buffer.cleared');
  // interrupt() cancels what the client believes to run; a response that has just ended is the protocol's harmless race.
  const errors = events.filter((e) => e.type === 'error' && e.error?.code !== 'response_cancel_not_active');
  if (errors.length) throw new Error(JSON.stringify(errors[0]));
  return `heard ${cut.audio_end_ms} ms`;
});
await check('hang_up', async () => {
  session.close();
  return transport.status;
});
process.exit(0);
