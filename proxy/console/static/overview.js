// The overview: traffic, upstreams, limits and the policy.

import { html, useState } from './vendor/preact-htm.module.js'
import { link } from './address.js'
import { useData } from './api.js'
import { Chart, Metric } from './chart.js'
import { FirstCall } from './first-call.js'
import { fixed, int, minute, ms, pct, span, usd } from './format.js'
import { Limits, Problems } from './limits.js'
import { Failure, Glyph, Icon, Panel, Skeleton, Table, TONE, Time, word } from './parts.js'

const RANGE_WORD = { '5m': 'last 5 min', '15m': 'last 15 min', '1h': 'last 1 h' }
const sum = values => values.reduce((total, value) => total + (value || 0), 0)
const add = (...lists) =>
  lists[0].map((value, i) => (value == null ? null : sum(lists.map(list => list[i]))))
const share = (part, whole) =>
  part.map((value, i) => (value == null || !whole[i] ? null : value / whole[i]))

function Loading() {
  const metric = html`<div class="metric"><div class="sks">
    <span class="sk w2"></span><span class="sk mid"></span><span class="sk tall"></span>
  </div></div>`
  return html`<main id="main" class="page" aria-busy="true">
    <div class="head"><h1>Overview</h1></div>
    <div class="metrics">${Array.from({ length: 8 }, () => metric)}</div>
    <div class="cols ov">
      <section class="panel"><${Skeleton} rows=${7} /></section>
      <section class="panel"><${Skeleton} rows=${7} /></section>
      <section class="panel"><${Skeleton} rows=${5} /></section>
    </div>
    <p class="vh" role="status">Loading</p>
  </main>`
}

export function Overview({ query, live }) {
  const range = RANGE_WORD[query.range] ? query.range : '15m'
  const { data, error } = useData(`overview?range=${range}`, 5000, live)
  if (!data)
    return error ? html`<main id="main" class="page">
      <div class="head"><h1>Overview</h1></div><${Failure} error=${error} />
    </main>` : html`<${Loading} />`
  const { instance, policy } = data
  return html`<main id="main" class="page">
    <div class="head">
      <h1>Overview</h1>
      <div class="facts">
        <span>${instance.name}</span><span>version ${instance.version}</span>
        <span>listens on ${instance.listen}</span>
        <span>up ${span(data.now - instance.started)}</span>
      </div>
    </div>
    <${Attention} list=${data.attention} />
    ${data.calls ? html`<${Charts} data=${data} range=${range} />` : html`<${FirstCall} />`}
    <div class="cols ov">
      <${Upstreams} data=${data} range=${range} />
      <${Panel} title="Limits and budgets" note="fullest first"
        actions=${
          html`<a class="small" href=${link('policy', { at: 'limits' })}>
            All ${data.limits ? int(data.limits.length) : ''}
          </a>`
        }><${Limits} list=${data.limits && data.limits.slice(0, 4)} /></${Panel}>
      <${PolicyCard} policy=${policy} now=${data.now} />
    </div>
  </main>`
}

const Attention = ({ list }) => html`
  <ul class="attention" aria-label="Needs attention">${list.map(a => html`<li>
    <${Glyph} n=${a.level === 'error' ? 'failed' : 'warn'}
      tone=${a.level === 'error' ? 't-bad' : 't-warn'} />
    <a href=${a.link}>${a.text}</a><span class="note">${a.note}</span>
    <span class="since desk">Runbook: <code>docs/runbooks/${a.runbook}.md</code></span>
    <span class="go faint"><${Icon} n="chevron" /></span>
  </li>`)}</ul>
`

