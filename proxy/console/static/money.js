// Spend by period and group, from the ledger.

import { html, useState } from './vendor/preact-htm.module.js'
import { amend, link } from './address.js'
import { useData } from './api.js'
import { Chart } from './chart.js'
import { dateIn, fixed, int, pct, usd, usdCents, usdExact } from './format.js'
import { Limits } from './limits.js'
import { Code, faint, Icon, Meter, Page, Panel, Seg, Skeleton, Table } from './parts.js'

const DAYS = { '7d': 7, '30d': 30, '90d': 90 }
const DAY_MS = 86400000
const NANO = 1e9
const CAUSES = {
  client_left: 'Client disconnected',
  upstream_broke: 'Upstream failed or timed out',
  retry: 'Attempt failed, another was made',
  guard: 'Guard withheld the response',
  hedge: 'Another attempt was faster',
  refused: 'Upstream refused the request',
  stopped: 'Proxy ended the call'
}
const LEDGER_COMMAND = `HEADRACE_LEDGER=sqlite:/var/lib/headrace/ledger.db \\
  headrace serve --policies policies/`
const money = nano => (nano == null ? null : nano / NANO)
const sumKnown = values => {
  const known = values.filter(value => value != null)
  return known.length || !values.length ? known.reduce((a, b) => a + b, 0) : null
}
// The index of the first day of this month, null if it is before the range.
function monthStart(times, date) {
  const index = times.map(date).findLastIndex(text => text.endsWith(' 1'))
  return index < 0 ? null : index
}

const NoLedger = () => html`<section class="panel empty" aria-label="No ledger">
  <h2>No ledger is kept</h2>
  <p class="muted">
    Spend by day needs a SQLite ledger: one row for each call and attempt, without prompt and
    response. Start the proxy with
  </p>
  <${Code} text=${LEDGER_COMMAND} what="the command" />
  <p class="muted">
    Until then the spend since the start of the process is on the${' '}
    <a href=${link('overview')}>Overview</a>.
  </p>
</section>`

export function Money({ query, live }) {
  const days = DAYS[query.range] || 30
  const unit = query.unit === 'week' ? 'week' : 'day'
  const by = query.by ? `&by=${encodeURIComponent(query.by)}` : ''
  const { data, error } = useData(`money?days=${days}&unit=${unit}${by}`, 30000, live)
  const [cursor, setCursor] = useState(null)
  if (!data)
    return html`<${Page} title="Money" error=${error} busy>
      <section class="panel"><${Skeleton} rows=${3} tall /></section>
    </${Page}>`
  const budgets = data.limits && data.limits.filter(limit => limit.kind === 'usd')
  const budgetPanel = note => html`<${Panel} title="Budgets" note=${note}
    actions=${html`<a class="small" href=${link('policy', { at: 'limits' })}>All limits</a>`}>
    <${Limits} list=${budgets} noun="budgets" columns=${2} where />
  </${Panel}>`
  if (!data.ledger)
    return html`<${Page} title="Money">
      <${NoLedger} />${budgetPanel('counted by the limit store')}
    </${Page}>`
  const { groups, total, times } = data
  const last = times.length - 1
  const now = cursor == null || cursor > last ? null : cursor
  const shown = group => (now == null ? group.cost : group.values[now])
  const shownTotal = sumKnown(groups.map(shown))
  const isDaily = unit === 'day'
  const today = isDaily ? sumKnown(groups.map(group => group.values[last])) : null
  const date = dateIn(data.zone)
  const first = isDaily ? monthStart(times, date) : null
  const passed = data.now - times[last]
  const forecast = today != null && passed > 3600000 ? money((today * DAY_MS) / passed) : null
  const series = groups.map((group, i) => ({
    cls: i < 6 ? 'c-' + (i + 1) : 'c-other',
    values: group.values.map(money)
  }))
  const ticks = width => {
    const every = Math.max(1, Math.ceil(times.length / (width > 600 ? 10 : 4)))
    return times.map((_, i) => i).filter(i => (last - i) % every === 0)
  }
  const spend = nano => html`<b title=${usdExact(money(nano))}>${usd(money(nano))}</b>`
  const share = (part, whole, digits) => (whole && part != null ? pct(part / whole, digits) : '–')
  const figures = [
    [isDaily ? `Last ${days} days` : `Since ${date(times[0])}`, spend(total.cost),
      `${int(total.calls)} calls`],
    isDaily && ['Today', spend(today),
      forecast == null ? 'no forecast in the first hour' : `forecast ≈ ${usd(forecast)}`],
    first != null && ['This month',
      spend(sumKnown(groups.flatMap(group => group.values.slice(first)))), 'until now'],
    ['Lost', spend(total.lost), `${share(total.lost, total.cost)} of the spend`],
    ['Saved by the cache', spend(total.saved), 'not part of the spend'],
    ['Unpriced attempts', html`<b>${share(total.unpriced, total.attempts, 2)}</b>`,
      `${share(total.estimated, total.attempts)} estimated`]
  ]
  const head = html`
    <div class="hscroll"><${Seg} label="Group by" value=${data.by} onPick=${v => amend({ by: v })}
      options=${data.options.slice(0, 8).map(name => [name, name])} /></div>
    <${Seg} label="Per" value=${unit} onPick=${v => amend({ unit: v })}
      options=${[['day', 'by day'], ['week', 'by week']]} />
    <span class="spacer"></span>
    <a class="btn" download
      href=${`/api/v1/money?days=${days}&by=${encodeURIComponent(data.by)}&format=csv`}>
      <${Icon} n="download" />CSV
    </a>
  `
  return html`
    <${Page} title="Money" head=${head}>
      <dl class="strip">${figures.map(figure => figure && html`
        <div><dt>${figure[0]}</dt><dd>${figure[1]}<span>${figure[2]}</span></dd></div>
      `)}</dl>
      <${Panel} title=${`Spend by ${unit} and ${data.by}`}
        note=${`USD, days in ${data.zone}, from the ledger` +
          (forecast ? '; the dashed bar is the forecast of today' : '')}>
        ${groups.length ? html`
          <${Chart} t=${times} series=${series} kind="bars" height=${216}
            tick=${v => (v >= 1 ? '$' + fixed(v, v % 1 ? 2 : 0) : usd(v))}
            label=${`Spend by ${unit} and ${data.by}, in USD. The table below has the sums.`}
            cursor=${now} onCursor=${setCursor} xs=${ticks} xtick=${date} ghost=${forecast} />
        ` : html`<p class="muted">The ledger has no calls in this time.</p>`}
      </${Panel}>
      <${Groups} data=${data} series=${series} shown=${shown} shownTotal=${shownTotal}
        at=${now == null ? null : times[now]} />
      <div class="cols money"><${Losses} list=${data.losses} />${budgetPanel('')}</div>
    </${Page}>
  `
}

