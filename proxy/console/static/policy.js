// The active policies, with the use of each part in the last hour, and the candidate.

import { html, useEffect } from './vendor/preact-htm.module.js'
import { link } from './address.js'
import { useData } from './api.js'
import { int, span, utc } from './format.js'
import { Limits, Problems } from './limits.js'
import { At, Client, Code, Failure, Glyph, Meter, Panel, Skeleton, Time } from './parts.js'

const SECTION_OF = { deployment: 'deployments', rule: 'rules', guard: 'guards', key: 'keys', tag: 'tags' }
const tagsText = tags => Object.entries(tags).map(([tag, value]) => `${tag}=${value}`)
const Shadow = ({ mode }) => mode === 'shadow' ? html` <span class="chip shadow">shadow</span>` : null
const Applied = ({ n, of }) => html`<span class="share"><${Meter} slim share=${of ? n / of : 0} tone="c-accent" /><span>${int(n)}</span></span>`

export function Policy ({ query, live }) {
  const { data: p, error } = useData('policy', 10000, live)
  const at = query.at || ''
  const section = at.split('.')[0]
  const current = SECTION_OF[section] || section || 'revision'
  useEffect(() => {
    const part = at && (document.getElementById(at) || document.getElementById(current))
    if (part) part.scrollIntoView({ block: part.tagName === 'TR' ? 'center' : 'start' })
  }, [at, Boolean(p)])
  const head = html`<div class="head"><h1>Policy</h1><div class="facts"><span>Read-only: edit the files, and the folder is read again within 2 s.</span></div></div>`
  if (!p) return html`<main id="main" class="page" aria-busy=${error ? undefined : 'true'}>${head}${error ? html`<${Failure} error=${error} />` : html`<section class="panel"><${Skeleton} rows=${4} /></section><section class="panel"><${Skeleton} rows=${9} /></section>`}</main>`
  const contents = [['revision', 'Revision', ''], ['deployments', 'Deployments', p.deployments.length], ['rules', 'Rules', p.rules.length], ['guards', 'Guards', p.guards ? p.guards.length : ''], ['limits', 'Limits', p.limits ? p.limits.length : ''], ['keys', 'Keys', p.keys.length], ['tags', 'Tags', p.tags.length], ['warnings', 'Warnings', p.warnings ? p.warnings.length : ''], ['candidate', 'Candidate', p.candidate ? p.candidate.changes.length : '']]
  const marked = id => at === id ? 'hl' : ''
  return html`<main id="main" class="page">${head}
    <div class="policy"><nav class="toc" aria-label="Sections of the policy">${contents.map(([id, text, n]) => html`<a href=${link('policy', { at: id })} aria-current=${current === id ? 'true' : undefined}>${text}<span class="n">${n}</span></a>`)}</nav>
    <div class="stack">
      <${Revision} p=${p} /><${Deployments} p=${p} marked=${marked} /><${Rules} p=${p} marked=${marked} /><${Guards} p=${p} />
      <${Panel} id="limits" title="Limits and budgets" note="one bar for each owner; the tick is warn_at"><${Limits} list=${p.limits} where columns=${2} /></>
      <${Keys} p=${p} marked=${marked} /><${Tags} p=${p} />
      <${Panel} id="warnings" title="Warnings of headrace check" note="they do not stop a reload">${p.warnings == null ? html`<p class="muted">The files differ from the active revision. Run <code>headrace check</code>.</p>` : p.warnings.length ? html`<${Problems} list=${p.warnings} warnings />` : html`<p class="muted"><${Glyph} n="applied" /> None.</p>`}</>
      <${Candidate} p=${p} />
    </div></div></main>`
}

