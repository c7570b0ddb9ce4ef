// The AI SDK, with the models that its providers give by default: those of OpenAI are asked by
// Responses.

import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenAI } from '@ai-sdk/openai';
import { generateText, isStepCount, Output, streamText, tool } from 'ai';

import { ASKED, City, FOUND, PICTURE, Place, retrying, withTools } from './errands.mjs';

const THINKS = {
  // What a provider keeps no guard reads: a thought goes back sealed, and not by its id.
  openai: { store: false, reasoningEffort: 'low', reasoningSummary: 'auto', forceReasoning: true },
  anthropic: { thinking: { type: 'enabled', budgetTokens: 1024 } },
};

export async function aiOpenai(base, key, step) {
  Object.assign(process.env, { OPENAI_BASE_URL: `${base}/v1`, OPENAI_API_KEY: key });
  return generated('openai', createOpenAI()(step.to), step);
}

export async function aiAnthropic(base, key, step) {
  Object.assign(process.env, { ANTHROPIC_BASE_URL: `${base}/v1`, ANTHROPIC_API_KEY: key });
  return generated('anthropic', createAnthropic()(step.to), step);
}

async function generated(provider, model, step) {
  const parts = [
    { type: 'text', text: ASKED },
    { type: 'image', image: Buffer.from(PICTURE, 'base64'), mediaType: 'image/png' },
  ];
  const asked = { role: 'user', content: step.do === 'look' ? parts : ASKED };
  const options = { model, messages: [asked], stopWhen: isStepCount(3), ...retrying(step) };
  if (withTools(step)) {
    const description = 'Look a place up.';
    const look_up = tool({ description, inputSchema: Place, execute: () => FOUND });
    options.tools = { look_up };
  }
  if ('store' in step) options.providerOptions = { openai: { store: step.store } };
  if (step.do === 'think') options.providerOptions = { [provider]: THINKS[provider] };
  if (step.do === 'typed') options.output = Output.object({ schema: City });
  if (!step.stream) return finished(await generateText(options), step);
  const leaving = new AbortController();
  let failure = null;
  const onError = ({ error }) => (failure = error);
  const stream = streamText({ ...options, abortSignal: leaving.signal, onError });
  let seen = 0;
  for await (const _ of stream.fullStream) if (++seen === step.leave) leaving.abort();
  if (step.leave) return { text: '', usage: null };
  if (failure) throw failure;
  return finished(stream, step);
}

async function finished(result, step) {
  const used = await (result.totalUsage ?? result.usage);
  const steps = await result.steps;
  return {
    text: await result.text,
    usage: [used.inputTokens, used.outputTokens],
    typed: step.do === 'typed' ? await result.output : null,
    thought: steps.map((each) => each.reasoningText ?? '').join(''),
  };
}
