// Decides a request under the active policies and the candidate. Nothing is sent or counted.

import { html, useEffect, useMemo, useState } from './vendor/preact-htm.module.js'
import { go } from './address.js'
import { api, post, useData } from './api.js'
import { hasFinding, requested, timeOf } from './call-fields.js'
import { Tree } from './call.js'
import { clock, findingsText } from './format.js'
import { amount } from './limits.js'
import {
  announce, Client, Failure, faint, Glyph, Meter, Page, Panel, Seg, Select, Table, word
} from './parts.js'

const PATHS = [
  '', '/v1/chat/completions', '/v1/completions', '/v1/responses', '/v1/messages', '/v1/embeddings'
]
// Texts of a request in place of those of a recent call, which are not stored.
const PLACEHOLDERS = {
  chat: { messages: [{ role: 'user', content: 'placeholder' }] },
  embeddings: { input: 'placeholder' },
  completions: { prompt: 'placeholder' },
  responses: { input: 'placeholder' }
}
const indented = body => JSON.stringify(body, null, 2)
const example = model =>
  indented({
    model,
    messages: [
      { role: 'system', content: 'You answer customers of a shop.' },
      {
        role: 'user',
        content:
          'My order 4471 never came. Write to ana.weber@example.com, card 4111 1111 1111 1111.'
      }
    ]
  })

function jsonFault(text) {
  if (!text) return 'Write a request.'
  try {
    JSON.parse(text)
    return null
  } catch (error) {
    const position = /position (\d+)/.exec(error.message)?.[1] ?? text.length
    const lines = text.slice(0, position).split('\n')
    return `Not JSON: line ${lines.length}, column ${lines.at(-1).length + 1}.`
  }
}
const headersOf = text => Object.fromEntries(
  [...text.matchAll(/^([^:\n]+):(.*)$/gm)].map(([, name, value]) => [name.trim(), value.trim()])
)

