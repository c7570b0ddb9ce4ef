// The details of one call: waterfall, tokens and cost, decisions, guards.

import { html, useEffect, useRef, useState } from './vendor/preact-htm.module.js'
import { link } from './address.js'
import { Refused, useData } from './api.js'
import { requested, tagsOf, timeOf } from './call-fields.js'
import { clock, date, int, ms, usd } from './format.js'
import { At, Client, CopyButton, Glyph, Icon, Outcome, Skeleton, Time, word } from './parts.js'

const STATE_WORD = {
  applied: 'applied',
  not_applied: 'did not apply',
  shadow: 'in shadow',
  refused: 'refused'
}
const PARTS = ['rule', 'tag', 'target', 'parameter', 'limit', 'guard', 'attempt', 'call']
const OUTCOME_TONE = {
  limited: 'warn',
  client_error: '',
  client_abort: '',
  blocked: 'block',
  success: ''
}

export function CallDetails({ id, close }) {
  const { data: call, error } = useData(`calls/${encodeURIComponent(id)}`, 0)
  if (!call && error)
    return html`<section class="panel drawer" aria-label="Call"><div class="empty">
      <h2>
        ${error instanceof Refused ? 'This call is not stored' : 'This call cannot be loaded'}
      </h2>
      <p class="muted">
        ${error.message}
        ${error instanceof Refused ? ' A ledger may have its row, without the explanation.' : ''}
      </p>
      <button type="button" class="btn" onClick=${close}>Close</button>
    </div></section>`
  if (!call)
    return html`<section class="panel drawer" aria-label="Call" aria-busy="true">
      <${Skeleton} rows=${12} />
    </section>`
  return html`<${Drawer} key=${id} call=${call} close=${close} />`
}

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
  const outcome = decisions.find(d => d.about === 'outcome')
  const cause = decisions.find(d => d.about === 'result' && d.state === 'refused') || outcome
  const tone = OUTCOME_TONE[call.outcome] ?? 'bad'
  return html`<section class="panel drawer" aria-label="Call">
    <header>
      <div class="title">
        <h2>
          <${Outcome} n=${call.outcome} code=${call.status} />
          ${call.error ? html`<code class="muted">${call.error}</code>` : null}
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
      ${call.outcome !== 'success' && cause && cause.why ? html`<div class=${'why ' + tone}>
        <div><${Client} v=${cause.why} /></div><${At} v=${cause.at} />
      </div>` : null}
      <dl class="facts-grid">
        <dt>Time</dt>
        <dd><${Time} t=${time}
          show=${`${date(time)}, ${clock(time)}.${String(time % 1000).padStart(3, '0')}`} /></dd>
        <dt>Deployment</dt>
        <dd>${call.deployment ? html`
          <a href=${link('policy', { at: 'deployment.' + call.deployment })}>${call.deployment}</a>
        ` : html`<span class="faint">none</span>`}</dd>
        <dt>Key</dt>
        <dd>${call.key
          ? html`<a href=${link('policy', { at: 'key.' + call.key })}>${call.key}</a>`
          : html`<span class="faint">no valid key</span>`}</dd>
        <dt>Requested</dt><dd><${Client} v=${requested(call) || '–'} /></dd><dt>Tags</dt>
        <dd><${Client} v=${tagsOf(call).join(' ') || '–'} /></dd>
        <dt>Served by</dt>
        <dd>${call.upstream
          ? `${call.upstream}/${call.model}`
          : call.cache.startsWith('hit') ? 'cache' : html`<span class="faint">nobody</span>`}</dd>
        <dt>Request</dt>
        <dd>${call.dialect}, ${call.endpoint}, ${call.stream ? 'streamed' : 'whole'}</dd>
        <dt>Trace</dt>
        <dd class="cut">
          ${call.trace_url ? html`<a href=${call.trace_url} target="_blank" rel="noreferrer">
            ${call.trace_id.slice(0, 12)}…
          </a>` : html`<code>${call.trace_id.slice(0, 12)}…</code>`}
          <${CopyButton} text=${call.trace_id} what="the trace id" />
        </dd>
      </dl>
      <section class="sec">
        <h3>
          Time${' '}
          <span class="note">
            ${ms(call.duration_ms)} in all, ${ms(call.overhead_ms)} added by the proxy
          </span>
        </h3>
        <${Waterfall} call=${call} />
      </section>
      <section class="sec">
        <h3>
          Tokens and cost${' '}
          <span class="note">${call.tokens
            ? `counted by ${call.usage_source === 'provider' ? 'the provider' : 'an estimate'}`
            : ''}</span>
        </h3>
        <${Cost} call=${call} />
      </section>
      <section class="sec">
        <h3>
          Decisions${' '}<span class="note">revision <code>${call.policy}</code></span>
          <span class="spacer"></span>
          <button type="button" class="btn tiny" aria-pressed=${String(!all)}
            onClick=${() => setAll(!all)}>${all ? 'Only what applied' : 'Show all'}</button>
        </h3>
        ${decisions.length ? html`<${Tree} list=${decisions} all=${all} />`
          : html`<p class="muted">This call has no explanation.</p>`}
      </section>
      <section class="sec">
        <h3>Guards</h3>
        ${call.guards.length ? html`<table class="mini">
          <thead><tr><th>Guard</th><th>Stage</th><th>Verdict</th><th>Findings</th></tr></thead>
          <tbody>${call.guards.map(g => html`<tr>
            <td>
              ${g.guard}${g.shadow ? html`${' '}<span class="chip shadow">shadow</span>` : null}
            </td>
            <td class="muted">${g.stage}</td>
            <td><span class="outcome"><${Glyph} n=${g.verdict} />${word(g.verdict)}</span></td>
            <td>${g.error ||
              Object.entries(g.findings)
                .map(([kind, n]) => `${n} ${kind}`)
                .join(', ') || html`<span class="faint">none</span>`}</td>
          </tr>`)}</tbody>
        </table>` : html`<p class="muted">No guard inspected this call.</p>`}
      </section>
      ${call.warnings.length ? html`<section class="sec">
        <h3>Warnings to the client</h3>${call.warnings.map(w => html`<p><${Client} v=${w} /></p>`)}
      </section>` : null}
      <section class="sec">
        <h3>Response headers</h3>
        ${headers.length
          ? html`<table class="mini"><tbody>${headers.map(([name, value]) => html`
              <tr><td>${name}</td><td><${Client} v=${value} /></td></tr>
            `)}</tbody></table>`
          : html`<p class="muted">No response head was sent.</p>`}
      </section>
      ${call.captured ? html`
        <${Captured} title="Prompt" texts=${call.captured.prompt} />
        <${Captured} title="Response" texts=${call.captured.response} />
      ` : null}
    </div>
  </section>`
}

