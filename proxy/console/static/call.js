// The details of one call: waterfall, tokens and cost, decisions, guards.

import { html, useEffect, useRef, useState } from './vendor/preact-htm.module.js'
import { link } from './address.js'
import { Refused, useData } from './api.js'
import { requested, timeOf } from './call-fields.js'
import { clock, date, findingsText, int, millis, ms, tagsText, usd, usdExact } from './format.js'
import {
  At, Client, CopyButton, faint, Glyph, Icon, Outcome, Shadow, Skeleton, Time, word
} from './parts.js'

const STATE_WORD = { not_applied: 'did not apply', shadow: 'in shadow' }
const PARTS = ['rule', 'tag', 'target', 'parameter', 'limit', 'guard', 'attempt', 'call']
const OUTCOME_TONE = { limited: 'warn', client_error: '', client_abort: '', blocked: 'block' }

export function CallDetails({ id, close }) {
  const { data: call, error } = useData(`calls/${encodeURIComponent(id)}`, 0)
  if (call) return html`<${Drawer} key=${id} call=${call} close=${close} />`
  if (!error)
    return html`<section class="panel drawer" aria-label="Call" aria-busy="true">
      <${Skeleton} rows=${12} />
    </section>`
  const isStored = !(error instanceof Refused)
  return html`<section class="panel drawer" aria-label="Call"><div class="empty">
    <h2>${isStored ? 'This call cannot be loaded' : 'This call is not stored'}</h2>
    <p class="muted">
      ${error.message}${isStored ? '' : ' A ledger may have its row, without the explanation.'}
    </p>
    <button type="button" class="btn" onClick=${close}>Close</button>
  </div></section>`
}

const Section = ({ title, note, children }) => html`<section class="sec">
  <h3>${title}${' '}${note}</h3>${children}
</section>`
const note = text => html`<span class="note">${text}</span>`

