// Decides a request under the active policies and the candidate. Nothing is sent or counted.

import { html, useEffect, useMemo, useState } from './vendor/preact-htm.module.js'
import { go } from './address.js'
import { api, post, useData } from './api.js'
import { hasFinding, requested, timeOf } from './call-fields.js'
import { Tree } from './call.js'
import { clock, fixed, int, usd } from './format.js'
import { announce, At, Client, Failure, Glyph, Meter, Panel, Seg, Table, word } from './parts.js'

const NANO = 1e9
const PATHS = [
  '',
  '/v1/chat/completions',
  '/v1/completions',
  '/v1/responses',
  '/v1/messages',
  '/v1/embeddings'
]
// Texts of a request in place of those of a recent call, which are not stored.
const PLACEHOLDERS = {
  chat: { messages: [{ role: 'user', content: 'placeholder' }] },
  embeddings: { input: 'placeholder' },
  completions: { prompt: 'placeholder' },
  responses: { input: 'placeholder' }
}
const example = model =>
  JSON.stringify(
    {
      model,
      messages: [
        { role: 'system', content: 'You answer customers of a shop.' },
        {
          role: 'user',
          content:
            'My order 4471 never came. Write to ana.weber@example.com, card 4111 1111 1111 1111.'
        }
      ]
    },
    null,
    2
  )

function jsonFault(text) {
  try {
    JSON.parse(text)
    return null
  } catch (error) {
    const match = /position (\d+)/.exec(error.message)
    const lines = text.slice(0, match ? +match[1] : text.length).split('\n')
    return `Not JSON: line ${lines.length}, column ${lines[lines.length - 1].length + 1}.`
  }
}
const headersOf = text =>
  Object.fromEntries(
    text
      .split('\n')
      .filter(line => line.includes(':'))
      .map(line => [
        line.slice(0, line.indexOf(':')).trim(),
        line.slice(line.indexOf(':') + 1).trim()
      ])
  )

