// openai-realtime-api, an old client of the beta dialect.
import { RealtimeClient } from 'openai-realtime-api';
import { env, must, recording, report, sleep, speak, STORY } from './common.mjs';

const client = new RealtimeClient({
  url: env.url,
  apiKey: env.key,
  sessionConfig: { instructions: 'Answer in one short sentence.', turn_detection: { type: 'server_vad' }, input_audio_transcription: { model: 'whisper-1' } },
});
const problems = [];
const events = [];
client.on('error', (event) => problems.push(event));
client.on('realtime.event', ({ source, event }) => source === 'server' && events.push(event));

async function until(test, ms = 30000) {
  const end = Date.now() + ms;
  while (Date.now() < end) {
    const found = test();
    if (found) return found;
    await sleep(20);
  }
  throw new Error(`waited for ${test}; last ${events.slice(-10).map((e) => e.type).join(' ')}; ${JSON.stringify(problems).slice(0, 300)}`);
}
const answers = () => client.conversation.getItems().filter((i) => i.type === 'message' && i.role === 'assistant' && i.status === 'completed');
const dones = () => events.filter((e) => e.type === 'response.done').length;

await report({
  async text_turn() {
    await client.connect();
    await client.waitForSessionCreated();
    client.sendUserMessageContent([{ type: 'input_text', text: 'Say hello.' }]);
    const item = await until(() => answers().at(-1));
    await until(() => dones() >= 1);
    const said = item.formatted.transcript || item.formatted.text;
    must(said, JSON.stringify(item));
    return said;
  },
  async spoken_turn() {
    const before = dones();
    await speak(recording('SPEECH'), (pcm) => client.appendInputAudio(new Int16Array(new Uint8Array(pcm).buffer)));
    await until(() => dones() > before);
    const heard = await until(() => client.conversation.getItems().filter((i) => i.role === 'user').at(-1)?.formatted?.transcript?.trim());
    const audio = answers().at(-1).formatted.audio;
    must(audio.length > 2400, `only ${audio.length} samples`);
    return heard;
  },
  async tool_call() {
    const calls = [];
    client.addTool({ name: 'get_weather', description: 'The weather.', parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] } }, async (args) => {
      calls.push(args);
      client.updateSession({ tool_choice: 'none' });
      return { sky: 'rain' };
    });
    client.updateSession({ tool_choice: 'required' });
    const before = dones();
    client.sendUserMessageContent([{ type: 'input_text', text: 'What is the weather in Oslo?' }]);
    await until(() => dones() >= before + 2);
    must(calls.length === 1 && calls[0].city, JSON.stringify(calls));
    return JSON.stringify(calls[0]);
  },
  async barge_in() {
    let interrupted = 0;
    client.on('conversation.interrupted', () => (interrupted += 1));
    const at = events.length;
    const before = dones();
    client.sendUserMessageContent([{ type: 'input_text', text: STORY }]);
    const first = await until(() => events.slice(at).find((e) => e.type === 'response.audio.delta'));
    await speak(recording('SPEECH'), (pcm) => client.appendInputAudio(new Int16Array(new Uint8Array(pcm).buffer)));
    await until(() => interrupted);
    client.realtime.send('conversation.item.truncate', { item_id: first.item_id, content_index: 0, audio_end_ms: 200 });
    await until(() => events.slice(at).some((e) => e.type === 'conversation.item.truncated'));
    await until(() => dones() >= before + 2);
    must(!problems.length, JSON.stringify(problems[0]));
    return 'interrupted, truncated';
  },
});