// Texts that the policy captures, redacted as in the trace.
const Captured = ({ title, texts }) => html`<section class="sec">
  <h3>${title}${' '}<span class="chip">captured by the policy, redacted</span></h3>
  ${texts.length ? texts.map(text => html`<div>
    <p class="small muted"><${Client} v=${text.role} /></p>
    <div class="marked"><${Client} v=${text.text} max=${16000} /></div>
  </div>`) : html`<p class="muted">No text.</p>`}
</section>`

function Cost({ call }) {
  if (!call.tokens) {
    const saved = call.saved_usd == null ? '' : `, ${usd(call.saved_usd)} saved`
    return html`<p class="muted">${call.cache.startsWith('hit')
      ? `From the cache: no tokens used${saved}.`
      : call.usage_source === 'unknown'
        ? 'The upstream reported no usage, so tokens and cost are unknown.'
        : 'No tokens used.'}</p>`
  }
  const entries = Object.entries(call.tokens)
  return html`
    <table class="mini">
      <thead><tr><th>Type</th><th class="num">Tokens</th></tr></thead>
      <tbody>${entries.map(([type, n]) => html`
        <tr><td>${type.replaceAll('_', ' ')}</td><td class="num">${int(n)}</td></tr>
      `)}</tbody>
      <tfoot><tr>
        <td>Cost</td>
        <td class="num">${call.cost_usd == null ? html`<span class="t-warn">unknown</span>` : (
          '$' + call.cost_usd.toFixed(9)
        )}</td>
      </tr></tfoot>
    </table>
    ${call.cost_usd == null ? html`<p class="small muted">
      No price covers ${call.upstream}/${call.model}. Set <code>price:</code> at the target.
    </p>` : null}
    ${call.lost_cost_usd ? html`<p class="small muted">
      ${usd(call.lost_cost_usd)} of it is lost: no client received the whole response.
    </p>` : null}
  `
}

