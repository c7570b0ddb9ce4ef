// The overview: traffic, upstreams, limits and the policy.

import { html, useState } from './vendor/preact-htm.module.js'
import { link } from './address.js'
import { useData } from './api.js'
import { Metric } from './chart.js'
import { FirstCall } from './first-call.js'
import { fixed, int, minute, ms, pct, span, usd } from './format.js'
import { Limits, Problems } from './limits.js'
import {
  faint, Glyph, Icon, Page, Panel, Skeleton, Table, Time, toneOf, word
} from './parts.js'

const RANGE_WORD = { '5m': 'last 5 min', '15m': 'last 15 min', '1h': 'last 1 h' }
// The values of a line of a chart, null where they are unknown.
const valuesOf = (points, name) => points.map(point => point[name] ?? null)
const sum = values => values.reduce((total, value) => total + (value || 0), 0)
const add = (...lists) =>
  lists[0].map((value, i) => (value == null ? null : sum(lists.map(list => list[i]))))
const share = (part, whole) =>
  part.map((value, i) => (value == null || !whole[i] ? null : value / whole[i]))

const Loading = () => html`
  <div class="metrics">${Array.from({ length: 8 }, () => html`<div class="metric"><div class="sks">
    <span class="sk w2"></span><span class="sk mid"></span><span class="sk tall"></span>
  </div></div>`)}</div>
  <div class="cols ov">${[7, 7, 5].map(rows => html`
    <section class="panel"><${Skeleton} rows=${rows} /></section>
  `)}</div>
  <p class="vh" role="status">Loading</p>
`

export function Overview({ query, live }) {
  const range = RANGE_WORD[query.range] ? query.range : '15m'
  const { data, error } = useData(`overview?range=${range}`, 5000, live)
  if (!data) return html`<${Page} title="Overview" error=${error} busy><${Loading} /></${Page}>`
  const { policy, limits, candidate } = data
  return html`<${Page} title="Overview" facts=${[
    data.host, `version ${data.version}`, `listens on ${data.listen}`,
    `up ${span(data.now - data.started)}`
  ]}>
    ${data.attention.length > 0 && html`<${Attention} list=${data.attention} />`}
    ${data.calls ? html`<${Charts} data=${data} range=${range} />` : html`<${FirstCall} />`}
    <div class="cols ov">
      <${Upstreams} data=${data} range=${range} />
      <${Panel} title="Limits and budgets" note="fullest first" actions=${html`
        <a class="small" href=${link('policy', { at: 'limits' })}>All ${limits?.length}</a>
      `}><${Limits} list=${limits && limits.slice(0, 4)} /></${Panel}>
      <${PolicyCard} policy=${policy} candidate=${candidate} now=${data.now} />
    </div>
  </${Page}>`
}

const Attention = ({ list }) => html`
  <ul class="attention" aria-label="Needs attention">${list.map(a => html`<li>
    <${Glyph} n=${a.level === 'error' ? 'failed' : 'warn'} />
    <a href=${a.link}>${a.text}</a><span class="note">${a.note}</span>
    <span class="since desk">Runbook: <code>docs/runbooks/${a.runbook}.md</code></span>
    <span class="go faint"><${Icon} n="chevron" /></span>
  </li>`)}</ul>
`