export function Try({ query }) {
  const { data: policy, error: policyError } = useData('policy', 0)
  const [form, setForm] = useState({ key: '', path: '', at: '', headers: '', text: '' })
  const [recent, setRecent] = useState(null)
  const [isBusy, setIsBusy] = useState(false)
  const [state, setState] = useState({ result: null, error: null, stale: true })
  useEffect(() => {
    api('calls').then(
      page => setRecent(page.calls),
      () => setRecent([])
    )
  }, [])
  useEffect(() => {
    if (!policy || form.key) return
    const key = policy.keys.find(k => !k.rejected) || policy.keys[0]
    setForm(old => ({
      ...old,
      key: key ? key.name : '',
      text: old.text || example(key && key.deployments.length ? key.deployments[0] : 'MODEL')
    }))
  }, [policy])
  const taken = query.call && recent && recent.find(c => c.id === query.call)
  useEffect(() => {
    if (!taken) return
    const model = requested(taken) || taken.deployment || 'MODEL'
    const stream = taken.stream ? { stream: true } : {}
    const body = {
      model,
      ...taken.parameters,
      ...stream,
      ...(PLACEHOLDERS[taken.endpoint] || PLACEHOLDERS.chat)
    }
    setForm({
      key: taken.key || '',
      path: taken.route || '',
      at: new Date(timeOf(taken)).toISOString().slice(0, 16),
      headers: '',
      text: JSON.stringify(body, null, 2)
    })
    setState(old => ({ ...old, error: null, stale: true }))
  }, [query.call, Boolean(taken)])
  const fault = useMemo(
    () => (form.text ? jsonFault(form.text) : 'Write a request.'),
    [form.text]
  )
  const change = name => e => {
    setForm(old => ({ ...old, [name]: e.target.value }))
    setState(old => ({ ...old, stale: true }))
  }
  const run = async () => {
    if (fault || isBusy) return
    const request = {
      key: form.key,
      headers: headersOf(form.headers),
      body: JSON.parse(form.text)
    }
    if (form.path) request.path = form.path
    if (form.at) request.at = form.at + ':00Z'
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
  if (policyError && !policy)
    return html`<main id="main" class="page">
      <div class="head"><h1>Try</h1></div><${Failure} error=${policyError} />
    </main>`
  const keys = policy ? policy.keys : []
  return html`
    <main id="main" class="page">
      <div class="head">
        <h1>Try</h1>
        <div class="facts"><span>
          Nothing is sent to an upstream, and nothing is counted. The request stays in this
          process. Guards that call a service are not asked.
        </span></div>
      </div>
      <div class="try" aria-busy=${String(isBusy)}>
        <section class="panel" aria-label="Request">
          <header>
            <h2>Request</h2><span class="spacer"></span>
            <label>
              <span class="vh">Take a recent call</span>
              <select class="soft" value=""
                onChange=${e => e.target.value && go('try', { call: e.target.value })}>
                <option value="">Take a recent call</option>
                ${(recent || []).slice(0, 30).map(c => html`<option value=${c.id}>
                  ${clock(timeOf(c))} ${c.deployment || 'none'}, ${word(c.outcome)}
                </option>`)}
              </select>
            </label>
          </header>
          <form class="form"
            onSubmit=${e => {
              e.preventDefault()
              run()
            }}>
            <label>
              Key
              <select value=${form.key} onChange=${change('key')}>${keys.map(k => html`
                <option value=${k.name} selected=${form.key === k.name}>${k.name}</option>
              `)}</select>
            </label>
            <label>
              Time, UTC
              <input class="field" type="datetime-local" value=${form.at} onInput=${change('at')} />
            </label>
            <label class="wide">
              Path
              <select value=${form.path} onChange=${change('path')}>
                ${[...new Set([...PATHS, form.path])].map(path => html`
                  <option value=${path} selected=${form.path === path}>
                    ${path || 'by the body'}
                  </option>
                `)}
              </select>
            </label>
            <label class="wide">
              Headers, one on a line
              <textarea class="field" rows="2" spellcheck="false" placeholder="x-region: eu-west"
                value=${form.headers} onInput=${change('headers')}></textarea>
            </label>
            <label class="wide">
              Body
              <textarea class="field mono" rows="17" spellcheck="false" value=${form.text}
                aria-invalid=${fault ? 'true' : undefined}
                aria-describedby=${fault ? 'fault' : undefined} onInput=${change('text')}
                onKeyDown=${e => {
                  if (e.key === 'Enter' && (e.ctrlKey || e.metaKey)) {
                    e.preventDefault()
                    run()
                  }
                }}></textarea>
            </label>
            <div class="wide tools">
              <button class="btn primary" type="submit" disabled=${Boolean(fault) || isBusy}>
                ${isBusy ? 'Explaining…' : 'Explain'}
              </button>
              <span class="faint small desk"><kbd>Ctrl</kbd> <kbd>Enter</kbd></span>
              ${fault ? html`<span class="error" id="fault">${fault}</span>` : null}
              ${query.call ? html`
                <p class="small muted">
                  ${taken
                    ? `From call ${query.call}. Its text and headers are not stored: the ` +
                      'message is a placeholder, and headers that rules read must be added.'
                    : recent
                      ? `Call ${query.call} is not stored any more.`
                      : ''}
                </p>
              ` : null}
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
    </main>
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
        ${outcome.why ? html`<p class="muted"><${Client} v=${outcome.why} max=${512} /></p>` : null}
      </div>
    </section>
    ${candidate ? html`
      <${Panel} title="Candidate" note=${html`<code>${candidate.revision}</code>`} flush>
        ${differences.length ? html`<${Table} rows=${differences} rowClass="diff" columns=${[
          ['Differs in', d => d.kind],
          ['Active', d => html`<${Client} v=${d.before} max=${300} />`, 'muted'],
          ['Candidate', d => html`<b><${Client} v=${d.after} max=${300} /></b>`],
          ['By rule', d => d.rule || html`<span class="faint">no rule</span>`]
        ]} />` : html`<p class="body muted">
          <${Glyph} n="applied" /> The candidate decides this request the same.
        </p>`}
      </${Panel}>
    ` : html`<p class="small faint">
      Serve a candidate folder to see the differences:${' '}
      <code>headrace serve --candidate FOLDER</code>
    </p>`}
    ${active.guards ? html`<${Guards} guards=${active.guards} />` : null}
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
      <span class="muted">
        ${r.error || Object.entries(r.findings).map(([kind, n]) => `${n} ${kind}`).join(', ')}
      </span>
    </p>`)}
    ${guards.not_asked.length ? html`<p class="small muted">
      Not asked, because they call a service: ${guards.not_asked.join(', ')}.
    </p>` : null}
    ${guards.opaque.length
      ? html`<p class="small t-warn">No guard can read: ${guards.opaque.join(', ')}.</p>`
      : null}
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
  const amount = (limit, value) =>
    value == null ? 'unknown' : limit.kind === 'usd' ? usd(value / NANO) : int(value)
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
  const price = value => (value == null ? 'unknown' : fixed(value, 3))
  return html`
    <${Panel} title="Cost at each target" note="in the order in which they are tried" flush>
      <${Table} rows=${list} empty="No target would get the request." columns=${[
        ['Target', c => c.target, 'nowrap'],
        ['In, $/M', c => price(c.input), 'num'],
        ['Out, $/M', c => price(c.output), 'num'],
        ['At most, $', c => html`
          ${c.max_usd == null ? 'unknown' : c.max_usd.toFixed(9)}
          <${Meter} slim share=${most ? (c.max_usd || 0) / most : 0} tone="c-accent" />
        `, 'num']
      ]} />
    </${Panel}>
  `
}