function Drawer({ call, close }) {
  const [all, setAll] = useState(true)
  const shut = useRef(null)
  useEffect(() => {
    const list = document.querySelector('.calls')
    if (!list || !list.offsetParent) shut.current.focus({ preventScroll: true })
  }, [call.id])
  const time = timeOf(call)
  const id = call.request_id || ''
  const headers = Object.entries(call.response_headers).sort()
  const decisions = call.explanation ? call.explanation.decisions : []
  const cause =
    decisions.find(d => d.about === 'result' && d.state === 'refused') ||
    decisions.find(d => d.about === 'outcome')
  const trace = `${call.trace_id.slice(0, 12)}…`
  const facts = [
    ['Time', html`<${Time} t=${time} show=${`${date(time)}, ${clock(time)}${millis(time)}`} />`],
    ['Deployment', call.deployment ? html`
      <a href=${link('policy', { at: 'deployment.' + call.deployment })}>${call.deployment}</a>
    ` : faint('none')],
    ['Key', call.key ? html`
      <a href=${link('policy', { at: 'key.' + call.key })}>${call.key}</a>
    ` : faint('no valid key')],
    ['Requested', html`<${Client} v=${requested(call) || '–'} />`],
    ['Tags', html`<${Client} v=${tagsText(call.tags).join(' ') || '–'} />`],
    ['Served by', call.upstream ? `${call.upstream}/${call.model}`
      : call.cache.startsWith('hit') ? 'cache' : faint('nobody')],
    ['Request', `${call.dialect}, ${call.endpoint}, ${call.stream ? 'streamed' : 'whole'}`],
    ['Trace', html`<span class="cut">
      ${call.trace_url
        ? html`<a href=${call.trace_url} target="_blank" rel="noreferrer">${trace}</a>`
        : html`<code>${trace}</code>`}
      <${CopyButton} text=${call.trace_id} what="the trace id" />
    </span>`]
  ]
  return html`<section class="panel drawer" aria-label="Call">
    <header>
      <div class="title">
        <h2>
          <${Outcome} n=${call.outcome} code=${call.status} />
          ${call.error && html`<code class="muted">${call.error}</code>`}
        </h2>
        <div class="id muted">
          <code><${Client} v=${id} /></code><${CopyButton} text=${id} what="the call id" />
        </div>
      </div>
      <a class="btn tiny" href=${link('try', { call: call.id })}>Open in Try</a>
      <button ref=${shut} type="button" class="btn quiet icon" aria-label="Close the call"
        title="Close (Esc)" onClick=${close}><${Icon} n="close" /></button>
    </header>
    <div class="scroll" tabindex="0" role="region" aria-label="Details of the call">
      ${call.outcome !== 'success' && cause?.why && html`
        <div class=${'why ' + (OUTCOME_TONE[call.outcome] ?? 'bad')}>
          <div><${Client} v=${cause.why} /></div><${At} v=${cause.at} />
        </div>
      `}
      <dl class="facts-grid">
        ${facts.map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}
      </dl>
      <${Section} title="Time" note=${
        note(`${ms(call.duration_ms)} in all, ${ms(call.overhead_ms)} added by the proxy`)
      }><${Waterfall} call=${call} /></${Section}>
      <${Section} title="Tokens and cost" note=${note(call.tokens &&
        `counted by ${call.usage_source === 'provider' ? 'the provider' : 'an estimate'}`
      )}><${Cost} call=${call} /></${Section}>
      <${Section} title="Decisions" note=${html`
        ${note(html`revision <code>${call.policy}</code>`)}<span class="spacer"></span>
        <button type="button" class="btn tiny" aria-pressed=${String(!all)}
          onClick=${() => setAll(!all)}>${all ? 'Only what applied' : 'Show all'}</button>
      `}>
        ${decisions.length ? html`<${Tree} list=${decisions} all=${all} />`
          : html`<p class="muted">This call has no explanation.</p>`}
      </${Section}>
      <${Section} title="Guards">
        ${call.guards.length ? html`<table class="mini">
          <thead><tr><th>Guard</th><th>Stage</th><th>Verdict</th><th>Findings</th></tr></thead>
          <tbody>${call.guards.map(g => html`<tr>
            <td>${g.guard}<${Shadow} on=${g.shadow} /></td><td class="muted">${g.stage}</td>
            <td><span class="outcome"><${Glyph} n=${g.verdict} />${word(g.verdict)}</span></td>
            <td>${g.error || findingsText(g.findings) || faint('none')}</td>
          </tr>`)}</tbody>
        </table>` : html`<p class="muted">No guard inspected this call.</p>`}
      </${Section}>
      ${call.warnings.length > 0 && html`<${Section} title="Warnings to the client">
        ${call.warnings.map(w => html`<p><${Client} v=${w} /></p>`)}
      </${Section}>`}
      <${Section} title="Response headers">
        ${headers.length
          ? html`<table class="mini"><tbody>${headers.map(([name, value]) => html`
              <tr><td>${name}</td><td><${Client} v=${value} /></td></tr>
            `)}</tbody></table>`
          : html`<p class="muted">No response head was sent.</p>`}
      </${Section}>
      ${call.captured && html`
        <${Captured} title="Prompt" texts=${call.captured.prompt} />
        <${Captured} title="Response" texts=${call.captured.response} />
      `}
    </div>
  </section>`
}

// Texts that the policy captures, redacted as in the trace.
const Captured = ({ title, texts }) => html`<${Section} title=${title}
  note=${html`<span class="chip">captured by the policy, redacted</span>`}>
  ${texts.length ? texts.map(text => html`<div>
    <p class="small muted"><${Client} v=${text.role} /></p>
    <div class="marked"><${Client} v=${text.text} max=${16000} /></div>
  </div>`) : html`<p class="muted">No text.</p>`}
</${Section}>`

