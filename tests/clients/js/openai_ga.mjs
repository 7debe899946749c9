// npm openai, GA, over ws. The SDK forces wss.
import OpenAI from 'openai';
import { OpenAIRealtimeWS } from 'openai/realtime/ws';
import { env, Log, must, recording, report, speak, STORY, WEATHER } from './common.mjs';

const client = new OpenAI({ baseURL: env.secure, apiKey: env.key });
const rt = new OpenAIRealtimeWS({ model: 'gpt-realtime', options: { rejectUnauthorized: false } }, client);
const log = new Log();
rt.on('event', (event) => log.push(event));
rt.on('error', (error) => log.push({ type: 'client_error', error }));

const item = (text) => ({ type: 'message', role: 'user', content: [{ type: 'input_text', text }] });

await report({
  async text_turn() {
    await log.type('session.created');
    rt.send({ type: 'session.update', session: { type: 'realtime', output_modalities: ['text'], instructions: 'Answer in one short sentence.' } });
    await log.type('session.updated');
    rt.send({ type: 'conversation.item.create', item: item('Say hello.') });
    rt.send({ type: 'response.create' });
    const done = await log.type('response.output_text.done');
    must(done.text.trim(), 'an empty answer');
    must((await log.type('response.done')).response.status === 'completed', 'not completed');
    return done.text;
  },
  async spoken_turn() {
    rt.send({ type: 'session.update', session: { type: 'realtime', output_modalities: ['audio'], max_output_tokens: 24, audio: { input: { transcription: { model: 'whisper-1' } } } } });
    await log.type('session.updated');
    await speak(recording('SPEECH'), (pcm) => rt.send({ type: 'input_audio_buffer.append', audio: pcm.toString('base64') }));
    await log.type('input_audio_buffer.speech_started');
    await log.type('input_audio_buffer.committed');
    await log.type('response.output_audio.delta');
    const done = await log.type('response.done');
    must(['completed', 'incomplete'].includes(done.response.status), done.response.status);
    const heard = log.seen.find((e) => e.type.endsWith('transcription.completed'));
    must(heard?.transcript, 'no transcript');
    return heard.transcript;
  },
  async tool_call() {
    rt.send({ type: 'session.update', session: { type: 'realtime', output_modalities: ['text'], tools: [WEATHER], tool_choice: 'auto' } });
    await log.type('session.updated');
    rt.send({ type: 'conversation.item.create', item: item('What is the weather in Oslo?') });
    rt.send({ type: 'response.create', response: { tool_choice: { type: 'function', name: 'get_weather' } } });
    const call = await log.type('response.function_call_arguments.done');
    must(JSON.parse(call.arguments).city, call.arguments);
    await log.type('response.done');
    rt.send({ type: 'conversation.item.create', item: { type: 'function_call_output', call_id: call.call_id, output: '{"sky":"rain"}' } });
    rt.send({ type: 'response.create', response: { tool_choice: 'none' } });
    const text = (await log.type('response.output_text.done')).text;
    await log.type('response.done');
    return `${call.arguments} -> ${text}`;
  },
  async barge_in() {
    rt.send({ type: 'session.update', session: { type: 'realtime', output_modalities: ['audio'], max_output_tokens: 'inf', tools: [] } });
    await log.type('session.updated');
    rt.send({ type: 'conversation.item.create', item: item(STORY) });
    rt.send({ type: 'response.create' });
    const created = await log.type('response.created');
    const first = await log.type('response.output_audio.delta');
    await speak(recording('SPEECH'), (pcm) => rt.send({ type: 'input_audio_buffer.append', audio: pcm.toString('base64') }));
    await log.type('input_audio_buffer.speech_started');
    const at = log.from;
    rt.send({ type: 'conversation.item.truncate', item_id: first.item_id, content_index: 0, audio_end_ms: 300 });
    await log.type('conversation.item.truncated');
    log.from = at; // the new answer may have begun before that
    await log.next((e) => e.type === 'response.output_audio.delta' && e.response_id !== created.response.id);
    const stale = log.seen.slice(at).filter((e) => e.type === 'response.output_audio.delta' && e.response_id === created.response.id);
    must(!stale.length, `${stale.length} stale deltas`);
    must(!log.seen.some((e) => e.type === 'error' || e.type === 'client_error'), JSON.stringify(log.seen.find((e) => e.type.endsWith('error'))));
    return 'cut, and answered anew';
  },
});
