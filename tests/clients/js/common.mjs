// What every script here shares: the recordings, the four checks, the report that run.py reads.
import { readFileSync } from 'node:fs';

export const env = {
  url: process.env.ANTIPHON_URL, // ws://host:port/v1/realtime
  secure: process.env.ANTIPHON_TLS_URL, // https://host:port/v1, a certificate of our own making
  key: process.env.ANTIPHON_KEY ?? 'dummy',
};
if (!env.url || !env.secure) throw new Error('ANTIPHON_URL and ANTIPHON_TLS_URL say where the server is');
export const WEATHER = {
  type: 'function',
  name: 'get_weather',
  description: 'The weather in a city.',
  parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'], additionalProperties: false },
};
export const STORY = 'Tell me a long story about a lighthouse keeper, his dog and a storm, with every detail.';

/** 24 kHz mono s16le of a WAV file with a plain 44-byte header. */
export function recording(name) {
  return readFileSync(process.env[`ANTIPHON_${name}`]).subarray(44);
}

/** Send PCM in pieces of 40 ms, four times as fast as it would be spoken, and silence behind it. */
export async function speak(pcm, append, silenceMs = 3000) {
  const all = Buffer.concat([pcm, Buffer.alloc(48 * silenceMs)]);
  for (let at = 0; at < all.length; at += 1920) {
    append(all.subarray(at, at + 1920));
    await sleep(10);
  }
}

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** The next value that `test` likes among those that `push` is given, also among those it has been given before. */
export class Log {
  constructor() {
    this.seen = [];
    this.waiting = [];
    this.from = 0;
  }
  push(event) {
    this.seen.push(event);
    this.waiting = this.waiting.filter((w) => !w());
  }
  next(test, ms = 30000) {
    return new Promise((resolve, reject) => {
      const look = () => {
        const at = this.seen.findIndex((e, n) => n >= this.from && test(e));
        if (at < 0) return false;
        this.from = at + 1;
        clearTimeout(timer);
        resolve(this.seen[at]);
        return true;
      };
      const timer = setTimeout(() => {
        const tail = this.seen.slice(-12).map((e) => e.type).join(' ');
        reject(new Error(`waited ${ms} ms for ${test}; last: ${tail}`));
      }, ms);
      if (!look()) this.waiting.push(look);
    });
  }
  type(kind, ms) {
    return this.next((e) => e.type === kind, ms);
  }
}

/** Run the checks in order; a failed one is reported and the next still tried. */
export async function report(checks) {
  let failed = 0;
  for (const [name, check] of Object.entries(checks)) {
    const began = Date.now();
    try {
      const detail = await check();
      console.log(JSON.stringify({ check: name, ok: true, ms: Date.now() - began, detail: String(detail ?? '').slice(0, 160) }));
    } catch (error) {
      failed += 1;
      console.log(JSON.stringify({ check: name, ok: false, ms: Date.now() - began, detail: String(error?.stack ?? error).slice(0, 800) }));
    }
  }
  process.exit(failed ? 1 : 0);
}

export function must(truth, what) {
  if (!truth) throw new Error(what);
}