export function Try({ query }) {
  const { data: policy, error: policyError } = useData('policy', 0)
  const [form, setForm] = useState({ key: '', path: '', at: '', headers: '', text: '' })
  const [recent, setRecent] = useState(null)
  const [isBusy, setIsBusy] = useState(false)
  const [state, setState] = useState({ result: null, error: null, stale: true })
  useEffect(() => {
    api('calls').then(page => setRecent(page.calls), () => setRecent([]))
  }, [])
  useEffect(() => {
    if (!policy || form.key) return
    const key = policy.keys.find(k => !k.rejected) || policy.keys[0]
    const text = example(key?.deployments[0] || 'MODEL')
    setForm(old => ({ ...old, key: key?.name || '', text: old.text || text }))
  }, [policy])
  const taken = query.call && recent && recent.find(c => c.id === query.call)
  useEffect(() => {
    if (!taken) return
    setForm({
      key: taken.key || '',
      path: taken.route || '',
      at: new Date(timeOf(taken)).toISOString().slice(0, 16),
      headers: '',
      text: indented({
        model: requested(taken) || taken.deployment || 'MODEL',
        ...taken.parameters,
        ...(taken.stream && { stream: true }),
        ...(PLACEHOLDERS[taken.endpoint] || PLACEHOLDERS.chat)
      })
    })
    setState(old => ({ ...old, error: null, stale: true }))
  }, [query.call, Boolean(taken)])
  const fault = useMemo(() => jsonFault(form.text), [form.text])
  const set = name => value => {
    setForm(old => ({ ...old, [name]: value }))
    setState(old => ({ ...old, stale: true }))
  }
  const field = name => ({ value: form[name], onInput: e => set(name)(e.target.value) })
  const run = async e => {
    e.preventDefault()
    if (fault || isBusy) return
    const { key, path, at, headers, text } = form
    const request = { key, headers: headersOf(headers), body: JSON.parse(text) }
    if (path) request.path = path
    if (at) request.at = at + ':00Z'
    setIsBusy(true)
    try {
      setState({ result: await post('try', request), error: null, stale: false })
      announce('Decided. Nothing was sent.')
    } catch (error) {
      setState({ result: null, error, stale: false })
    } finally {
      setIsBusy(false)
    }
  }
  if (policyError && !policy) return html`<${Page} title="Try" error=${policyError} />`
  const keys = (policy ? policy.keys : []).map(({ name }) => [name, name])
  const paths = [...new Set([...PATHS, form.path])].map(path => [path, path || 'by the body'])
  const calls = (recent || []).slice(0, 30).map(c =>
    [c.id, `${clock(timeOf(c))} ${c.deployment || 'none'}, ${word(c.outcome)}`])
  return html`
    <${Page} title="Try" facts=${[
      'Nothing is sent to an upstream, and nothing is counted. The request stays in this ' +
      'process. Guards that call a service are not asked.'
    ]}>
      <div class="try" aria-busy=${String(isBusy)}>
        <section class="panel" aria-label="Request">
          <header>
            <h2>Request</h2><span class="spacer"></span>
            <label>
              <span class="vh">Take a recent call</span>
              <${Select} class="soft" value="" options=${[['', 'Take a recent call'], ...calls]}
                onPick=${call => call && go('try', { call })} />
            </label>
          </header>
          <form class="form" onSubmit=${run}>
            <label>Key<${Select} value=${form.key} options=${keys} onPick=${set('key')} /></label>
            <label>Time, UTC<input class="field" type="datetime-local" ...${field('at')} /></label>
            <label class="wide">
              Path<${Select} value=${form.path} options=${paths} onPick=${set('path')} />
            </label>
            <label class="wide">
              Headers, one on a line
              <textarea class="field" rows="2" spellcheck="false" placeholder="x-region: eu-west"
                ...${field('headers')}></textarea>
            </label>
            <label class="wide">
              Body
              <textarea class="field mono" rows="17" spellcheck="false" ...${field('text')}
                aria-invalid=${fault ? 'true' : undefined}
                aria-describedby=${fault ? 'fault' : undefined}
                onKeyDown=${e =>
                  e.key === 'Enter' && (e.ctrlKey || e.metaKey) && run(e)
                }></textarea>
            </label>
            <div class="wide tools">
              <button class="btn primary" type="submit" disabled=${Boolean(fault) || isBusy}>
                ${isBusy ? 'Explaining…' : 'Explain'}
              </button>
              <span class="faint small desk"><kbd>Ctrl</kbd> <kbd>Enter</kbd></span>
              ${fault && html`<span class="error" id="fault">${fault}</span>`}
              ${query.call && recent && html`<p class="small muted">
                ${taken
                  ? `From call ${query.call}. Its text and headers are not stored: the ` +
                    'message is a placeholder, and headers that rules read must be added.'
                  : `Call ${query.call} is not stored any more.`}
              </p>`}
            </div>
          </form>
        </section>
        ${state.error ? html`
          <${Failure} error=${state.error} />
        ` : state.result && !state.stale ? html`<${Result} result=${state.result} />` : html`
          <section class="panel empty" aria-label="No decision">
            <h2>${fault
              ? 'The body is not JSON'
              : state.result
                ? 'The request has changed'
                : 'No request was tried yet'}</h2>
            <p class="muted">${fault || 'Explain it to see how it would be decided.'}</p>
          </section>
        `}
      </div>
    </${Page}>
  `
}