function Waterfall({ call }) {
  const attempts = call.attempt_list
  const end = Math.max(call.duration_ms, ...attempts.map(a => a.end_ms), 0.001)
  const x = value => Math.max(0, Math.min(100, (value / end) * 100)).toFixed(2) + '%'
  const first = attempts.length ? attempts[0].start_ms : call.duration_ms
  const rows = [
    { name: 'Before the first attempt', start: 0, end: first, cls: 'p-proxy' },
    ...attempts.map(a => ({
      name: `${a.upstream}/${a.model}`,
      reason: a.reason,
      start: a.start_ms,
      end: a.end_ms,
      mid: call.stream ? a.first_token_ms : null,
      cls: a.error ? 'p-bad' : 'p-stream',
      status: a.status || a.error
    }))
  ]
  const ticks = [0, 0.5, 1]
  return html`<div class="wf">
    ${rows.map(r => html`
      <div class="name">
        <span class="cut" title=${r.name}>${r.name}</span>
        ${r.reason && r.reason !== 'first' ? html`<span class="faint">${r.reason}</span>` : null}
      </div>
      <svg aria-hidden="true">
        <line class="track" x1="0" x2="100%" y1="10.5" y2="10.5" />
        ${r.mid != null ? html`
          <rect class="p-up" x=${x(r.start)} width=${x(r.mid - r.start)} y="5" height="10" />
          <rect class="p-stream" x=${x(r.mid)} width=${x(r.end - r.mid)} y="5" height="10" />
        ` : html`
          <rect class=${r.cls} x=${x(r.start)} width=${x(Math.max(r.end - r.start, end * 0.004))}
            y="5" height="10" />
        `}
        ${call.ttft_ms != null && call.stream ? html`
          <line class="first" x1=${x(call.ttft_ms)} x2=${x(call.ttft_ms)} y1="0" y2="20" />
        ` : null}
      </svg>
      <span class="dur">
        ${r.cls === 'p-bad' ? html`<span class="t-bad">${r.status}</span>` : null}
        ${ms(r.end - r.start)}
      </span>
    `)}
    <span class="name faint">
      ${call.ttft_ms != null && call.stream ? `first token ${ms(call.ttft_ms)}` : null}
    </span>
    <svg class="axis" aria-hidden="true">${ticks.map((f, k) => html`
      <text x=${f * 100 + '%'} y="11" text-anchor=${['start', 'middle', 'end'][k]}>
        ${f ? ms(end * f) : '0'}
      </text>
    `)}</svg>
    <span></span>
  </div>`
}

export const Tree = ({ list, all }) => html`<ul class="tree">${list
  .filter(d => all || d.state !== 'not_applied')
  .map(d => html`<${Node} decision=${d} all=${all} />`)}</ul>`
function Node({ decision: d, all }) {
  const parts = (d.parts || []).filter(part => all || part.state !== 'not_applied')
  return html`<li>
    <div class=${'n ' + (d.state === 'not_applied' ? 'off' : '')}>
      <span title=${STATE_WORD[d.state]}>
        <${Glyph} n=${d.state} /><span class="vh">${STATE_WORD[d.state]}: </span>
      </span>
      <span>
        ${PARTS.includes(d.about) ? null : html`<span class="about">${d.about} </span>`}
        <span class=${'what ' + (d.state === 'refused' ? 'no' : '')}>
          <${Client} v=${d.decided} />
        </span>
        ${d.why
          ? html`${' '}<span class="reason"><${Client} v=${d.why} max=${512} /></span>`
          : null}
      </span>
      <${At} v=${d.at} />
    </div>
    ${parts.length
      ? html`<ul>${parts.map(part => html`<${Node} decision=${part} all=${all} />`)}</ul>`
      : null}
  </li>`
}