const Revision = ({ p }) => html`<section class="panel" id="revision" aria-label="Revision"><div class="revs">
  <div><h2>Active</h2><p class="big mono">${p.revision}</p><p class="muted">since <${Time} t=${p.since} />, ${span(p.now - p.since)}</p><p class="small faint">in <code>${p.folder}</code></p></div>
  <div><h2>Candidate</h2>${p.candidate ? html`<p class="big mono">${p.candidate.revision}</p><p class="small faint">in <code>${p.candidate.folder}</code></p>${p.candidate.rejected ? html`<p class="t-bad"><${Glyph} n="failed" /> its last reload was rejected at <${Time} t=${p.candidate.rejected.at} /></p><${Problems} list=${p.candidate.rejected.problems} />` : null}` : html`<p class="big">None</p><p class="small muted">To decide each call under a second folder, without effect: <code>headrace serve --candidate FOLDER</code></p>`}</div>
  <div>${p.rejected ? html`<h2>Last reload <span class="t-bad"><${Glyph} n="failed" /> rejected</span> <span class="faint small">at <${Time} t=${p.rejected.at} />; the active revision stays</span></h2><${Problems} list=${p.rejected.problems} />` : html`<h2>Last reload</h2><p class="muted"><${Glyph} n="applied" /> not rejected</p>`}</div></div></section>`

const Deployments = ({ p, marked }) => html`<${Panel} id="deployments" title="Deployments" note="calls in the last hour" flush><div class="wrap"><table class="stacked"><thead><tr><th>Deployment</th><th>Policy</th><th>Targets, in order</th><th class="num">Calls</th><th>Keys</th><th>Tags</th><th class="w-file">File</th></tr></thead><tbody>
  ${p.deployments.map(x => html`<tr id=${'deployment.' + x.name} class=${marked('deployment.' + x.name)}><td><b>${x.name}</b><span class="sub">${x.description}</span></td><td data-label="Policy">${x.policy ? html`<a href=${link('policy', { at: 'rules' })}>${x.policy}</a>` : html`<span class="faint">none</span>`}</td>
    <td class="lines" data-label="Targets">${x.targets.map(t => html`<span class="nowrap"><span class="muted">${t.upstream}/</span>${t.model}${t.weight != null ? html` <span class="faint">weight ${t.weight}</span>` : null}${t.role === 'fallback' ? html` <span class="faint">fallback</span>` : null}</span>`)}</td>
    <td class="num" data-label="Calls"><a href=${link('calls', { deployment: x.name })}>${int(x.calls)}</a></td><td class="lines" data-label="Keys">${x.keys.slice(0, 20).map(k => html`<span><a href=${link('policy', { at: 'key.' + k })}>${k}</a></span>`)}${x.keys.length > 20 ? html`<span class="faint">${x.keys.length - 20} more</span>` : null}</td><td class="muted lines" data-label="Tags">${tagsText(x.tags).map(t => html`<span class="nowrap">${t}</span>`)}</td><td data-label="File"><${At} v=${x.source} /></td></tr>`)}</tbody></table></div></>`

function Rules ({ p, marked }) {
  const most = Math.max(0, ...p.rules.map(r => r.applied))
  return html`<${Panel} id="rules" title="Rules" note="in their order; applied in the last hour" flush>${p.rules.length ? html`<div class="wrap"><table class="stacked"><thead><tr><th>Rule</th><th>When</th><th>Effect</th><th class="num">Applied</th><th class="w-file">File</th></tr></thead><tbody>
    ${p.rules.map(r => html`<tr id=${'rule.' + r.name} class=${marked('rule.' + r.name)}><td>${r.name}<${Shadow} mode=${r.mode} /></td><td data-label="When" class="muted">${r.when || html`<span class="faint">see the file</span>`}</td><td data-label="Effect"><${Client} v=${r.effect} max=${500} /></td><td class="num" data-label="Applied"><${Applied} n=${r.applied} of=${most} /></td><td data-label="File"><${At} v=${r.source} /></td></tr>`)}</tbody></table></div>` : html`<p class="body muted">No policy of a deployment has rules.</p>`}</>`
}

const Guards = ({ p }) => html`<${Panel} id="guards" title="Guards" note="verdicts in the last hour" flush>${p.guards == null ? html`<p class="body muted">Unknown, because the files differ from the active revision.</p>` : p.guards.length ? html`<div class="wrap"><table class="stacked"><thead><tr><th>Guard</th><th>Stage</th><th>Action</th><th class="num">Inspected</th><th class="num">Found</th><th class="w-file">File</th></tr></thead><tbody>
  ${p.guards.map(g => html`<tr><td><span class="muted">${g.policy}/</span>${g.name}<${Shadow} mode=${g.mode} /></td><td data-label="Stage" class="muted">${g.stage}</td><td data-label="Action">${g.action}</td><td class="num" data-label="Inspected">${int(g.inspected)}</td><td class="num" data-label="Found">${int(g.found)}</td><td data-label="File"><${At} v=${g.source} /></td></tr>`)}</tbody></table></div>` : html`<p class="body muted">No policy has guards.</p>`}</>`