function Cost({ call }) {
  if (!call.tokens) {
    const saved = call.saved_usd == null ? '' : `, ${usd(call.saved_usd)} saved`
    return html`<p class="muted">${call.cache.startsWith('hit')
      ? `From the cache: no tokens used${saved}.`
      : call.usage_source === 'unknown'
        ? 'The upstream reported no usage, so tokens and cost are unknown.'
        : 'No tokens used.'}</p>`
  }
  const isUnknown = call.cost_usd == null
  return html`
    <table class="mini">
      <thead><tr><th>Type</th><th class="num">Tokens</th></tr></thead>
      <tbody>${Object.entries(call.tokens).map(([type, n]) => html`
        <tr><td>${type.replaceAll('_', ' ')}</td><td class="num">${int(n)}</td></tr>
      `)}</tbody>
      <tfoot><tr>
        <td>Cost</td>
        <td class="num">
          ${isUnknown ? html`<span class="t-warn">unknown</span>` : usdExact(call.cost_usd)}
        </td>
      </tr></tfoot>
    </table>
    ${isUnknown && html`<p class="small muted">
      No price covers ${call.upstream}/${call.model}. Set <code>price:</code> at the target.
    </p>`}
    ${call.lost_cost_usd > 0 && html`<p class="small muted">
      ${usd(call.lost_cost_usd)} of it is lost: no client received the whole response.
    </p>`}
  `
}

function Waterfall({ call }) {
  const attempts = call.attempt_list
  const end = Math.max(call.duration_ms, ...attempts.map(a => a.end_ms), 0.001)
  const x = value => Math.max(0, Math.min(100, (value / end) * 100)).toFixed(2) + '%'
  const first = attempts.length ? attempts[0].start_ms : call.duration_ms
  const firstToken = call.stream && call.ttft_ms
  const rows = [
    { name: 'Before the first attempt', start_ms: 0, end_ms: first, cls: 'p-proxy' },
    ...attempts.map(a => ({
      ...a, name: `${a.upstream}/${a.model}`, cls: a.error ? 'p-bad' : 'p-stream'
    }))
  ]
  const bar = (cls, from, to) => html`
    <rect class=${cls} x=${x(from)} width=${x(to - from)} y="5" height="10" />
  `
  return html`<div class="wf">
    ${rows.map(r => {
      const middle = call.stream ? r.first_token_ms : null
      return html`
        <div class="name">
          <span class="cut" title=${r.name}>${r.name}</span>
          ${r.reason && r.reason !== 'first' && faint(r.reason)}
        </div>
        <svg aria-hidden="true">
          <line class="track" x1="0" x2="100%" y1="10.5" y2="10.5" />
          ${middle == null
            ? bar(r.cls, r.start_ms, Math.max(r.end_ms, r.start_ms + end * 0.004))
            : [bar('p-up', r.start_ms, middle), bar('p-stream', middle, r.end_ms)]}
          ${firstToken > 0 && html`
            <line class="first" x1=${x(firstToken)} x2=${x(firstToken)} y1="0" y2="20" />
          `}
        </svg>
        <span class="dur">
          ${r.error && html`<span class="t-bad">${r.status || r.error} </span>`}
          ${ms(r.end_ms - r.start_ms)}
        </span>
      `
    })}
    <span class="name faint">${firstToken > 0 && `first token ${ms(firstToken)}`}</span>
    <svg class="axis" aria-hidden="true">${['start', 'middle', 'end'].map((anchor, k) => html`
      <text x=${k * 50 + '%'} y="11" text-anchor=${anchor}>${k ? ms((end * k) / 2) : '0'}</text>
    `)}</svg>
    <span></span>
  </div>`
}

export const Tree = ({ list, all, cls = 'tree' }) => html`<ul class=${cls}>${list
  .filter(d => all || d.state !== 'not_applied')
  .map(d => html`<${Node} decision=${d} all=${all} />`)}</ul>`
const Node = ({ decision: d, all }) => html`<li>
  <div class=${'n ' + (d.state === 'not_applied' ? 'off' : '')}>
    <span title=${STATE_WORD[d.state] || d.state}>
      <${Glyph} n=${d.state} /><span class="vh">${STATE_WORD[d.state] || d.state}: </span>
    </span>
    <span>
      ${!PARTS.includes(d.about) && html`<span class="about">${d.about} </span>`}
      <span class=${'what ' + (d.state === 'refused' ? 'no' : '')}>
        <${Client} v=${d.decided} />
      </span>
      ${d.why && html`${' '}<span class="reason"><${Client} v=${d.why} max=${512} /></span>`}
    </span>
    <${At} v=${d.at} />
  </div>
  ${d.parts && html`<${Tree} cls="" list=${d.parts} all=${all} />`}
</li>`
