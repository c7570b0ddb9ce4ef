// Draws one dashboard: each panel by Grafana's own component, at its place in the grid.

import { createRoot } from 'react-dom/client';
import { dateTime, getDisplayValueAlignmentFactors, ThemeContext } from '@grafana/data';
import { initPluginTranslations } from '@grafana/i18n';
import { BarGauge, BigValue, PanelChrome, Table, TimeSeries } from '@grafana/ui';
import { ask, spanOf } from './queries.js';
import { lines, table, theme, values } from './frames.js';

const WIDTH = 1600;
const CELL = 30;
const GAP = 8;
const HEADER = 96;

function place({ x, y, w, h }) {
  const column = WIDTH / 24;
  return {
    left: x * column + GAP / 2,
    top: HEADER + y * (CELL + GAP),
    width: w * column - GAP,
    height: h * (CELL + GAP) - GAP,
  };
}

function Lines({ panel, frames, span, width, height }) {
  const timeRange = { from: dateTime(span.from * 1000), to: dateTime(span.to * 1000) };
  timeRange.raw = timeRange;
  const legend = panel.options.legend;
  return (
    <TimeSeries {...{ frames, timeRange, legend, width, height, theme }} timeZone="utc" options={{}}>
      {() => null}
    </TimeSeries>
  );
}

function Stats({ panel, fields, width, height }) {
  const many = fields.length > 1;
  const each = height / Math.ceil(fields.length / (many ? 2 : 1));
  return (
    <div style={{ display: 'flex', flexWrap: 'wrap' }}>
      {fields.map((field, number) => {
        const shown = field.display(field.values[0]);
        const value = { ...shown, title: many ? field.name : undefined };
        const { colorMode, graphMode } = panel.options;
        const size = { width: many ? width / 2 : width, height: each };
        return <BigValue key={number} {...{ value, colorMode, graphMode, theme, ...size }} />;
      })}
    </div>
  );
}

function Bars({ panel, fields, width, height }) {
  const most = Math.max(...fields.map((field) => field.values[0]), 0);
  const each = Math.min(40, height / fields.length);
  const shown = fields.map((field) => ({ ...field.display(field.values[0]), title: field.name }));
  const alignmentFactors = getDisplayValueAlignmentFactors(shown.map((display) => ({ display })));
  return fields.map((field, number) => {
    const value = shown[number];
    const config = { ...field.config, min: 0, max: panel.fieldConfig.defaults.max ?? most };
    const { displayMode, orientation, showUnfilled, text } = panel.options;
    const shape = { displayMode, orientation, showUnfilled, text, alignmentFactors, width, height: each - 4 };
    return (
      <div key={number} style={{ height: each }}>
        <BarGauge {...{ value, field: config, display: field.display, theme, ...shape }} itemSpacing={4} />
      </div>
    );
  });
}

function Rows({ panel, frame, width, height }) {
  const { minWidth } = panel.fieldConfig.defaults.custom;
  return <Table data={frame} columnMinWidth={minWidth} initialSortBy={panel.options.sortBy} {...{ width, height }} />;
}

function drawn(panel, said, span) {
  const known = { panel, span };
  return (width, height) => {
    const size = { width, height };
    if (said.empty) return <p>No data</p>;
    if (panel.type === 'timeseries') return <Lines {...known} frames={said.data} {...size} />;
    if (panel.type === 'table') return <Rows {...known} frame={said.data} {...size} />;
    const Shape = panel.type === 'stat' ? Stats : Bars;
    return <Shape {...known} fields={said.data} {...size} />;
  };
}

async function answered(panel, span, variables) {
  const answers = await Promise.all(
    panel.targets.map(async (target) => ({ target, ...(await ask(target, span, variables)) })),
  );
  const empty = answers.every(({ result }) => result.length === 0);
  const shape = { timeseries: lines, table }[panel.type] ?? values;
  return { empty, data: empty ? [] : await shape(panel, answers) };
}

function Panel({ panel, said, span, title }) {
  const { left, top, width, height } = place(panel.gridPos);
  return (
    <div data-drawn={title} style={{ position: 'absolute', left, top, width, height }}>
      <PanelChrome {...{ width, height, title }} description={panel.description}>
        {drawn(panel, said, span)}
      </PanelChrome>
    </div>
  );
}

function Heading({ row }) {
  const { left, top } = place(row.gridPos);
  return <h2 style={{ position: 'absolute', left, top, margin: 0, fontSize: 18 }}>{row.title}</h2>;
}

function Chosen({ board, chosen }) {
  return (
    <header style={{ padding: '14px 12px' }}>
      <h1 style={{ margin: 0, fontSize: 24 }}>{board.title}</h1>
      <p style={{ margin: '6px 0', color: '#9d9fa8' }}>
        {board.templating.list.slice(1).map((each) => (
          <span key={each.name} style={{ marginRight: 24 }}>
            {each.label}: <b>{chosen[each.name] === '.*' ? 'All' : chosen[each.name]}</b>
          </span>
        ))}
      </p>
    </header>
  );
}

async function main() {
  await initPluginTranslations('headrace');
  const asked = new URLSearchParams(location.search);
  const board = await (await fetch(`/boards/${asked.get('board')}.json`)).json();
  const chosen = Object.fromEntries(
    board.templating.list.slice(1).map(({ name, allValue, current }) => [name, allValue ?? current.value]),
  );
  const [from, to] = [Number(asked.get('from')), Number(asked.get('to'))];
  const panels = await Promise.all(
    board.panels.map(async (panel) => {
      if (panel.type === 'row') return <Heading key={panel.id} row={panel} />;
      const span = spanOf(panel, to, from);
      const said = await answered(panel, span, chosen);
      const title = panel.title.replace(/\$(\w+)/g, (_, name) => chosen[name]);
      return <Panel key={panel.id} {...{ panel, said, span, title }} />;
    }),
  );
  const root = document.getElementById('board');
  root.dataset.panels = board.panels.filter(({ type }) => type !== 'row').length;
  createRoot(root).render(
    <ThemeContext.Provider value={theme}>
      <Chosen {...{ board, chosen }} />
      {panels}
    </ThemeContext.Provider>,
  );
}

function fail(error) {
  document.body.dataset.failed = String(error);
}

addEventListener('error', ({ error }) => fail(error));
main().catch(fail);
