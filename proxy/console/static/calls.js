// Recent calls as a live table.

import { html, useEffect, useMemo, useRef, useState } from './vendor/preact-htm.module.js'
import { amend, go, link, readRoute } from './address.js'
import { api, setReachable, setStale, SignedOut } from './api.js'
import { CallDetails } from './call.js'
import {
  hasFinding,
  OUTCOMES,
  requested,
  tagsOf,
  timeOf,
  tokensIn,
  tokensOut
} from './call-fields.js'
import { FirstCall } from './first-call.js'
import { fixed, int, usdColumn, usdExact } from './format.js'
import { Client, Failure, Glyph, Icon, Outcome, Seg, Skeleton, Time, word } from './parts.js'

const FIELDS = ['deployment', 'key', 'model', 'tag', 'candidate']
const BAD = ['upstream_error', 'timeout', 'proxy_error']
const MAX_ROWS = 1000
const SHOWN_ROWS = 200

function matches(call, query) {
  if (query.outcome && call.outcome !== query.outcome) return false
  if (query.deployment && call.deployment !== query.deployment) return false
  if (query.key && call.key !== query.key) return false
  if (query.model && call.model !== query.model && requested(call) !== query.model) return false
  if (query.candidate && call.candidate !== query.candidate) return false
  if (query.tag && !tagsOf(call).includes(query.tag)) return false
  if (!query.q) return true
  const text = [
    call.request_id,
    call.trace_id,
    call.key,
    call.deployment,
    call.model,
    requested(call),
    call.upstream,
    call.error,
    call.status,
    ...tagsOf(call)
  ]
    .join(' ')
    .toLowerCase()
  return query.q
    .toLowerCase()
    .split(/\s+/)
    .every(part => text.includes(part))
}

const runOf = call => call.id.split('-')[0]
const numberOf = call => Number(call.id.split('-')[1])

// The calls of the process, newest first. New ones are `held` while the reader uses the table.
function useCalls(live, isBusy) {
  const [state, setState] = useState({ calls: null, held: [], error: null })
  useEffect(() => {
    let source
    let timer
    let ended = false
    let at = null
    const merge = (fresh, old) => [...fresh, ...old].slice(0, MAX_ROWS)
    const fail = message => {
      if (at) setStale('stream', { at, message })
      timer = setTimeout(load, 4000)
    }
    const open = last => {
      if (!live || ended) return
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
        const call = JSON.parse(event.data)
        at = Date.now()
        setState(old => {
          const newest = old.held[0] || (old.calls && old.calls[0])
          const isRestarted = newest && runOf(newest) !== runOf(call) // numbers begin again
          if (newest && !isRestarted && numberOf(call) <= numberOf(newest)) return old
          const calls = isRestarted ? [] : old.calls
          if (isBusy()) return { ...old, calls, held: merge([call], isRestarted ? [] : old.held) }
          return { ...old, calls: merge([call], calls || []) }
        })
      }
    }
    const load = () =>
      api('calls').then(
        page => {
          if (ended) return
          at = Date.now()
          setState({ calls: page.calls, held: [], error: null })
          open(page.last)
        },
        error => {
          if (ended) return
          setState(old => ({ ...old, error }))
          if (!(error instanceof SignedOut)) fail(error.message)
        }
      )
    load()
    return () => {
      ended = true
      clearTimeout(timer)
      setStale('stream', null)
      if (source) source.close()
    }
  }, [live])
  const release = () =>
    setState(old => ({
      ...old,
      calls: [...old.held, ...old.calls].slice(0, MAX_ROWS),
      held: []
    }))
  return [state, release]
}

