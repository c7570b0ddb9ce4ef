// Recent calls as a live table.

import { html, useEffect, useMemo, useRef, useState } from './vendor/preact-htm.module.js'
import { amend, go, link, readRoute } from './address.js'
import { api, RETRY_MS, setReachable, setStale, SignedOut } from './api.js'
import { CallDetails } from './call.js'
import { hasFinding, OUTCOMES, requested, timeOf, tokensIn, tokensOut } from './call-fields.js'
import { FirstCall } from './first-call.js'
import { fixed, int, millis, tagsText, usdColumn, usdExact } from './format.js'
import {
  Client, faint, Glyph, Icon, isShortcut, Outcome, Page, Seg, Select, Skeleton, Time, useKeys, word
} from './parts.js'

const FIELDS = ['deployment', 'key', 'model', 'tag', 'candidate']
const BAD = ['upstream_error', 'timeout', 'proxy_error']
const MAX_ROWS = 1000
const SHOWN_ROWS = 200

const valuesOf = (call, field) => (field === 'tag' ? tagsText(call.tags) : [call[field]])

function matches(call, query) {
  if (query.outcome && call.outcome !== query.outcome) return false
  for (const field of FIELDS) {
    const values = field === 'model' ? [call.model, requested(call)] : valuesOf(call, field)
    if (query[field] && !values.includes(query[field])) return false
  }
  if (!query.q) return true
  const { request_id, trace_id, key, deployment, model, upstream, error, status } = call
  const names = [requested(call), ...tagsText(call.tags)]
  const text = [request_id, trace_id, key, deployment, model, upstream, error, status, ...names]
    .join(' ')
    .toLowerCase()
  return query.q.toLowerCase().split(/\s+/).every(part => text.includes(part))
}

const runOf = call => call.id.split('-')[0]
const numberOf = call => Number(call.id.split('-')[1])
const merge = (fresh, old) => [...fresh, ...old].slice(0, MAX_ROWS)

// Adds a call of the stream, unless the list has it.
function addCall({ calls, held }, call, isBusy) {
  const newest = held[0] || calls[0]
  if (newest && runOf(newest) !== runOf(call)) [calls, held] = [[], []] // numbers begin again
  else if (newest && numberOf(call) <= numberOf(newest)) return { calls, held }
  return isBusy() ? { calls, held: merge([call], held) } : { calls: merge([call], calls), held }
}

// The calls of the process, newest first. New ones are `held` while the reader uses the table.
function useCalls(live, isBusy) {
  const [state, setState] = useState({ calls: null, held: [] })
  const [error, setError] = useState(null)
  useEffect(() => {
    let source
    let timer
    let ended = false
    let at = null
    const fail = message => {
      if (at) setStale('stream', { at, message })
      timer = setTimeout(load, RETRY_MS)
    }
    const open = last => {
      source = new EventSource(`/api/v1/calls/stream?after=${last}`)
      source.onopen = () => {
        setReachable(true)
        setStale('stream', null)
      }
      source.onerror = () => {
        if (source.readyState !== EventSource.CLOSED) setReachable(false)
        else if (!ended) fail('New calls are missing, because the stream of calls was refused.')
      }
      source.onmessage = event => {
        at = Date.now()
        setState(old => addCall(old, JSON.parse(event.data), isBusy))
      }
    }
    const load = async () => {
      try {
        const page = await api('calls')
        if (ended) return
        at = Date.now()
        setError(null)
        setState({ calls: page.calls, held: [] })
        if (live) open(page.last)
      } catch (error) {
        if (ended) return
        setError(error)
        if (!(error instanceof SignedOut)) fail(error.message)
      }
    }
    load()
    return () => {
      ended = true
      clearTimeout(timer)
      setStale('stream', null)
      if (source) source.close()
    }
  }, [live])
  const release = () => setState(old => ({ calls: merge(old.held, old.calls), held: [] }))
  return { ...state, error, release }
}

