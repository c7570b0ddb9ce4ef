// The active policies, with the use of each part in the last hour, and the candidate.

import { html, useEffect } from './vendor/preact-htm.module.js'
import { link } from './address.js'
import { useData } from './api.js'
import { int, span, tagsText, utc } from './format.js'
import { Limits, Problems } from './limits.js'
import {
  At, Client, Code, faint, Glyph, Meter, Page, Panel, Shadow, Skeleton, Table, Time
} from './parts.js'

const DAY_MS = 86400000
const Applied = ({ n, of }) => html`<span class="share">
  <${Meter} slim share=${of ? n / of : 0} tone="c-accent" /><span>${int(n)}</span>
</span>`

export function Policy({ query, live }) {
  const { data: p, error } = useData('policy', 10000, live)
  const at = query.at || 'revision'
  const [kind, name] = at.split('.')
  const current = name ? kind + 's' : kind
  useEffect(() => {
    const part = document.getElementById(at) || document.getElementById(current)
    if (part && query.at) part.scrollIntoView({ block: part.tagName === 'TR' ? 'center' : 'start' })
  }, [at, Boolean(p)])
  const facts = ['Read-only: edit the files, and the folder is read again within 2 s.']
  if (!p)
    return html`<${Page} title="Policy" facts=${facts} error=${error} busy>
      <section class="panel"><${Skeleton} rows=${4} /></section>
      <section class="panel"><${Skeleton} rows=${9} /></section>
    </${Page}>`
  const { deployments, rules, guards, limits, keys, tags, warnings } = p
  const lists = { deployments, rules, guards, limits, keys, tags, warnings }
  lists.candidate = p.candidate?.changes
  const contents = ['revision', ...Object.keys(lists)]
  return html`<${Page} title="Policy" facts=${facts}>
    <div class="policy">
      <nav class="toc" aria-label="Sections of the policy">
        ${contents.map(id => html`<a href=${link('policy', { at: id })}
          aria-current=${current === id ? 'true' : undefined}>
          ${id[0].toUpperCase() + id.slice(1)}<span class="n">${lists[id]?.length}</span>
        </a>`)}
      </nav>
      <div class="stack">
        <${Revision} p=${p} /><${Deployments} p=${p} at=${at} />
        <${Rules} p=${p} at=${at} /><${Guards} p=${p} />
        <${Panel} id="limits" title="Limits and budgets"
          note="one bar for each owner; the tick is warn_at">
          <${Limits} list=${limits} where columns=${2} />
        </${Panel}>
        <${Keys} p=${p} at=${at} /><${Tags} p=${p} at=${at} />
        <${Panel} id="warnings" title="Warnings of headrace check"
          note="they do not stop a reload">${warnings == null ? html`<p class="muted">
          The files differ from the active revision. Run <code>headrace check</code>.
        </p>` : warnings.length ? html`<${Problems} list=${warnings} warnings />`
          : html`<p class="muted"><${Glyph} n="applied" /> None.</p>`}</${Panel}>
        <${Candidate} p=${p} />
      </div>
    </div>
  </${Page}>`
}

const Rejection = ({ of, children }) => html`
  <p class="t-bad">
    <${Glyph} n="failed" /> rejected at <${Time} t=${of.at} />${children}
  </p>
  <${Problems} list=${of.problems} />
`
const Revision = ({ p: { candidate, ...p } }) => html`
  <section class="panel" id="revision" aria-label="Revision"><div class="revs">
    <div>
      <h2>Active</h2><p class="big mono">${p.revision}</p>
      <p class="muted">since <${Time} t=${p.since} />, ${span(p.now - p.since)}</p>
      <p class="small faint">in <code>${p.folder}</code></p>
    </div>
    <div>
      <h2>Candidate</h2>
      ${candidate ? html`
        <p class="big mono">${candidate.revision}</p>
        <p class="small faint">in <code>${candidate.folder}</code></p>
        ${candidate.rejected && html`<${Rejection} of=${candidate.rejected} />`}
      ` : html`
        <p class="big">None</p>
        <p class="small muted">
          To decide each call under a second folder, without effect:${' '}
          <code>headrace serve --candidate FOLDER</code>
        </p>
      `}
    </div>
    <div>
      <h2>Last reload</h2>
      ${p.rejected
        ? html`<${Rejection} of=${p.rejected}>; the active revision stays</${Rejection}>`
        : html`<p class="muted"><${Glyph} n="applied" /> not rejected</p>`}
    </div>
  </div></section>
`

const FILE = ['File', part => html`<${At} v=${part.source} />`, 'w-file']

const Deployments = ({ p, at }) => html`
  <${Panel} id="deployments" title="Deployments" note="calls in the last hour" flush>
    <${Table} rows=${p.deployments} id=${x => 'deployment.' + x.name} marked=${at} columns=${[
      ['Deployment', x => html`<b>${x.name}</b><span class="sub">${x.description}</span>`],
      ['Policy', x => x.policy
        ? html`<a href=${link('policy', { at: 'rules' })}>${x.policy}</a>`
        : faint('none')],
      ['Targets, in order', x => x.targets.map(t => html`<span class="nowrap">
        <span class="muted">${t.upstream}/</span>${t.model}
        ${t.weight != null && faint(` weight ${t.weight}`)}
        ${t.role === 'fallback' && faint(' fallback')}
      </span>`), 'lines'],
      ['Calls', x => html`<a href=${link('calls', { deployment: x.name })}>${int(x.calls)}</a>`,
        'num'],
      ['Keys', x => html`
        ${x.keys.slice(0, 20).map(k => html`
          <span><a href=${link('policy', { at: 'key.' + k })}>${k}</a></span>
        `)}
        ${x.keys.length > 20 && faint(`${x.keys.length - 20} more`)}
      `, 'lines'],
      ['Tags', x => tagsText(x.tags).map(t => html`<span class="nowrap">${t}</span>`),
        'muted lines'],
      FILE
    ]} />
  </${Panel}>
`