function Charts({ data, range }) {
  const [cursor, setCursor] = useState(null)
  const { series: d } = data
  const o = d.outcomes
  const families = {
    success: o.success,
    client: add(o.client_error, o.client_abort),
    policy: add(o.limited, o.blocked),
    failed: add(o.upstream_error, o.timeout, o.proxy_error)
  }
  const total = add(...Object.values(families))
  const last = d.times.length - 1
  const at = cursor == null || cursor > last ? null : cursor
  const recent = values => {
    if (at != null) return values[at]
    const known = values.slice(-3).filter(value => value != null)
    return known.length ? sum(known) / known.length : null
  }
  const seconds = d.step / 1000
  const calls = sum(Object.values(data.outcomes))
  const hits = share(d.hits, d.lookups)
  const shared = { t: d.times, cursor: at, onCursor: setCursor, height: 84 }
  const metric = { t: d.times, cursor: at, range: `last ${span(3 * d.step)}` }
  const latency = (value, max) =>
    max >= 1000
      ? `${fixed(value / 1000, value % 1000 ? 1 : 0)} s`
      : `${fixed(value, value % 1 ? 1 : 0)} ms`
  const { verdicts } = d
  const count = name => (at != null ? verdicts[name][at] : sum(verdicts[name]))
  const perMinute = value => (value == null ? null : (value * 60) / seconds)
  const byMidnight = forecast(d, new Date(data.now).setHours(24, 0, 0, 0), data)
  return html`
    <div class="metrics">
      <${Metric} ...${metric} title="Calls per second" value=${fixed(recent(total), 1)} unit="/s"
        sides=${[
          {
            cls: 'c-failed',
            text: fixed(recent(families.failed), 2) + ' failed',
            title: 'upstream error, timeout, proxy error'
          },
          {
            cls: 'c-policy',
            text: fixed(recent(families.policy), 2) + ' refused',
            title: 'limited, blocked',
            opt: true
          },
          {
            cls: 'c-client',
            text: fixed(recent(families.client), 2) + ' client',
            title: 'client error, client left',
            opt: true
          }
        ]}
        chart=${
          html`<${Chart} ...${shared} kind="area" tick=${v => fixed(v, v % 1 ? 1 : 0)}
            label="Calls per second by outcome"
            series=${[
              { cls: 'c-failed', values: families.failed },
              { cls: 'c-policy', values: families.policy },
              { cls: 'c-client', values: families.client },
              { cls: 'c-success', edge: true, values: families.success }
            ]}
          />`
        }
      />
      <${Metric} ...${metric} title="Success share"
        value=${pct(recent(share(families.success, total)), 2)}
        sides=${[
          {
            text: `${int(calls - (data.outcomes.success || 0))} of ${int(calls)} did not succeed ` +
              `in the ${RANGE_WORD[range]}`,
            opt: true
          }
        ]}
        chart=${
          html`<${Chart} ...${shared} top=${1} tick=${v => int(v * 100) + ' %'}
            label="Success share"
            series=${[{ cls: 'c-accent', values: share(families.success, total) }]}
          />`
        }
      />
      ${[
        ['Time to first token', 'first_token'],
        ['Added latency', 'overhead']
      ].map(([title, name]) => html`
        <${Metric} ...${metric} title=${title} value=${ms(recent(d[name + '_p99_ms']))}
          sides=${[
            { cls: 'c-accent', line: true, text: 'p99' },
            { cls: 'c-accent thin', line: true, text: 'p50 ' + ms(recent(d[name + '_p50_ms'])) }
          ]}
          chart=${
            html`<${Chart} ...${shared} band tick=${latency} label=${title + ', p50 and p99'}
              series=${[
                { cls: 'c-accent', soft: true, values: d[name + '_p50_ms'] },
                { cls: 'c-accent', values: d[name + '_p99_ms'] }
              ]}
            />`
          }
        />
      `)}
      <${Metric} ...${metric} title="Spend" range="since the start"
        value=${at != null ? usd(perMinute(d.spend[at])) : usd(data.spend.nano / 1e9)}
        unit=${at != null ? 'per min' : null}
        sides=${
          at != null || byMidnight == null
            ? []
            : [{ text: `≈ ${usd(byMidnight)} by midnight`, opt: true }]
        }
        chart=${
          html`<${Chart} ...${shared} tick=${v => (v ? usd(v) : '$0')}
            label="Spend per minute in USD"
            series=${[{ cls: 'c-accent', values: d.spend.map(perMinute) }]}
          />`
        }
      />
      <${Metric} ...${metric} title="In flight" range="now"
        value=${int(at != null ? d.in_flight[at] : d.in_flight[last])} unit="calls"
        chart=${
          html`<${Chart} ...${shared} tick=${v => (v % 1 ? '' : int(v))} label="Calls in flight"
            series=${[{ cls: 'c-accent', values: d.in_flight }]}
          />`
        }
      />
      <${Metric} ...${metric} title="Cache hits" value=${pct(recent(hits))}
        sides=${[
          {
            text: `of lookups; ${usd(data.spend.saved_nano / 1e9)} saved since the start`,
            opt: true
          }
        ]}
        chart=${
          html`<${Chart} ...${shared} top=${1} tick=${v => int(v * 100) + ' %'}
            label="Cache hits, share of lookups" series=${[{ cls: 'c-accent', values: hits }]}
          />`
        }
      />
      <${Metric} ...${metric} title="Guard verdicts" range=${RANGE_WORD[range]}
        value=${int(
          count('blocked') == null ? null : sum(['blocked', 'masked', 'flagged'].map(count))
        )}
        sides=${['blocked', 'masked', 'flagged'].map((name, n) => ({
          cls: ['c-block', 'c-accent', 'c-policy'][n],
          text: `${int(count(name))} ${name}`,
          opt: n > 0
        }))}
        chart=${
          html`<${Chart} ...${shared} kind="bars" tick=${v => fixed(v, v % 1 ? 1 : 0)}
            label="Guard verdicts other than passed"
            series=${[
              { cls: 'c-block', values: verdicts.blocked },
              { cls: 'c-accent', values: verdicts.masked },
              { cls: 'c-policy', values: verdicts.flagged }
            ]}
          />`
        }
      />
    </div>
  `
}
// Spend until midnight at the rate of the shown range, null in the first five minutes.
function forecast(d, midnight, data) {
  const known = d.spend.filter(value => value != null)
  return known.length * d.step >= 300000
    ? data.spend.nano / 1e9 + (sum(known) / (known.length * d.step)) * (midnight - data.now)
    : null
}

