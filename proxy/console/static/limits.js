// Limits and budgets as bars.

import { html } from './vendor/preact-htm.module.js'
import { link } from './address.js'
import { int, pct, span, usd, usdExact } from './format.js'
import { At, Glyph, Meter, Shadow } from './parts.js'

const NANO = 1e9
const NOUN = { requests: 'requests', tokens: 'tokens', concurrency: 'calls at once' }
export const amount = (limit, value) =>
  value == null ? 'unknown' : limit.kind === 'usd' ? usd(value / NANO) : int(value)

function Limit({ limit, where }) {
  const share = limit.used / limit.capacity
  const spent = share >= 0.995
  const warn = limit.warn_at && share >= limit.warn_at
  const isMoney = limit.kind === 'usd'
  const exact = isMoney && `${usdExact(limit.used / NANO)} of ${usdExact(limit.capacity / NANO)}`
  const state = spent ? html`
    <span class="t-bad"><${Glyph} n="refused" /> spent</span>
  ` : warn ? html`
    <span class="t-warn"><${Glyph} n="warn" /> past ${limit.warn_at * 100} %</span>
  ` : pct(share, 0) + ' used'
  return html`<div class="limit" id=${`limit.${limit.name}.${limit.scope}`}>
    <div class="name">
      <a class="cut" href=${link('policy', { at: 'limits' })}>${limit.name}</a>
      <span class="scope cut">${limit.scope}</span>
      <${Shadow} on=${limit.mode === 'shadow'} />
    </div>
    <div class="value num" title=${exact || undefined}>
      <b>${amount(limit, Math.max(0, limit.capacity - limit.used))}</b>${' '}
      <span class="muted">left of ${amount(limit, limit.capacity)}</span>
    </div>
    <${Meter} share=${share} tone=${spent ? 'c-failed' : warn ? 'c-warn' : 'c-accent'}
      mark=${limit.warn_at} />
    <div class="low">
      <span>
        ${state}
        ${limit.denied > 0 && html`
          , <span class="t-warn">${int(limit.denied)} refused in the last hour</span>
        `}
      </span>
      <span>${isMoney && limit.reset_s != null
        ? `resets in ${span(limit.reset_s * 1000)}` : NOUN[limit.kind] || limit.kind}</span>
      ${where && html`<${At} v=${limit.source} />`}
    </div>
  </div>`
}
export function Limits({ list, noun = 'limits', where, columns = 1 }) {
  if (list == null)
    return html`<p class="t-bad">
      <${Glyph} n="failed" /> The store of the counters does not answer, so their state is unknown.
    </p>`
  if (!list.length)
    return html`<p class="muted">The active policies have no ${noun} with a known owner.</p>`
  const half = Math.ceil(list.length / columns)
  const column = part => html`<div class="limits">${part.map(limit => html`
    <${Limit} key=${limit.name + limit.scope} limit=${limit} where=${where} />
  `)}</div>`
  return columns === 1 ? column(list) : html`
    <div class="cols two">${column(list.slice(0, half))}${column(list.slice(half))}</div>
  `
}
export const Problems = ({ list, warnings }) => html`
  <ul class=${'problems ' + (warnings ? 'warnings' : '')}>${list.map(text => {
    const [, place, rest] = /^(\S+:\d+:\d+): (.*)$/s.exec(text) || [null, null, text]
    return html`<li>${place ? html`<${At} v=${place} />` : null}<span>${rest}</span></li>`
  })}</ul>
`
