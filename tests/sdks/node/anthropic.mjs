// Anthropic's SDK, and its own loop of tools.

import Anthropic from '@anthropic-ai/sdk';
import { betaZodTool } from '@anthropic-ai/sdk/helpers/beta/zod';
import { zodOutputFormat } from '@anthropic-ai/sdk/helpers/zod';

import { ASKED, City, FOUND, leave, PICTURE, Place, retrying, withTools } from './errands.mjs';

export async function anthropic(base, key, step) {
  Object.assign(process.env, { ANTHROPIC_BASE_URL: base, ANTHROPIC_API_KEY: key });
  const client = new Anthropic(retrying(step));
  const parts = [
    { type: 'text', text: ASKED },
    { type: 'image', source: { type: 'base64', media_type: 'image/png', data: PICTURE } },
  ];
  const messages = [{ role: 'user', content: step.do === 'look' ? parts : ASKED }];
  const body = { model: step.to, max_tokens: 2048, messages };
  if (step.do === 'typed') {
    const format = zodOutputFormat(City);
    const answer = await client.messages.parse({ ...body, output_config: { format } });
    return { text: '', usage: null, typed: answer.parsed_output };
  }
  if (step.leave) return leave(await client.messages.create({ ...body, stream: true }), step.leave);
  if (withTools(step)) return ranTools(client, body, step);
  if (step.stream) return message(await client.messages.stream(body).finalMessage());
  return message(await client.messages.create(body));
}

const said = (answer, kind) =>
  answer.content.filter((block) => block.type === kind).map((block) => block[kind]);

const message = (answer) => ({
  text: said(answer, 'text').join(''),
  usage: [answer.usage.input_tokens, answer.usage.output_tokens],
});

async function ranTools(client, body, step) {
  const run = () => FOUND;
  const description = 'Look a place up.';
  const tools = [betaZodTool({ name: 'look_up', description, inputSchema: Place, run })];
  const thinking = { type: 'enabled', budget_tokens: 1024 };
  const thinks = step.do === 'think' ? { thinking } : {};
  const stream = Boolean(step.stream);
  const used = [0, 0];
  const thoughts = [];
  let answer;
  for await (const each of client.beta.messages.toolRunner({ ...body, ...thinks, tools, stream })) {
    answer = stream ? await each.finalMessage() : each;
    used[0] += answer.usage.input_tokens;
    used[1] += answer.usage.output_tokens;
    thoughts.push(...said(answer, 'thinking'));
  }
  return { ...message(answer), usage: used, thought: thoughts.join('') };
}