const Upstreams = ({ data, range }) => html`
  <${Panel} title="Upstreams" note=${RANGE_WORD[range]} cls="column" flush>
    <${Table} rows=${data.upstreams} columns=${[
      ['Target', u => html`<span class="muted">${u.upstream}/</span>${u.model}`, 'nowrap'],
      ['Circuit', u => html`<span class="outcome">
        <${Glyph} n=${u.circuit} />
        <span class=${u.circuit === 'closed' ? '' : TONE[u.circuit]}>${word(u.circuit)}</span>
      </span>`],
      ['In flight', u => html`
        ${int(u.in_flight)}
        ${u.max_concurrency ? html`<span class="faint"> / ${int(u.max_concurrency)}</span>` : null}
      `, 'num'],
      ['Rate, /s', u => fixed(u.per_second, 1), 'num'],
      ['Failed', u => html`<span class=${u.failed > 0.05 ? 't-bad' : ''}>${pct(u.failed)}</span>`,
        'num'],
      ['p99', u => ms(u.p99_ms), 'num'],
      ['Allowance', u => html`
        <span title="Calls that the provider still allows, by its last response">
          ${int(u.remaining_requests)}
        </span>
      `, 'num']
    ]} />
    <div class="foot end">${[
      ['retries', data.retries.retry],
      ['hedges', data.retries.hedge],
      ['fallbacks', data.fallbacks],
      ['skipped', data.skipped]
    ].map(([name, n]) => html`<span><b>${int(n || 0)}</b> ${name}</span>`)}</div>
  </${Panel}>
`

const PolicyCard = ({ policy, now }) => html`
  <${Panel} title="Policy" actions=${html`<a class="small" href=${link('policy')}>Open</a>`}>
    <div class="stack">
      <div>
        <div class="pair">
          <span class="muted">Active revision</span><code>${policy.revision}</code>
        </div>
        <div class="pair">
          <span class="muted">Active since</span>
          <span>
            <${Time} t=${policy.since} show=${minute(policy.since)} />${' '}
            <span class="faint">${span(now - policy.since)}</span>
          </span>
        </div>
        <div class="pair">
          <span class="muted">Candidate</span>
          ${policy.candidate ? html`
            <a href=${link('policy', { at: 'candidate' })}><code>${policy.candidate}</code></a>
          ` : html`<span class="faint">none</span>`}
        </div>
      </div>
      ${policy.rejected ? html`
        <div class="t-bad">
          <${Glyph} n="failed" /> Reload rejected at <${Time} t=${policy.rejected.at} />
        </div>
        <${Problems} list=${policy.rejected.problems} />
      ` : html`<p class="muted"><${Glyph} n="applied" /> No rejected reload.</p>`}
    </div>
  </${Panel}>
`