function Result({ result }) {
  const { active, candidate, differences } = result
  const blocked = active.guards && active.guards.blocked
  const outcome = blocked
    ? { decided: `blocked by guard ${blocked.guard}`, why: blocked.message, state: 'refused' }
    : active.decisions.find(d => d.about === 'result')
  return html`<div class="stack">
    <section class="panel" aria-label="Decision">
      <header>
        <h2>Decision</h2><span class="note">revision <code>${active.revision}</code></span>
      </header>
      <div class="body">
        <p class="big"><${Glyph} n=${outcome.state} /> <${Client} v=${outcome.decided} /></p>
        ${outcome.why && html`<p class="muted"><${Client} v=${outcome.why} max=${512} /></p>`}
      </div>
    </section>
    ${candidate ? html`
      <${Panel} title="Candidate" note=${html`<code>${candidate.revision}</code>`} flush>
        ${differences.length ? html`<${Table} rows=${differences} rowClass="diff" columns=${[
          ['Differs in', d => d.kind],
          ['Active', d => html`<${Client} v=${d.before} max=${300} />`, 'muted'],
          ['Candidate', d => html`<b><${Client} v=${d.after} max=${300} /></b>`],
          ['By rule', d => d.rule || faint('no rule')]
        ]} />` : html`<p class="body muted">
          <${Glyph} n="applied" /> The candidate decides this request the same.
        </p>`}
      </${Panel}>
    ` : html`<p class="small faint">
      Serve a candidate folder to see the differences:${' '}
      <code>headrace serve --candidate FOLDER</code>
    </p>`}
    ${active.guards && html`<${Guards} guards=${active.guards} />`}
    <div class="cols claims">
      <${Claims} list=${active.limits} /><${Costs} list=${active.costs} />
    </div>
    <${Panel} title="Decisions"><${Tree}
      list=${blocked ? active.decisions.filter(d => d.about !== 'result') : active.decisions}
      all /></${Panel}>
  </div>`
}

function Guards({ guards }) {
  const [sent, setSent] = useState(false)
  const found = guards.results.filter(hasFinding).length
  return html`<${Panel} title="Guards" note=${`${found} of ${guards.results.length} with a finding`}
    actions=${
      html`<${Seg} label="Text" value=${sent ? 'sent' : 'received'}
        onPick=${v => setSent(v === 'sent')}
        options=${[['received', 'As received'], ['sent', 'As sent upstream']]}
      />`
    }>
    ${guards.results.map(r => html`<p>
      <span class="outcome"><${Glyph} n=${r.verdict} /><b>${r.guard}</b></span>${' '}
      ${word(r.verdict)}${r.shadow ? ', shadow mode' : ''}${' '}
      <span class="muted">${r.error || findingsText(r.findings)}</span>
    </p>`)}
    ${guards.not_asked.length > 0 && html`<p class="small muted">
      Not asked, because they call a service: ${guards.not_asked.join(', ')}.
    </p>`}
    ${guards.opaque.length > 0 && html`
      <p class="small t-warn">No guard can read: ${guards.opaque.join(', ')}.</p>
    `}
    ${guards.texts.map(text => html`<div>
      <p class="small muted"><code><${Client} v=${text.path} /></code></p>
      <div class="marked">${sent ? html`<${Client} v=${text.sent} max=${20000} />` : (
        text.parts.map(part =>
          part.guard ? html`<mark>
            <${Client} v=${part.text} max=${2000} /><span class="tag">${part.kind}</span>
          </mark>` : html`<${Client} v=${part.text} max=${20000} />`
        )
      )}</div>
    </div>`)}
  </${Panel}>`
}

function Claims({ list }) {
  const remaining = limit =>
    limit.used == null ? null : Math.max(0, limit.capacity - limit.used)
  const fits = limit => limit.used == null || remaining(limit) >= limit.claim
  return html`
    <${Panel} title="Limits it would claim" flush>
      <${Table} rows=${list} empty="No limit applies." columns=${[
        ['Limit', l => html`${l.name}<span class="sub">${l.scope}</span>`],
        ['Claim', l => amount(l, l.claim), 'num'],
        ['Left', l => html`
          <span class="outcome">
            <${Glyph} n=${fits(l) ? 'applied' : 'refused'} />${amount(l, remaining(l))}
          </span>
          <span class="sub">of ${amount(l, l.capacity)}</span>
        `, 'num']
      ]} />
    </${Panel}>
  `
}

function Costs({ list }) {
  const most = Math.max(0, ...list.map(c => c.max_usd || 0))
  return html`
    <${Panel} title="Cost at each target" note="in the order in which they are tried" flush>
      <${Table} rows=${list} empty="No target would get the request." columns=${[
        ['Target', c => c.target, 'nowrap'],
        ['At most, $', c => html`
          ${c.max_usd == null ? 'unknown' : c.max_usd.toFixed(9)}
          <${Meter} slim share=${most ? (c.max_usd || 0) / most : 0} tone="c-accent" />
        `, 'num']
      ]} />
    </${Panel}>
  `
}