export function Calls({ query, live, keysOn }) {
  const [filters, setFilters] = useState(false)
  const body = useRef(null)
  const search = useRef(null)
  const isBusy = () =>
    Boolean(
      body.current &&
      (body.current.scrollTop > 8 || body.current.contains(document.activeElement))
    )
  const [{ calls, held, error }, release] = useCalls(live, isBusy)
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
  useKeys({ body, search, query, keysOn })
  const values = field =>
    [
      ...new Set(
        all.flatMap(call => (field === 'tag' ? tagsOf(call) : [call[field]])).filter(Boolean)
      )
    ].sort()
  const any = ['q', 'outcome', ...FIELDS].some(field => query[field])
  const total = Object.values(counts).reduce((a, b) => a + b, 0)
  const shown = FIELDS.filter(f => f !== 'candidate' || query[f] || all.some(call => call[f]))
  const set = FIELDS.filter(field => query[field]).length
  if (error && !calls)
    return html`<main id="main" class="page">
      <div class="head"><h1>Calls</h1></div><${Failure} error=${error} />
    </main>`
  if (calls && !calls.length && !held.length)
    return html`
      <main id="main" class="page"><div class="head"><h1>Calls</h1></div><${FirstCall} /></main>
    `
  return html`<main id="main" class=${'page fill' + (query.call ? ' has-open' : '')}>
    <p class="vh" role="status">${any ? `${list.length} calls match` : ''}</p>
    <div class="head">
      <h1>Calls</h1>
      <div class="hscroll"><${Seg} label="Outcome" value=${query.outcome || ''}
        onPick=${v => amend({ outcome: v || null, call: null })}
        options=${[
          ['', 'All', total],
          ...OUTCOMES.filter(o => counts[o] || query.outcome === o).map(o => [
            o,
            html`<${Glyph} n=${o} />${word(o)}`,
            counts[o] || 0
          ])
        ]}
      /></div>
    </div>
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
        <label key=${field}><select aria-label=${field} value=${query[field] || ''}
          onChange=${e => amend({ [field]: e.target.value })}>
          <option value="">Any ${field}</option>
          ${values(field).map(v => html`<option value=${v} selected=${query[field] === v}>
            ${v.length > 40 ? v.slice(0, 40) + '…' : v}
          </option>`)}
        </select></label>
      `)}</div>
      ${any ? html`<button type="button" class="btn quiet"
        onClick=${() => go('calls', { call: query.call })}>
        Clear
      </button>` : null}
    </div>
    <div class=${'split ' + (query.call ? 'open' : '')}>
      <section class="panel calls" aria-label="Recent calls">
        ${held.length ? html`<button type="button" class="btn newer"
          onClick=${() => {
            release()
            body.current.scrollTop = 0
            if (document.activeElement) document.activeElement.blur()
          }}>
          ${held.length} new
        </button>` : null}
        <div class="scroll" ref=${body} tabindex="-1">
          ${!calls ? html`<${Skeleton} rows=${18} />` : list.length === 0 ? html`
            <${NoMatch} count=${all.length} query=${query} />
          ` : html`<table class="narrow">
            <thead><tr>
              <th class="w-time">Time</th><th class="w-out opt2">Outcome</th>
              <th class="w-dep">Deployment</th><th class="w-key opt opt2">Key</th>
              <th class="w-model opt2">Model</th><th class="w-s num opt opt2">Attempts</th>
              <th class="w-g opt opt2">Cache</th><th class="w-n num opt opt2">First, ms</th>
              <th class="w-n num">Total, ms</th><th class="w-s num opt opt2">In, tok</th>
              <th class="w-s num opt opt2">Out, tok</th><th class="w-c num opt2">Cost, $</th>
              <th class="w-g opt opt2">Guards</th>
            </tr></thead>
            <tbody>${list.slice(0, SHOWN_ROWS).map(call => html`
              <${Row} key=${call.id} call=${call} on=${query.call === call.id}
                pick=${pick} />
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
      ${query.call ? html`<${CallDetails} id=${query.call} close=${() => pick(null)} />` : null}
    </div>
  </main>`
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
function useKeys({ body, search, query, keysOn }) {
  const move = step => {
    const rows = [...body.current.querySelectorAll('a.row')]
    const focused = rows.indexOf(document.activeElement)
    const here =
      focused >= 0 ? focused : rows.findIndex(row => row.dataset.call === query.call)
    const next = rows[Math.max(0, Math.min(rows.length - 1, here + step))]
    if (!next) return
    next.focus()
    if (query.call) amend({ call: next.dataset.call }, { replace: true })
  }
  useEffect(() => {
    const onKey = e => {
      if (
        !body.current ||
        e.target.closest('input, select, textarea, dialog') ||
        e.metaKey ||
        e.ctrlKey ||
        e.altKey
      )
        return
      if (e.key === 'j' && keysOn) move(1)
      else if (e.key === 'k' && keysOn) move(-1)
      else if (e.key === '/' && keysOn) {
        e.preventDefault()
        search.current.focus()
      } else if (e.key === 'Escape' && query.call) {
        const id = query.call
        amend({ call: null })
        setTimeout(() => {
          const row =
            body.current && body.current.querySelector(`a.row[data-call="${CSS.escape(id)}"]`)
          if (row) row.focus()
        }, 30)
      }
    }
    document.addEventListener('keydown', onKey)
    return () => document.removeEventListener('keydown', onKey)
  })
}

function guardMark(call) {
  const found = call.guards.filter(hasFinding)
  if (!call.guards.length) return html`<span class="faint">none</span>`
  if (!found.length) return html`<span class="faint">passed</span>`
  return html`<span class="outcome"><${Glyph} n=${found[0].verdict} />${found[0].verdict}</span>`
}
const dash = value => (value == null ? html`<span class="faint">–</span>` : int(value))

function Row({ call, on, pick }) {
  const model = call.model || requested(call)
  const time = timeOf(call)
  const open = e => {
    if (!e.target.closest('button') && !e.ctrlKey && !e.metaKey) {
      e.preventDefault()
      pick(call)
    }
  }
  const cost = call.cost_usd
  const tokens = [tokensIn(call), tokensOut(call)]
  return html`
    <tr class=${(on ? 'on ' : '') + (BAD.includes(call.outcome) ? 'bad' : '')} onClick=${open}>
      <td>
        <a class="row" data-call=${call.id}
          href=${link('calls', { ...readRoute().query, call: call.id })}>
          <${Time} t=${time} />
          <span class="faint ms">.${String(time % 1000).padStart(3, '0')}</span>
          <span class="vh">${' '}open call <${Client} v=${call.request_id || ''} max=${64} /></span>
        </a>
        <span class="sub"><${Outcome} n=${call.outcome} code=${call.status} words=${false} /></span>
      </td>
      <td class="opt2"><${Outcome} n=${call.outcome} code=${call.status} /></td>
      <td class="cut">
        ${call.deployment || html`<span class="faint">none</span>`}
        <span class="sub cut"><${Client} v=${model} max=${64} /></span>
      </td>
      <td class="cut opt opt2 muted">
        ${call.key || html`<span class="faint">no valid key</span>`}
      </td>
      <td class="cut opt2">
        ${call.model || html`<span class="faint"><${Client} v=${model} max=${64} /></span>`}
      </td>
      <td class="num opt opt2">
        ${call.attempts > 1 ? html`<b class="t-warn">${call.attempts}</b>` : (
          call.attempts || html`<span class="faint">0</span>`
        )}
      </td>
      <td class="opt opt2">${call.cache.startsWith('hit') ? html`<span class="t-ok">hit</span>`
        : html`<span class="faint">${call.cache}</span>`}</td>
      <td class="num opt opt2">${dash(call.ttft_ms)}</td>
      <td class="num">
        ${call.duration_ms < 10 ? fixed(call.duration_ms, 1) : int(call.duration_ms)}
        <span class="sub">${cost ? '$' + usdColumn(cost) : cost == null ? '–' : '$0'}</span>
      </td>
      <td class="num opt opt2">${dash(tokens[0])}</td>
      <td class="num opt opt2">${dash(tokens[1])}</td>
      <td class="num opt2"
        title=${
          cost == null && call.usage_source === 'none' ? 'No upstream was paid' : usdExact(cost)
        }>${cost == null && call.usage_source === 'none' ? dash(null) : html`
        <span class=${cost == null ? 't-warn' : cost ? '' : 'faint'}>${usdColumn(cost)}</span>
      `}</td>
      <td class="opt opt2">${guardMark(call)}</td>
    </tr>
  `
}
