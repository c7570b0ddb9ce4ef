// From what Prometheus answers to Grafana's data frames, with units, colours and words applied.

import {
  createTheme,
  FieldType,
  getDisplayProcessor,
  standardTransformers,
  standardTransformersRegistry,
  toDataFrame,
  transformDataFrame,
} from '@grafana/data';
import { lastValueFrom } from 'rxjs';
import { named } from './queries.js';

standardTransformersRegistry.setInit(() =>
  [standardTransformers.mergeTransformer, standardTransformers.organizeFieldsTransformer].map((each) => ({
    id: each.id,
    name: each.name,
    transformation: async () => each,
  })),
);

export const theme = createTheme({ colors: { mode: 'dark' } });

function dressed(frame, panel, seriesIndex = 0) {
  const { defaults, overrides } = panel.fieldConfig;
  for (const field of frame.fields) {
    field.config = { ...(field.type === FieldType.number ? structuredClone(defaults) : {}), ...field.config };
    for (const { matcher, properties } of overrides) {
      if (matcher.options !== (field.config.displayName ?? field.name)) continue;
      for (const { id, value } of properties) field.config[id] = value;
    }
    field.state = { ...field.state, seriesIndex, range: { min: 0, max: 1, delta: 1 } };
    field.display = getDisplayProcessor({ field, theme, timeZone: 'utc' });
  }
  return frame;
}

function number(name, labels, values) {
  return { name, type: FieldType.number, labels, values, config: { displayName: name } };
}

function overTime(series, target) {
  const name = named(target.legendFormat, series.metric);
  const times = series.values.map(([time]) => time * 1000);
  const values = series.values.map(([, value]) => (isFinite(value) ? Number(value) : null));
  const time = { name: 'Time', type: FieldType.time, values: times, config: {} };
  return toDataFrame({ name, refId: target.refId, fields: [time, number(name, series.metric, values)] });
}

export function lines(panel, answers) {
  const frames = answers.flatMap(({ target, result }) => result.map((series) => overTime(series, target)));
  return frames.map((frame, number) => dressed(frame, panel, number));
}

export function values(panel, answers) {
  const fields = answers.flatMap(({ target, result }) =>
    result.map(({ metric, value }) => number(named(target.legendFormat, metric), metric, [Number(value[1])])),
  );
  fields.sort((one, other) => other.values[0] - one.values[0]);
  return fields.map((field, place) => dressed(toDataFrame({ fields: [field] }), panel, place).fields[0]);
}

export async function table(panel, answers) {
  const frames = answers.map(({ target, result }) => {
    const labels = [...new Set(result.flatMap(({ metric }) => Object.keys(metric)))];
    const column = answers.length > 1 ? `Value #${target.refId}` : 'Value';
    const fields = labels.map((name) => ({ name, type: FieldType.string, values: result.map((r) => r.metric[name]) }));
    fields.unshift({ name: 'Time', type: FieldType.time, values: result.map(() => 0) });
    fields.push({ name: column, type: FieldType.number, values: result.map((r) => Number(r.value[1])) });
    return toDataFrame({ refId: target.refId, fields });
  });
  return dressed(await transformed(frames, panel.transformations), panel);
}

async function transformed(frames, steps) {
  const [frame] = await lastValueFrom(transformDataFrame(steps, frames));
  return frame;
}
