// What all drivers of node are sent to do.

import { z } from 'zod';

export const ASKED = 'Where is it?';
export const PICTURE = 'iVBORw0KGgo=';
export const FOUND = 'It is in France.';
export const City = z.object({ city: z.string() });
export const Place = z.object({ place: z.string() });
export const PLACE = {
  type: 'object',
  properties: { place: { type: 'string' } },
  required: ['place'],
  additionalProperties: false,
};

/** Whether a step lets the model call `look_up`. */
export const withTools = (step) => step.do === 'loop' || step.do === 'think';

/** The options of a client: how often it tries again, where a step says that. */
export const retrying = (step) => ('retries' in step ? { maxRetries: step.retries } : {});

/** Read so many events of a stream, then leave it. */
export async function leave(events, count) {
  let seen = 0;
  for await (const _ of events) if (++seen === count) break;
  return { text: '', usage: null };
}