export function Calls({ query, live, keysOn }) {
  const [filters, setFilters] = useState(false)
  const body = useRef(null)
  const search = useRef(null)
  const isBusy = () =>
    body.current &&
    (body.current.scrollTop > 8 || body.current.contains(document.activeElement))
  const { calls, held, error, release } = useCalls(live, isBusy)
  const all = calls || []
  const text = JSON.stringify(query)
  const counts = useMemo(() => {
    const found = {}
    for (const call of all)
      if (matches(call, { ...query, outcome: null }))
        found[call.outcome] = (found[call.outcome] || 0) + 1
    return found
  }, [calls, text])
  const list = useMemo(() => all.filter(call => matches(call, query)), [calls, text])
  const pick = call => amend({ call: call && call.id })
  useCallKeys({ body, search, query, keysOn })
  const optionsOf = field => {
    const values = new Set(all.flatMap(call => valuesOf(call, field)).filter(Boolean))
    const cut = v => (v.length > 40 ? v.slice(0, 40) + '…' : v)
    return [['', `Any ${field}`], ...[...values].sort().map(v => [v, cut(v)])]
  }
  const any = ['q', 'outcome', ...FIELDS].some(field => query[field])
  const shown = FIELDS.filter(f => f !== 'candidate' || query[f] || all.some(call => call[f]))
  const set = FIELDS.filter(field => query[field]).length
  if (error && !calls) return html`<${Page} title="Calls" error=${error} />`
  if (calls && !calls.length && !held.length)
    return html`<${Page} title="Calls"><${FirstCall} /></${Page}>`
  const outcomes = html`<div class="hscroll"><${Seg} label="Outcome" value=${query.outcome || ''}
    onPick=${v => amend({ outcome: v || null, call: null })}
    options=${[
      ['', 'All', Object.values(counts).reduce((a, b) => a + b, 0)],
      ...OUTCOMES.filter(o => counts[o] || query.outcome === o).map(o =>
        [o, html`<${Glyph} n=${o} />${word(o)}`, counts[o] || 0])
    ]}
  /></div>`
  return html`<${Page} title="Calls" cls=${'fill' + (query.call ? ' has-open' : '')}
    head=${outcomes}>
    <p class="vh" role="status">${any ? `${list.length} calls match` : ''}</p>
    <div class="tools">
      <label class="find">
        <span class="vh">Filter by call id, trace id, key, deployment, model, error or status</span>
        <${Icon} n="search" />
        <input ref=${search} class="field" type="search"
          placeholder="Call id, key, model, error, status" value=${query.q || ''}
          onInput=${e => amend({ q: e.target.value }, { replace: Boolean(readRoute().query.q) })}
          onKeyDown=${e => {
            if (e.key === 'Escape') {
              e.stopPropagation()
              e.target.blur()
            }
          }}
        />
        <kbd>/</kbd>
      </label>
      <button type="button" class="btn only-narrow" aria-expanded=${String(filters)}
        onClick=${() => setFilters(!filters)}>
        Filters${set ? ` (${set})` : ''}
      </button>
      <div class=${'filters' + (filters ? ' show' : '')}>${shown.map(field => html`
        <label key=${field}><${Select} aria-label=${field} value=${query[field] || ''}
          options=${optionsOf(field)} onPick=${v => amend({ [field]: v })} /></label>
      `)}</div>
      ${any && html`<button type="button" class="btn quiet"
        onClick=${() => go('calls', { call: query.call })}>
        Clear
      </button>`}
    </div>
    <div class=${'split ' + (query.call ? 'open' : '')}>
      <section class="panel calls" aria-label="Recent calls">
        ${held.length > 0 && html`<button type="button" class="btn newer"
          onClick=${() => {
            release()
            body.current.scrollTop = 0
            if (document.activeElement) document.activeElement.blur()
          }}>
          ${held.length} new
        </button>`}
        <div class="scroll" ref=${body} tabindex="-1">
          ${!calls ? html`<${Skeleton} rows=${18} />` : list.length === 0 ? html`
            <${NoMatch} count=${all.length} query=${query} />
          ` : html`<table class="narrow">
            <thead><tr>
              ${COLUMNS.map(([head, cls]) => html`<th class=${cls}>${head}</th>`)}
            </tr></thead>
            <tbody>${list.slice(0, SHOWN_ROWS).map(call => html`
              <${Row} key=${call.id} call=${call} on=${query.call === call.id} pick=${pick} />
            `)}</tbody>
          </table>`}
        </div>
        <div class="foot">
          <span>
            ${int(Math.min(list.length, SHOWN_ROWS))} of ${int(list.length)}${' '}
            ${any ? 'matching calls' : 'recent calls'}
            ${list.length > SHOWN_ROWS ? '; filter to see the others' : ''}
          </span>
          <span class="spacer"></span><span class="nowrap"><kbd>j</kbd> <kbd>k</kbd> move</span>
          <span class="nowrap"><kbd>Enter</kbd> open</span>
          <span class="nowrap"><kbd>Esc</kbd> close</span>
        </div>
      </section>
      ${query.call && html`<${CallDetails} id=${query.call} close=${() => pick(null)} />`}
    </div>
  </${Page}>`
}

const NoMatch = ({ count, query }) => html`<div class="empty">
  <h2>No call matches</h2>
  <p class="muted">
    ${int(count)} recent calls are kept in memory; none has${' '}
    ${['q', 'outcome', ...FIELDS]
      .filter(f => query[f])
      .map(f => html`
        <code>${f === 'q' ? '' : f + '='}<${Client} v=${query[f]} max=${64} /></code>
      `)}
    . Older calls are in the ledger: <code>headrace usage LEDGER</code>.
  </p>
  <button type="button" class="btn" onClick=${() => go('calls')}>Clear the filter</button>
</div>`

