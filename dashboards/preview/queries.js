// Asks Prometheus what a panel asks, with the macros and variables filled in as Grafana does.

const SCRAPE_S = 5;
const POINTS = 300;

export function spanOf(panel, to, from) {
  if (!panel.timeFrom) return { from, to };
  const day = new Date(to * 1000);
  if (panel.timeFrom === 'now/M') day.setUTCDate(1);
  day.setUTCHours(0, 0, 0, 0);
  return { from: day.getTime() / 1000, to };
}

function filled(expr, { from, to, step }, variables) {
  const macros = {
    __rate_interval: `${Math.max(step + SCRAPE_S, 4 * SCRAPE_S)}s`,
    __interval: `${step}s`,
    __range_s: `${Math.round(to - from)}`,
    __range: `${Math.round(to - from)}s`,
  };
  return expr.replace(/\$(\w+)/g, (whole, name) => macros[name] ?? variables[name] ?? whole);
}

async function get(path, asked) {
  const answer = await fetch(`${path}?${new URLSearchParams(asked)}`);
  const said = await answer.json();
  if (said.status !== 'success') throw new Error(`${said.error}: ${asked.query}`);
  return said.data;
}

export async function ask(target, span, variables) {
  const step = Math.max(1, Math.round((span.to - span.from) / POINTS));
  const query = filled(target.expr, { ...span, step }, variables);
  if (target.instant) return get('/api/v1/query', { query, time: span.to });
  const { from: start, to: end } = span;
  return get('/api/v1/query_range', { query, start, end, step });
}

export function named(legend, labels) {
  const shown = legend.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, name) => labels[name] ?? '');
  return shown === '__auto' ? Object.values(labels).join(' ') || 'Value' : shown;
}