function Charts({ data, range }) {
  const [cursor, setCursor] = useState(null)
  const { step } = data
  const values = name => valuesOf(data.points, name)
  const times = values('time')
  const success = values('success')
  const client = add(values('client_error'), values('client_abort'))
  const policy = add(values('limited'), values('blocked'))
  const failed = add(values('upstream_error'), values('timeout'), values('proxy_error'))
  const total = add(success, client, policy, failed)
  const at = cursor == null || cursor >= times.length ? null : cursor
  const recent = list => {
    if (at != null) return list[at]
    const known = list.slice(-3).filter(value => value != null)
    return known.length ? sum(known) / known.length : null
  }
  const shared = {
    t: times, cursor: at, onCursor: setCursor, height: 84, range: `last ${span(3 * step)}`
  }
  const latency = value =>
    value >= 1000
      ? `${fixed(value / 1000, value % 1000 ? 1 : 0)} s`
      : `${fixed(value, value % 1 ? 1 : 0)} ms`
  const plain = value => fixed(value, value % 1 ? 1 : 0)
  const percent = value => int(value * 100) + ' %'
  const calls = sum(Object.values(data.outcomes))
  const succeeded = `${int(data.outcomes.success || 0)} of ${int(calls)}`
  const successShare = share(success, total)
  const hits = share(values('hits'), values('lookups'))
  const perMinute = value => (value == null ? null : (value * 60000) / step)
  const byMidnight = forecast(data)
  const [spend, inFlight] = [values('spend'), values('in_flight')]
  const count = name => {
    const verdicts = values('guard_' + name)
    return at != null ? verdicts[at] : sum(verdicts)
  }
  const VERDICTS = [['blocked', 'c-block'], ['masked', 'c-accent'], ['flagged', 'c-policy']]
  const accent = list => [{ cls: 'c-accent', values: list }]
  return html`<div class="metrics">
    <${Metric} ...${shared} title="Calls per second" value=${fixed(recent(total), 1)} unit="/s"
      sides=${[
        ['c-failed', failed, 'failed', 'upstream error, timeout, proxy error'],
        ['c-policy', policy, 'refused', 'limited, blocked'],
        ['c-client', client, 'client', 'client error, client left']
      ].map(([cls, list, name, title], n) => ({
        cls, title, text: `${fixed(recent(list), 2)} ${name}`, opt: n > 0
      }))}
      kind="area" tick=${plain} label="Calls per second by outcome"
      series=${[
        { cls: 'c-failed', values: failed },
        { cls: 'c-policy', values: policy },
        { cls: 'c-client', values: client },
        { cls: 'c-success', edge: true, values: success }
      ]} />
    <${Metric} ...${shared} title="Success share" value=${pct(recent(successShare), 2)}
      sides=${[{ text: `${succeeded} in the ${RANGE_WORD[range]}`, opt: true }]}
      top=${1} tick=${percent} label="Success share" series=${accent(successShare)} />
    ${[['Time to first token', 'first_token'], ['Added latency', 'overhead']].map(
      ([title, name]) => html`
        <${Metric} ...${shared} title=${title} value=${ms(recent(values(name + '_p99_ms')))}
          sides=${[
            { cls: 'c-accent', line: true, text: 'p99' },
            { cls: 'c-accent thin', line: true, text: 'p50 ' + ms(recent(values(name + '_p50_ms'))) }
          ]}
          band tick=${latency} label=${title + ', p50 and p99'}
          series=${[
            { cls: 'c-accent', soft: true, values: values(name + '_p50_ms') },
            { cls: 'c-accent', values: values(name + '_p99_ms') }
          ]} />
      `)}
    <${Metric} ...${shared} title="Spend" range="since the start"
      value=${usd(at != null ? perMinute(spend[at]) : data.spend_nano / 1e9)}
      unit=${at != null && 'per min'}
      sides=${at == null && byMidnight != null
        ? [{ text: `≈ ${usd(byMidnight)} by midnight`, opt: true }] : []}
      tick=${usd} label="Spend per minute in USD" series=${accent(spend.map(perMinute))} />
    <${Metric} ...${shared} title="In flight" range="now"
      value=${int(at != null ? inFlight[at] : data.in_flight)} unit="calls"
      tick=${v => (v % 1 ? '' : int(v))} label="Calls in flight" series=${accent(inFlight)} />
    <${Metric} ...${shared} title="Cache hits" value=${pct(recent(hits))}
      sides=${[{
        text: `of lookups; ${usd(data.saved_nano / 1e9)} saved since the start`, opt: true
      }]}
      top=${1} tick=${percent} label="Cache hits, share of lookups" series=${accent(hits)} />
    <${Metric} ...${shared} title="Guard verdicts" range=${RANGE_WORD[range]}
      value=${int(count('blocked') == null ? null : sum(VERDICTS.map(([name]) => count(name))))}
      sides=${VERDICTS.map(([name, cls], n) => ({
        cls, text: `${int(count(name))} ${name}`, opt: n > 0
      }))}
      kind="bars" tick=${plain} label="Guard verdicts other than passed"
      series=${VERDICTS.map(([name, cls]) => ({ cls, values: values('guard_' + name) }))} />
  </div>`
}
// Spend until midnight at the rate of the shown range, null in the first five minutes.
function forecast({ points, step, spend_nano: spent, now }) {
  const known = valuesOf(points, 'spend').filter(value => value != null)
  const passed = known.length * step
  const remaining = new Date(now).setHours(24, 0, 0, 0) - now
  return passed < 300000 ? null : spent / 1e9 + (sum(known) / passed) * remaining
}

const Upstreams = ({ data, range }) => html`
  <${Panel} title="Upstreams" note=${RANGE_WORD[range]} cls="column" flush>
    <${Table} rows=${data.upstreams} columns=${[
      ['Target', u => html`<span class="muted">${u.upstream}/</span>${u.model}`, 'nowrap'],
      ['Circuit', u => html`<span class="outcome">
        <${Glyph} n=${u.circuit} />
        <span class=${u.circuit === 'closed' ? '' : toneOf(u.circuit)}>${word(u.circuit)}</span>
      </span>`],
      ['In flight', u => html`
        ${int(u.in_flight)}
        ${u.max_concurrency && faint(` / ${int(u.max_concurrency)}`)}
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
      ['retries', data.retries],
      ['hedges', data.hedges],
      ['fallbacks', data.fallbacks],
      ['skipped', data.skipped]
    ].map(([name, n]) => html`<span><b>${int(n || 0)}</b> ${name}</span>`)}</div>
  </${Panel}>
`

const PolicyCard = ({ policy, candidate, now }) => html`
  <${Panel} title="Policy" actions=${html`<a class="small" href=${link('policy')}>Open</a>`}>
    <div class="stack">
      <div>${[
        ['Active revision', html`<code>${policy.revision}</code>`],
        ['Active since', html`<span>
          <${Time} t=${policy.since} show=${minute(policy.since)} />${' '}
          ${faint(span(now - policy.since))}
        </span>`],
        ['Candidate', candidate ? html`
          <a href=${link('policy', { at: 'candidate' })}><code>${candidate}</code></a>
        ` : faint('none')]
      ].map(([name, value]) => html`
        <div class="pair"><span class="muted">${name}</span>${value}</div>
      `)}</div>
      ${policy.rejected ? html`
        <div class="t-bad">
          <${Glyph} n="failed" /> Reload rejected at <${Time} t=${policy.rejected.at} />
        </div>
        <${Problems} list=${policy.rejected.problems} />
      ` : html`<p class="muted"><${Glyph} n="applied" /> No rejected reload.</p>`}
    </div>
  </${Panel}>
`