const Keys = ({ p, marked }) => html`<${Panel} id="keys" title="Keys" note="names only; the files hold digests" flush>${p.keys.length ? html`<div class="wrap"><table class="stacked"><thead><tr><th>Key</th><th>Deployments</th><th>Tags</th><th>Last used</th><th>Expires</th><th class="w-file">File</th></tr></thead><tbody>
  ${p.keys.map(k => html`<tr id=${'key.' + k.name} class=${marked('key.' + k.name)}><td><a href=${link('calls', { key: k.name })}><b>${k.name}</b></a>${k.rejected ? html` <span class="chip">${k.rejected}</span>` : null}</td><td data-label="Deployments">${k.deployments.map((x, n) => html`${n ? ', ' : ''}<a href=${link('policy', { at: 'deployment.' + x })}>${x}</a>`)}</td><td data-label="Tags" class="muted">${tagsText(k.tags).join(' ')}</td><td data-label="Last used">${k.last_used ? html`<span title=${utc(k.last_used)}>${span(p.now - k.last_used)} ago</span>` : html`<span class="faint">not since the start</span>`}</td><td data-label="Expires">${k.expires ? html`<span class=${k.expires - p.now < 7 * 86400000 ? 't-warn' : ''} title=${utc(k.expires)}>${k.expires < p.now ? 'expired' : 'in ' + span(k.expires - p.now)}</span>` : html`<span class="faint">never</span>`}</td><td data-label="File"><${At} v=${k.source} /></td></tr>`)}</tbody></table></div>` : html`<p class="body muted">There are no keys, so every call is refused.</p>`}</>`

const Tags = ({ p }) => html`<${Panel} id="tags" title="Tags" flush>${p.tags.length ? html`<div class="wrap"><table class="stacked"><thead><tr><th>Tag</th><th>Values</th><th>Set by clients</th><th class="w-file">File</th></tr></thead><tbody>
  ${p.tags.map(t => html`<tr id=${'tag.' + t.name}><td><b>${t.name}</b></td><td data-label="Values" class="muted">${t.values.join(', ') || 'a pattern or a flag'}</td><td data-label="Set by clients">${t.by_clients ? 'yes' : 'no'}</td><td data-label="File"><${At} v=${t.source} /></td></tr>`)}</tbody></table></div>` : html`<p class="body muted">The policies declare no tags.</p>`}</>`

function Candidate ({ p }) {
  const c = p.candidate
  if (!c) return html`<${Panel} id="candidate" title="Candidate" flush><div class="empty"><h2>No candidate is served</h2><p class="muted">A candidate is a second folder. It decides every call after the call has ended, and changes nothing. Differences appear here, with the calls that show them.</p><${Code} text="headrace serve --policies policies/ --candidate policies-next/" what="the command" /></div></>`
  return html`<${Panel} id="candidate" title="Candidate" note=${html`<code>${c.revision}</code> against <code>${p.revision}</code>`} flush>
    <p class="body">${int(c.same)} calls are decided the same since the start.${c.changes.length ? '' : ' None is decided differently.'}</p>
    ${c.changes.length ? html`<div class="wrap"><table class="stacked"><thead><tr><th>Differs in</th><th>Calls</th><th>By rule</th><th>Examples, the latest first</th></tr></thead><tbody>${c.changes.map(d => html`<tr><td>${d.about}</td><td data-label="Calls">${d.decided}</td><td data-label="By rule">${d.why || html`<span class="faint">no rule</span>`}</td><td class="lines" data-label="Examples">${(d.parts || []).map(e => html`<span><a class="mono" href=${link('calls', { q: e.decided })}><${Client} v=${e.decided} max=${32} /></a> <span class="muted"><${Client} v=${e.why || ''} /></span></span>`)}</td></tr>`)}</tbody></table></div>` : null}</>`
}
