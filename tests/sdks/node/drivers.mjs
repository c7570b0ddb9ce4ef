// Drives real SDKs of node: orders as JSON lines in; a line for each result of an order out, and
// one that ends it. The errands are those of ../frameworks.py, and so are orders and results.

import net from 'node:net';
import { createInterface } from 'node:readline';

import { anthropic } from './anthropic.mjs';
import { aiAnthropic, aiOpenai } from './ai.mjs';
import { azureChat, azureResponses, openaiChat, openaiResponses } from './openai.mjs';
import { openaiStored } from './stored.mjs';

const DRIVERS = {
  'node-openai-chat': openaiChat,
  'node-openai-responses': openaiResponses,
  'node-openai-stored': openaiStored,
  'node-azure-chat': azureChat,
  'node-azure-responses': azureResponses,
  'node-anthropic': anthropic,
  'ai-sdk-openai': aiOpenai,
  'ai-sdk-anthropic': aiAnthropic,
};

// No way out of this machine.
const connect = net.Socket.prototype.connect;
net.Socket.prototype.connect = function (...given) {
  const [options] = Array.isArray(given[0]) ? given[0] : given;
  if (!/^(127\.|::1$|localhost$)/.test(options.host ?? '')) {
    throw new Error(`tests stay on this machine: ${options.host}`);
  }
  return connect.apply(this, given);
};

function failed(error) {
  const kinds = [];
  for (let at = error; at; at = Object.getPrototypeOf(at)) {
    const name = at.constructor?.name;
    if (name && !kinds.includes(name)) kinds.push(name);
  }
  return {
    ok: false,
    exception: kinds[0],
    mro: kinds,
    status: error.status ?? error.statusCode ?? null,
    message: String(error.message ?? error).slice(0, 2000),
  };
}

for await (const line of createInterface({ input: process.stdin })) {
  const { sdk, base, key, steps } = JSON.parse(line);
  for (const step of steps) {
    const result = await DRIVERS[sdk](base, key, step)
      .then((done) => ({ ok: true, ...done }))
      .catch(failed);
    process.stdout.write(JSON.stringify(result) + '\n');
  }
  process.stdout.write('ended\n');
}