function Groups({ data, series, shown, shownTotal, at }) {
  const { groups, total, by } = data
  const date = dateIn(data.zone)
  const owner = name => {
    if (name == null) return faint('none')
    if (by !== 'key' && by !== 'deployment') return name
    return html`<a href=${link('policy', { at: `${by}.${name}` })}>${name}</a>`
  }
  const share = (part, whole, digits) => (whole ? pct(part / whole, digits) : faint('–'))
  const spend = cost => html`<span title=${usdExact(money(cost))}>${usdCents(money(cost))}</span>`
  const columns = [
    [by, (g, i) => html`<i class=${`sw ${series[i].cls}`}></i> ${owner(g.name)}`],
    [at == null ? 'Spend, $' : `${date(at)}, $`, g => spend(shown(g)), 'num'],
    ['Share', g => share(shown(g) || 0, shownTotal), 'num'],
    ['Calls', g => int(g.calls), 'num'],
    ['Tokens in', g => int(g.tokens_in), 'num'],
    ['Tokens out', g => int(g.tokens_out), 'num'],
    ['Per 1,000 calls, $', g =>
      g.cost == null ? 'unknown' : fixed(((g.cost / NANO) * 1000) / g.calls, 4), 'num'],
    ['Lost, $', g => usdCents(money(g.lost)), 'num'],
    ['Saved, $', g => usdCents(money(g.saved)), 'num'],
    ['Unpriced', g => share(g.unpriced, g.attempts, 2), 'num'],
    ['Estimated', g => share(g.estimated, g.attempts), 'num']
  ]
  const sums = [
    'Total', spend(shownTotal), '100 %', int(total.calls), int(total.tokens_in),
    int(total.tokens_out), '', usdCents(money(total.lost)), usdCents(money(total.saved)), '', ''
  ]
  const foot = html`<tfoot><tr>${sums.map((sum, n) => html`
    <td class=${n && 'num' + (n === 1 || n === 3 ? '' : ' skip-narrow')}
      data-label=${n ? columns[n][0] : undefined}>${sum}</td>
  `)}</tr></tfoot>`
  return html`
    <section class="panel" aria-label=${`By ${by}`}>
      <${Table} rows=${groups} columns=${columns} foot=${foot} />
    </section>
  `
}

function Losses({ list }) {
  const ordered = list.slice().sort((a, b) => (b.nano || 0) - (a.nano || 0))
  const most = ordered.length ? ordered[0].nano || 1 : 1
  return html`
    <${Panel} title="Lost cost by cause" note="paid for responses that no client received in full">
      ${ordered.length ? html`<div class="hbars">
        <span class="faint small">Cause</span><span></span>
        <span class="faint small num">Cost</span><span class="faint small num">Attempts</span>
        ${ordered.map(loss => html`
          <span title=${loss.cause}>${CAUSES[loss.cause] || loss.cause}</span>
          <${Meter} share=${(loss.nano || 0) / most} tone="c-failed" />
          <span class="num" title=${usdExact(money(loss.nano))}>
            ${loss.nano == null ? 'unknown' : usd(money(loss.nano))}
          </span>
          <span class="num faint">${int(loss.attempts)}</span>
        `)}
      </div>` : html`<p class="muted">Nothing was lost in this time.</p>`}
    </${Panel}>
  `
}
