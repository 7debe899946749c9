// @openai/agents-realtime over WebSocket.
import { OpenAIRealtimeWebSocket, RealtimeAgent, RealtimeSession, tool } from '@openai/agents-realtime';
import { z } from 'zod';
import { env, Log, must, recording, report, speak, STORY } from './common.mjs';

const log = new Log();
const called = [];
let session;
const weather = tool({
  name: 'get_weather',
  description: 'The weather in a city.',
  parameters: z.object({ city: z.string() }),
  async execute({ city }) {
    called.push(city);
    session.transport.updateSessionConfig({ toolChoice: 'none' }); // else the answer to it would be a call again
    return 'rain';
  },
});
const agent = new RealtimeAgent({ name: 'assistant', instructions: 'Answer in one short sentence.', tools: [weather] });
session = new RealtimeSession(agent, {
  transport: new OpenAIRealtimeWebSocket({ url: `${env.url}?model=gpt-realtime` }),
  config: { toolChoice: 'none' },
});
for (const name of ['audio', 'audio_interrupted', 'audio_stopped', 'agent_tool_end', 'error', 'history_updated']) {
  session.on(name, (...args) => log.push({ type: `sdk.${name}`, args }));
}
session.transport.on('*', (event) => log.push(event));
const assistant = () => session.history.filter((i) => i.type === 'message' && i.role === 'assistant');

await report({
  async text_turn() {
    await session.connect({ apiKey: env.key });
    session.sendMessage('Say hello.');
    await log.type('response.done');
    const said = assistant().at(-1)?.content?.[0]?.transcript;
    must(said, `no transcript in the history: ${JSON.stringify(session.history)}`);
    return said;
  },
  async spoken_turn() {
    await speak(recording('SPEECH'), (pcm) => session.sendAudio(new Uint8Array(pcm).buffer));
    await log.type('input_audio_buffer.speech_started');
    await log.type('response.created');
    await log.type('sdk.audio');
    await log.type('response.done');
    const user = () => session.history.filter((i) => i.role === 'user').at(-1)?.content?.[0]?.transcript;
    await log.next(() => user(), 10000).catch(() => null);
    must(user(), 'the user is not in the history');
    return user();
  },
  async tool_call() {
    session.transport.updateSessionConfig({ toolChoice: 'required' });
    await log.type('session.updated');
    session.sendMessage('What is the weather in Oslo?');
    await log.type('sdk.agent_tool_end');
    const answer = await log.next((e) => e.type === 'response.done' && e.response.output?.[0]?.type === 'message');
    must(called.length === 1, `called ${called.length} times`);
    return `${called[0]} -> ${answer.response.output[0].content?.[0]?.transcript}`;
  },
  async barge_in() {
    session.sendMessage(STORY);
    const created = await log.type('response.created');
    await log.type('sdk.audio');
    await speak(recording('SPEECH'), (pcm) => session.sendAudio(new Uint8Array(pcm).buffer));
    await log.type('sdk.audio_interrupted');
    await log.type('conversation.item.truncated');
    await log.next((e) => e.type === 'response.done' && e.response.id !== created.response.id);
    const errors = log.seen.filter((e) => e.type === 'error' || e.type === 'sdk.error');
    must(!errors.length, JSON.stringify(errors[0]));
    return 'audio_interrupted, truncated, answered anew';
  },
});
