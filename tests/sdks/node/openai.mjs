// OpenAI's SDK, by chats and by Responses, and its client of Azure.

import OpenAI, { AzureOpenAI } from 'openai';
import { zodResponseFormat, zodTextFormat } from 'openai/helpers/zod';

import { ASKED, City, FOUND, leave, PICTURE, PLACE, retrying, withTools } from './errands.mjs';

const ADDRESS = `data:image/png;base64,${PICTURE}`;

/** The client of Azure names its deployment in the path, and its key in a header of Azure's. */
function client(base, key, step, azure) {
  if (azure) {
    delete process.env.OPENAI_BASE_URL; // of the order before: it takes no other address beside its own
    const address = { endpoint: base, apiKey: key, apiVersion: '2026-05-01' };
    return new AzureOpenAI({ ...address, ...retrying(step) });
  }
  Object.assign(process.env, { OPENAI_BASE_URL: `${base}/v1`, OPENAI_API_KEY: key });
  return new OpenAI(retrying(step));
}

export const azureChat = (base, key, step) => openaiChat(base, key, step, true);
export const azureResponses = (base, key, step) => openaiResponses(base, key, step, true);

export async function openaiChat(base, key, step, azure = false) {
  const chats = client(base, key, step, azure).chat.completions;
  const parts = [
    { type: 'text', text: ASKED },
    { type: 'image_url', image_url: { url: ADDRESS } },
  ];
  const messages = [{ role: 'user', content: step.do === 'look' ? parts : ASKED }];
  const body = { model: step.to, messages };
  if (step.do === 'typed') {
    const answer = await chats.parse({ ...body, response_format: zodResponseFormat(City, 'city') });
    return { text: '', usage: null, typed: answer.choices[0].message.parsed };
  }
  if (step.leave) return leave(await chats.create({ ...body, stream: true }), step.leave);
  if (withTools(step)) return ranTools(chats, body, step);
  if (step.stream) {
    const stream = chats.stream({ ...body, stream_options: { include_usage: true } });
    return chatted(await stream.finalChatCompletion());
  }
  return chatted(await chats.create(body));
}

const chatted = ({ choices, usage }) => ({
  text: choices[0].message.content,
  usage: [usage.prompt_tokens, usage.completion_tokens],
});

/** The SDK's own loop of tools. */
async function ranTools(chats, body, step) {
  const look = { name: 'look_up', parameters: PLACE, parse: JSON.parse, function: () => FOUND };
  const streamed = step.stream ? { stream: true, stream_options: { include_usage: true } } : {};
  const runner = chats.runTools({ ...body, ...streamed, tools: [{ type: 'function', function: look }] });
  const text = await runner.finalContent();
  const usage = await runner.totalUsage();
  return { text, usage: [usage.prompt_tokens, usage.completion_tokens] };
}

export async function openaiResponses(base, key, step, azure = false) {
  const responses = client(base, key, step, azure).responses;
  const parts = [
    { type: 'input_text', text: ASKED },
    { type: 'input_image', image_url: ADDRESS, detail: 'auto' },
  ];
  const input = [{ role: 'user', content: step.do === 'look' ? parts : ASKED }];
  const body = { model: step.to, input };
  if (step.do === 'typed') {
    const answer = await responses.parse({ ...body, text: { format: zodTextFormat(City, 'city') } });
    return { text: '', usage: null, typed: answer.output_parsed };
  }
  if (step.leave) return leave(await responses.create({ ...body, stream: true }), step.leave);
  if (withTools(step)) {
    body.tools = [{ type: 'function', name: 'look_up', parameters: PLACE, strict: true }];
  }
  if (step.do === 'think') {
    Object.assign(body, {
      store: false,
      include: ['reasoning.encrypted_content'],
      reasoning: { effort: 'low', summary: 'auto' },
    });
  }
  let answer;
  const used = [0, 0];
  const thoughts = [];
  do {
    answer = await (step.stream ? responses.stream(body).finalResponse() : responses.create(body));
    used[0] += answer.usage.input_tokens;
    used[1] += answer.usage.output_tokens;
    for (const item of answer.output) {
      input.push(item);
      if (item.type === 'reasoning') thoughts.push(...item.summary.map((each) => each.text));
      if (item.type === 'function_call') {
        input.push({ type: 'function_call_output', call_id: item.call_id, output: FOUND });
      }
    }
  } while (input.at(-1).type === 'function_call_output');
  return { text: answer.output_text, usage: used, thought: thoughts.join('') };
}
