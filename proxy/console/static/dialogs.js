// The palette, the list of keys, and the form for the token.

import { html, useEffect, useMemo, useRef, useState } from './vendor/preact-htm.module.js'
import { go } from './address.js'
import { api } from './api.js'
import { OUTCOMES, timeOf } from './call-fields.js'
import { clock } from './format.js'
import { Icon, word } from './parts.js'

// `showModal` traps the focus. A click beside the content closes the dialog.
function Modal({ label, cls, close, children }) {
  const ref = useRef(null)
  useEffect(() => ref.current.showModal(), [])
  return html`<dialog ref=${ref} class=${cls} aria-label=${label} onClose=${close}
    onClick=${e => e.target === ref.current && close()}>${children}</dialog>`
}

export function Palette({ close, pages, setTheme, zones, setZone }) {
  const [text, setText] = useState('')
  const [index, setIndex] = useState(0)
  const [calls, setCalls] = useState([])
  const [policy, setPolicy] = useState({ deployments: [], keys: [] })
  useEffect(() => {
    api('calls').then(page => setCalls(page.calls.slice(0, 200)), () => {})
    api('policy').then(setPolicy, () => {})
  }, [])
  const items = useMemo(() => {
    const item = (kind, text, note, pick) => ({ kind, text, note, pick })
    return [
      ...pages.map(([id, name]) => item('Page', name, '', () => go(id))),
      ...policy.deployments.map(({ name }) =>
        item('Deployment', name, 'its recent calls', () => go('calls', { deployment: name }))),
      ...policy.keys.map(({ name }) =>
        item('Key', name, 'its recent calls', () => go('calls', { key: name }))),
      ...OUTCOMES.map(outcome =>
        item('Calls', word(outcome), 'recent calls with this outcome', () =>
          go('calls', { outcome }))),
      ...calls.map(call =>
        item('Call', call.request_id || '',
          `${clock(timeOf(call))} ${call.deployment || ''}, ${word(call.outcome)}`,
          () => go('calls', { call: call.id }))),
      ...['auto', 'light', 'dark'].map(name => item('Theme', name, '', () => setTheme(name))),
      ...zones.map(([name, label]) => item('Time zone', label, '', () => setZone(name)))
    ]
  }, [calls, policy])
  const words = text.toLowerCase().split(/\s+/).filter(Boolean)
  const found = items
    .filter(({ kind, text, note }) => {
      const searched = `${kind} ${text} ${note}`.toLowerCase()
      return words.every(part => searched.includes(part))
    })
    .slice(0, words.length ? 40 : 16)
  const pick = item => {
    close()
    item.pick()
  }
  useEffect(() => {
    document.getElementById('option' + index)?.scrollIntoView({ block: 'nearest' })
  }, [index])
  const onKey = e => {
    const step = { ArrowDown: 1, ArrowUp: -1, Enter: 0 }[e.key]
    if (step == null) return
    e.preventDefault()
    if (step) setIndex(Math.max(0, Math.min(found.length - 1, index + step)))
    else if (found[index]) pick(found[index])
  }
  return html`<${Modal} cls="palette" label="Jump to" close=${close}>
    <input type="text" role="combobox" aria-expanded="true" aria-controls="found"
      aria-activedescendant=${found.length ? 'option' + index : undefined}
      aria-label="Call id, key, deployment or page" placeholder="Call id, key, deployment or page"
      value=${text}
      onInput=${e => {
        setText(e.target.value)
        setIndex(0)
      }}
      onKeyDown=${onKey} autocomplete="off" spellcheck="false" />
    <ul id="found" role="listbox" aria-label="Matches">${found.map((item, n) => html`
      <li id=${'option' + n} role="option" aria-selected=${String(n === index)}
        onClick=${() => pick(item)} onPointerMove=${() => n !== index && setIndex(n)}>
        <span class="kind">${item.kind}</span>
        <span class=${'cut ' + (item.kind === 'Call' ? 'mono' : '')}>${item.text}</span>
        <span class="muted small cut">${item.note}</span>
      </li>
    `)}</ul>
    ${found.length ? null : html`<p class="empty muted">
      Nothing here has this name. A call is found by its id while it is among the last 1,000.
    </p>`}
    <div class="hint">
      <span><kbd>↑</kbd> <kbd>↓</kbd> move</span><span><kbd>Enter</kbd> go</span>
      <span><kbd>Esc</kbd> close</span>
    </div>
  </${Modal}>`
}

export const Help = ({ close, keysOn, setKeysOn, signOut }) => html`
  <${Modal} cls="help" label="Keyboard" close=${close}>
    <header>
      <h2>Keyboard</h2>
      <button type="button" class="btn quiet icon" aria-label="Close" onClick=${close}>
        <${Icon} n="close" />
      </button>
    </header>
    <dl>
      <dt><kbd>Ctrl</kbd> <kbd>K</kbd></dt><dd>Jump to a call, key, deployment or page</dd>
      <dt><kbd>1</kbd> to <kbd>5</kbd></dt><dd>Change the page</dd>
      <dt><kbd>/</kbd></dt><dd>Filter the calls</dd>
      <dt><kbd>j</kbd> <kbd>k</kbd></dt><dd>Next or previous call</dd>
      <dt><kbd>Enter</kbd></dt><dd>Open the call</dd>
      <dt><kbd>Esc</kbd></dt><dd>Close the call, a dialog, or leave a field</dd>
      <dt><kbd>←</kbd> <kbd>→</kbd></dt><dd>Move the cursor of a chart that has the focus</dd>
      <dt><kbd>?</kbd></dt><dd>This list</dd>
    </dl>
    <label class="switch">
      <input type="checkbox" checked=${keysOn} onChange=${e => setKeysOn(e.target.checked)} />
      Single-key shortcuts (1 to 5, /, j, k, ?)
    </label>
    ${signOut && html`<button type="button" class="btn" onClick=${signOut}>Sign out</button>`}
  </${Modal}>
`

export function SignIn({ onDone }) {
  const [fault, setFault] = useState(null)
  const field = useRef(null)
  const send = async e => {
    e.preventDefault()
    try {
      const token = String.fromCharCode(...new TextEncoder().encode(field.current.value))
      await api('session', { method: 'POST', headers: { authorization: `Bearer ${token}` } })
      onDone()
    } catch (error) {
      setFault(error.message)
      field.current.select()
    }
  }
  return html`<main id="main"><section class="panel login" aria-label="Sign in">
    <h1>Headrace console</h1>
    <p class="muted">
      The admin listener asks for its token: the value of <code>HEADRACE_ADMIN_TOKEN</code>.
    </p>
    <form class="stack" onSubmit=${send}>
      <label>
        Admin token
        <input ref=${field} class="field" type="password" autocomplete="current-password"
          aria-invalid=${fault ? 'true' : undefined}
          aria-describedby=${fault ? 'fault' : undefined} />
      </label>
      ${fault ? html`<p class="error" id="fault" role="alert">${fault}</p>` : null}
      <button class="btn primary" type="submit">Sign in</button>
    </form>
  </section></main>`
}