// j and k move, / filters, Escape closes the open call.
function useCallKeys({ body, search, query, keysOn }) {
  const move = step => {
    const rows = [...body.current.querySelectorAll('a.row')]
    const focused = rows.indexOf(document.activeElement)
    const here = focused >= 0 ? focused : rows.findIndex(row => row.dataset.call === query.call)
    const next = rows[Math.max(0, Math.min(rows.length - 1, here + step))]
    if (!next) return
    next.focus()
    if (query.call) amend({ call: next.dataset.call }, { replace: true })
  }
  useKeys(e => {
    if (!body.current || !isShortcut(e)) return
    if (e.key === 'j' && keysOn) move(1)
    else if (e.key === 'k' && keysOn) move(-1)
    else if (e.key === '/' && keysOn) {
      e.preventDefault()
      search.current.focus()
    } else if (e.key === 'Escape' && query.call) {
      const row = `a.row[data-call="${CSS.escape(query.call)}"]`
      amend({ call: null })
      setTimeout(() => body.current?.querySelector(row)?.focus(), 30)
    }
  })
}

function guardMark(call) {
  const verdict = call.guards.find(hasFinding)?.verdict
  if (!verdict) return faint(call.guards.length ? 'passed' : 'none')
  return html`<span class="outcome"><${Glyph} n=${verdict} />${verdict}</span>`
}
const dash = value => (value == null ? faint('–') : int(value))
function costText({ cost_usd: cost, usage_source }) {
  if (cost == null && usage_source === 'none')
    return html`<span title="No upstream was paid">${dash(null)}</span>`
  const tone = cost == null ? 't-warn' : cost ? '' : 'faint'
  return html`<span class=${tone} title=${usdExact(cost)}>${usdColumn(cost)}</span>`
}
const modelName = call => html`<${Client} v=${call.model || requested(call)} max=${64} />`

// A column is [head, class, cell]. Narrow screens hide `opt` and `opt2` and show `sub`.
const COLUMNS = [
  ['Time', 'w-time', call => html`
    <a class="row" data-call=${call.id}
      href=${link('calls', { ...readRoute().query, call: call.id })}>
      <${Time} t=${timeOf(call)} /><span class="faint ms">${millis(timeOf(call))}</span>
      <span class="vh">${' '}open call <${Client} v=${call.request_id || ''} max=${64} /></span>
    </a>
    <span class="sub"><${Outcome} n=${call.outcome} code=${call.status} words=${false} /></span>
  `],
  ['Outcome', 'w-out opt2', call => html`<${Outcome} n=${call.outcome} code=${call.status} />`],
  ['Deployment', 'w-dep cut', call => html`
    ${call.deployment || faint('none')}<span class="sub cut">${modelName(call)}</span>
  `],
  ['Key', 'w-key cut opt opt2 muted', call => call.key || faint('no valid key')],
  ['Model', 'w-model cut opt2', call => call.model || faint(modelName(call))],
  ['Attempts', 'w-s num opt opt2', call =>
    call.attempts > 1 ? html`<b class="t-warn">${call.attempts}</b>` : call.attempts || faint('0')],
  ['Cache', 'w-g opt opt2', call =>
    call.cache.startsWith('hit') ? html`<span class="t-ok">hit</span>` : faint(call.cache)],
  ['First, ms', 'w-n num opt opt2', call => dash(call.ttft_ms)],
  ['Total, ms', 'w-n num', ({ duration_ms, cost_usd }) => html`
    ${fixed(duration_ms, duration_ms < 10 ? 1 : 0)}
    <span class="sub">${cost_usd == null ? '–' : '$' + usdColumn(cost_usd)}</span>
  `],
  ['In, tok', 'w-s num opt opt2', call => dash(tokensIn(call))],
  ['Out, tok', 'w-s num opt opt2', call => dash(tokensOut(call))],
  ['Cost, $', 'w-c num opt2', costText],
  ['Guards', 'w-g opt opt2', guardMark]
]

function Row({ call, on, pick }) {
  const open = e => {
    if (e.target.closest('button') || e.ctrlKey || e.metaKey) return
    e.preventDefault()
    pick(call)
  }
  return html`
    <tr class=${(on ? 'on ' : '') + (BAD.includes(call.outcome) ? 'bad' : '')} onClick=${open}>
      ${COLUMNS.map(([, cls, cell]) => html`<td class=${cls}>${cell(call)}</td>`)}
    </tr>
  `
}