function Rules({ p, at }) {
  const most = Math.max(0, ...p.rules.map(r => r.applied))
  return html`
    <${Panel} id="rules" title="Rules" note="in their order; applied in the last hour" flush>
      <${Table} rows=${p.rules} empty="No policy of a deployment has rules."
        id=${r => 'rule.' + r.name} marked=${at} columns=${[
          ['Rule', r => html`${r.name}<${Shadow} on=${r.mode === 'shadow'} />`],
          ['When', r => r.when || faint('see the file'), 'muted'],
          ['Effect', r => html`<${Client} v=${r.effect} max=${500} />`],
          ['Applied', r => html`<${Applied} n=${r.applied} of=${most} />`, 'num'],
          FILE
        ]} />
    </${Panel}>
  `
}

const Guards = ({ p }) => html`
  <${Panel} id="guards" title="Guards" note="verdicts in the last hour" flush>
    <${Table} rows=${p.guards} empty="No policy of a deployment has guards."
      columns=${[
        ['Guard', g => html`
          <span class="muted">${g.policy}/</span>${g.name}<${Shadow} on=${g.mode === 'shadow'} />
        `],
        ['Stage', g => g.stage, 'muted'],
        ['Action', g => g.action],
        ['Inspected', g => int(g.inspected), 'num'],
        ['Found', g => int(g.found), 'num'],
        FILE
      ]} />
  </${Panel}>
`

const Keys = ({ p, at }) => html`
  <${Panel} id="keys" title="Keys" note="names only; the files hold digests" flush>
    <${Table} rows=${p.keys} empty="There are no keys, so every call is refused."
      id=${k => 'key.' + k.name} marked=${at} columns=${[
        ['Key', k => html`
          <a href=${link('calls', { key: k.name })}><b>${k.name}</b></a>
          ${k.rejected && html`${' '}<span class="chip">${k.rejected}</span>`}
        `],
        ['Deployments', k => k.deployments.map((x, n) => html`
          ${n ? ', ' : ''}<a href=${link('policy', { at: 'deployment.' + x })}>${x}</a>
        `)],
        ['Tags', k => tagsText(k.tags).join(' '), 'muted'],
        ['Last used', k => k.last_used
          ? html`<span title=${utc(k.last_used)}>${span(p.now - k.last_used)} ago</span>`
          : faint('not since the start')],
        ['Expires', k => k.expires
          ? html`<span class=${k.expires - p.now < 7 * DAY_MS ? 't-warn' : ''}
              title=${utc(k.expires)}>
              ${k.expires < p.now ? 'expired' : 'in ' + span(k.expires - p.now)}
            </span>`
          : faint('never')],
        FILE
      ]} />
  </${Panel}>
`

const Tags = ({ p, at }) => html`<${Panel} id="tags" title="Tags" flush>
  <${Table} rows=${p.tags} empty="The policies declare no tags." id=${t => 'tag.' + t.name}
    marked=${at} columns=${[
      ['Tag', t => html`<b>${t.name}</b>`],
      ['Values', t => t.values.join(', ') || 'a pattern', 'muted'],
      ['Set by clients', t => (t.by_clients ? 'yes' : 'no')],
      FILE
    ]} />
</${Panel}>`

function Candidate({ p }) {
  const c = p.candidate
  if (!c)
    return html`<${Panel} id="candidate" title="Candidate" flush><div class="empty">
      <h2>No candidate is served</h2>
      <p class="muted">
        A candidate is a second folder. It decides every call after the call has ended, and
        changes nothing. Differences appear here, with the calls that show them.
      </p>
      <${Code} text="headrace serve --policies policies/ --candidate policies-next/"
        what="the command" />
    </div></${Panel}>`
  return html`<${Panel} id="candidate" title="Candidate"
    note=${html`<code>${c.revision}</code> against <code>${p.revision}</code>`} flush>
    <p class="body">
      ${int(c.same)} calls are decided the same since the start.
      ${c.changes.length ? '' : ' None is decided differently.'}
    </p>
    ${c.changes.length ? html`<${Table} rows=${c.changes} columns=${[
      ['Differs in', d => d.about],
      ['Calls', d => d.decided],
      ['By rule', d => d.why || faint('no rule')],
      ['Examples, the latest first', d => (d.parts || []).map(e => html`<span>
        <a class="mono" href=${link('calls', { q: e.decided })}>
          <${Client} v=${e.decided} max=${32} />
        </a>${' '}
        <span class="muted"><${Client} v=${e.why || ''} /></span>
      </span>`), 'lines']
    ]} />` : null}
  </${Panel}>`
}
