// OpenAI's SDK on responses that their provider keeps. A step names methods of its client, each
// with its arguments; `$1` stands for the id of what the first of them gave.

import OpenAI from 'openai';

export async function openaiStored(base, key, step) {
  const client = new OpenAI({ baseURL: `${base}/v1`, apiKey: key, maxRetries: 0 });
  const results = [];
  for (const [method, ...given] of step.calls) {
    const result = await call(client, method, filled(given, results)).catch(({ status, param }) => ({
      status,
      param,
    }));
    results.push(result ?? null);
  }
  return { results };
}

async function call(client, method, given) {
  const names = method.split('.');
  const last = names.pop();
  const owner = names.reduce((at, name) => at[name], client);
  if (last === 'list') return { data: await all(owner.list(...given)) };
  if (last === 'stream') return owner.stream(...given).finalResponse();
  const answer = await owner[last](...given);
  return given.at(-1)?.stream ? { data: await all(answer) } : answer;
}

/** All of a list, page by page, or of a stream. */
async function all(source) {
  const found = [];
  for await (const each of source) found.push(each);
  return found;
}

const filled = (given, results) =>
  JSON.parse(JSON.stringify(given), (_, value) =>
    typeof value === 'string' && /^\$\d+$/.test(value) ? results[value.slice(1) - 1].id : value,
  );
