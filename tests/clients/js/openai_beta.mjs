// npm openai, the beta dialect, over ws.
import OpenAI from 'openai';
import { OpenAIRealtimeWS } from 'openai/beta/realtime/ws';
import { env, Log, must, recording, report, speak, STORY, WEATHER } from './common.mjs';

const client = new OpenAI({ baseURL: env.secure, apiKey: env.key });
const rt = new OpenAIRealtimeWS({ model: 'gpt-4o-realtime-preview', options: { rejectUnauthorized: false, headers: { 'OpenAI-Beta': 'realtime=v1' } } }, client);
const log = new Log();
rt.on('event', (event) => log.push(event));
rt.on('error', (error) => log.push({ type: 'client_error', error }));

const item = (text) => ({ type: 'message', role: 'user', content: [{ type: 'input_text', text }] });

await report({
  async text_turn() {
    await log.type('session.created');
    rt.send({ type: 'session.update', session: { modalities: ['text'], instructions: 'Answer in one short sentence.' } });
    await log.type('session.updated');
    rt.send({ type: 'conversation.item.create', item: item('Say hello.') });
    rt.send({ type: 'response.create' });
    const done = await log.type('response.text.done');
    must(done.text.trim(), 'an empty answer');
    await log.type('response.done');
    return done.text;
  },
  async spoken_turn() {
    rt.send({ type: 'session.update', session: { modalities: ['text', 'audio'], max_response_output_tokens: 24, input_audio_transcription: { model: 'whisper-1' } } });
    await log.type('session.updated');
    await speak(recording('SPEECH'), (pcm) => rt.send({ type: 'input_audio_buffer.append', audio: pcm.toString('base64') }));
    await log.type('input_audio_buffer.speech_started');
    await log.type('response.audio.delta');
    await log.type('response.done');
    return log.seen.find((e) => e.type.endsWith('transcription.completed'))?.transcript;
  },
  async tool_call() {
    rt.send({ type: 'session.update', session: { modalities: ['text'], tools: [WEATHER] } });
    await log.type('session.updated');
    rt.send({ type: 'conversation.item.create', item: item('What is the weather in Oslo?') });
    rt.send({ type: 'response.create', response: { tool_choice: 'required' } });
    const call = await log.type('response.function_call_arguments.done');
    must(JSON.parse(call.arguments).city, call.arguments);
    await log.type('response.done');
    rt.send({ type: 'conversation.item.create', item: { type: 'function_call_output', call_id: call.call_id, output: '{"sky":"rain"}' } });
    rt.send({ type: 'response.create', response: { tool_choice: 'none' } });
    const text = (await log.type('response.text.done')).text;
    await log.type('response.done');
    return text;
  },
  async barge_in() {
    rt.send({ type: 'session.update', session: { modalities: ['text', 'audio'], max_response_output_tokens: 'inf', tools: [] } });
    await log.type('session.updated');
    rt.send({ type: 'conversation.item.create', item: item(STORY) });
    rt.send({ type: 'response.create' });
    const created = await log.type('response.created');
    await log.type('response.audio.delta');
    await speak(recording('SPEECH'), (pcm) => rt.send({ type: 'input_audio_buffer.append', audio: pcm.toString('base64') }));
    await log.type('input_audio_buffer.speech_started');
    const at = log.from;
    await log.next((e) => e.type === 'response.audio.delta' && e.response_id !== created.response.id);
    must(!log.seen.slice(at).some((e) => e.type === 'response.audio.delta' && e.response_id === created.response.id), 'stale audio');
    must(!log.seen.some((e) => e.type === 'error' || e.type === 'client_error'), JSON.stringify(log.seen.find((e) => e.type.endsWith('error'))));
    return 'cut, and answered anew';
  },
});
