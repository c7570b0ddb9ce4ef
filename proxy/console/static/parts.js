// Small parts of all pages. Every string that a client sent is a text node.

import { html, useEffect } from './vendor/preact-htm.module.js'
import { clock, int, utc } from './format.js'

const ICON = {
  search: 'M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10zM11 11l3.2 3.2',
  copy: 'M5.5 5.5h7v8h-7zM3.5 10.5v-8h7',
  close: 'M4 4l8 8M12 4l-8 8',
  chevron: 'M6 4l4 4-4 4',
  help: 'M6 6a2 2 0 1 1 2.6 1.9c-.5.2-.6.6-.6 1.3M8 12v.1',
  sun: 'M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM8 1.5V3M8 13v1.5M1.5 8H3M13 8h1.5M3.4 3.4l1 1' +
    'M11.6 11.6l1 1M3.4 12.6l1-1M11.6 4.4l1-1',
  moon: 'M13 9.6A5.6 5.6 0 0 1 6.4 3 5.6 5.6 0 1 0 13 9.6z',
  auto: 'M8 2.5a5.5 5.5 0 1 0 0 11zM8 2.5a5.5 5.5 0 0 1 0 11',
  overview: 'M2 13h12M4 11V7M8 11V3M12 11V6',
  calls: 'M2 4h12M2 8h12M2 12h8',
  policy: 'M4 2h6l3 3v9H4zM6.5 8h4M6.5 11h4',
  try: 'M5 3l8 5-8 5z',
  money: 'M8 2v12M11 4.5C10 3.6 5.5 3.4 5.5 6c0 3 5.5 1.4 5.5 4.2 0 2.6-4.6 2.2-6 1',
  download: 'M8 2v8M5 7.5L8 10.5l3-3M3 13.5h10'
}
export const Icon = ({ n }) => html`
  <svg class="icon-line" viewBox="0 0 16 16" aria-hidden="true"><path d=${ICON[n]} /></svg>
`

const line = d => html`<path class="g-line" d=${d} />`
const fill = d => html`<path class="g-fill" d=${d} />`
const ARROW = 'M2 6h8M7 3l3 3-3 3'
const CROSS = 'M2.5 2.5l7 7M9.5 2.5l-7 7'
const DASH = 'M3 6h6'
const TRIANGLE = 'M6 1l5.2 9.5H.8z'
// The tone and the shape of outcomes, decisions, verdicts and circuits.
const GLYPHS = {
  success: ['t-ok', html`<circle class="g-fill" cx="6" cy="6" r="3.2" />`],
  client_error: ['t-client', line('M6 1.5L10.5 6 6 10.5 1.5 6z')],
  limited: ['t-warn', line('M4 2.5v7M8 2.5v7')],
  blocked: ['t-block', html`<rect class="g-fill" x="2" y="2" width="8" height="8" rx="1" />`],
  upstream_error: ['t-bad', line(CROSS)],
  timeout: ['t-bad', line('M1.5 6a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0M6 3.5V6l1.8 1.4')],
  proxy_error: ['t-bad', fill(TRIANGLE)],
  client_abort: ['t-client', line('M1.7 6a4.3 4.3 0 1 0 8.6 0a4.3 4.3 0 1 0-8.6 0M3 9l6-6')],
  applied: ['t-ok', line('M2 6.2l2.8 2.8L10 3.4')],
  not_applied: ['t-faint', line(DASH)],
  shadow: ['t-block', html`
    <circle class="g-line" cx="6" cy="6" r="3.6" stroke-dasharray="2 2" />
  `],
  refused: ['t-bad', line(CROSS)],
  warn: ['t-warn', line('M6 1.5l5 9H1zM6 5v2.4M6 9v.1')],
  masked: ['t-accent', line('M1.5 6h9M1.5 3h4M6.5 9h4')],
  flagged: ['t-warn', line('M3 11V1.5h6.5L8 4l1.5 2.5H3')],
  passed: ['t-faint', line(DASH)],
  not_applicable: ['t-faint', line(DASH)],
  routed: ['t-accent', line(ARROW)],
  retried: ['t-accent', line(ARROW)],
  failed: ['t-bad', fill(TRIANGLE)],
  open: ['t-bad', line('M1 8h3l3.5-4M8.5 8H11')],
  half_open: ['t-warn', line('M1 8h3l4-1.6M8.5 8H11')],
  closed: ['t-faint', line('M1 7h10')]
}
export const toneOf = n => (GLYPHS[n] || [''])[0]
export const word = x => (x === 'client_abort' ? 'client left' : x.replaceAll('_', ' '))
export const Glyph = ({ n, tone }) => html`
  <svg class=${'glyph ' + (tone || toneOf(n))} viewBox="0 0 12 12" aria-hidden="true">
    ${GLYPHS[n] && GLYPHS[n][1]}
  </svg>
`
export const Outcome = ({ n, code, words }) => html`
  <span class="outcome plain" title=${`${word(n)}${code ? ' ' + code : ''}`}>
    <${Glyph} n=${n} /><span class=${'word' + (words === false ? ' vh' : '')}>${word(n)}</span>
    ${code ? html`<span class="muted">${code}</span>` : null}
  </span>
`

export const faint = text => html`<span class="faint">${text}</span>`
export const Shadow = ({ on }) => on && html`${' '}<span class="chip shadow">shadow</span>`

// A string that a client sent, as an isolated text with visible control and bidi characters.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/
export function Client({ v, max = 256 }) {
  const text = v.length > max ? v.slice(0, max) + '…' : v
  const parts = HIDDEN.test(text)
    ? [...text].map(c =>
        HIDDEN.test(c) ? html`
          <span class="esc">U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}</span>
        ` : c
      )
    : text
  return html`<bdi class="client"
    title=${
      v.length > max ? `${int(v.length)} characters; the first ${max} are shown` : undefined
    }>${parts}</bdi>`
}
export let announce
export const setAnnouncer = announcer => {
  announce = announcer
}
async function copy(text, what) {
  if (!navigator.clipboard)
    return announce('The clipboard needs HTTPS or localhost. Select the text and copy it.')
  try {
    await navigator.clipboard.writeText(text)
    announce(`Copied ${what}`)
  } catch {
    announce('The browser refused the clipboard. Select the text and copy it.')
  }
}
export const At = ({ v }) =>
  v ? html`<button type="button" class="at" title="Copy the file and line"
    onClick=${e => {
      e.stopPropagation()
      copy(v, v)
    }}>${v}</button>` : null
export const CopyButton = ({ text, what }) => html`
  <button type="button" class="btn quiet icon tiny" title=${'Copy ' + what}
    aria-label=${'Copy ' + what} onClick=${() => copy(text, what)}><${Icon} n="copy" /></button>
`
export const Panel = ({ id, title, note, actions, children, cls, flush }) => html`
  <section class=${'panel ' + (cls || '')} id=${id} aria-label=${title}>
    <header>
      <h2>${title}</h2>${note ? html`<span class="note">${note}</span>` : null}
      <span class="spacer"></span>${actions}
    </header>
    ${flush ? children : html`<div class="body">${children}</div>`}
  </section>
`
export const Page = ({ title, facts, head, cls, error, busy, children }) => html`
  <main id="main" class=${'page ' + (cls || '')} aria-busy=${busy && !error ? 'true' : undefined}>
    <div class="head">
      <h1>${title}</h1>${head}
      ${facts && html`<div class="facts">${facts.map(fact => html`<span>${fact}</span>`)}</div>`}
    </div>
    ${error ? html`<${Failure} error=${error} />` : children}
  </main>
`
export const Failure = ({ error }) => html`
  <div class="banner" role="alert"><${Glyph} n="warn" /><b>${error.message}</b></div>
`
export const Meter = ({ share, tone, mark, slim }) => html`
  <svg class=${`meter ${tone || ''} ${slim ? 'slim' : ''}`} aria-hidden="true">
    <rect width=${(share > 0 ? Math.max(0.6, Math.min(100, share * 100)) : 0) + '%'} height="100%"
    />
    ${mark ? html`<line x1=${mark * 100 + '%'} x2=${mark * 100 + '%'} y1="0" y2="100%" />` : null}
  </svg>
`
export const Seg = ({ label, options, value, onPick }) => html`
  <div class="seg" role="group" aria-label=${label}>${options.map(([v, text, n]) => html`
    <button type="button" key=${v} aria-pressed=${String(v === value)} onClick=${() => onPick(v)}>
      ${text}${n != null ? html`<span class="n">${int(n)}</span>` : null}
    </button>
  `)}</div>
`
// A choice among [value, text].
export const Select = ({ value, options, onPick, ...rest }) => html`
  <select ...${rest} value=${value} onChange=${e => onPick(e.target.value)}>
    ${options.map(([v, text]) => html`<option value=${v} selected=${v === value}>${text}</option>`)}
  </select>
`
export const Code = ({ text, what }) => html`<div class="code">
  <pre>${text}</pre>
  <button type="button" class="btn tiny" onClick=${() => copy(text, what)}>
    <${Icon} n="copy" />Copy
  </button>
</div>`
// A table. A column is [head, cell of a row, class]; narrow screens show the head at each cell.
export const Table = ({ columns, rows, empty, id, marked, rowClass = '', foot }) =>
  rows.length || !empty ? html`<div class="wrap"><table class="stacked">
    <thead><tr>${columns.map(([head, , cls]) => html`<th class=${cls}>${head}</th>`)}</tr></thead>
    <tbody>${rows.map((row, i) => html`
      <tr id=${id && id(row)} class=${rowClass + (id && id(row) === marked ? ' hl' : '')}>
        ${columns.map(([head, cell, cls], n) => html`
          <td class=${cls} data-label=${n ? head : undefined}>${cell(row, i)}</td>
        `)}
      </tr>
    `)}</tbody>${foot}
  </table></div>` : html`<p class="body muted">${empty}</p>`
export const Skeleton = ({ rows = 4, tall }) => html`<div class="sks" aria-hidden="true">
  ${tall ? html`<span class="sk huge"></span>` : null}
  ${Array.from({ length: rows }, (_, i) => html`
    <span class=${'sk w' + (1 + ((i * 2) % 3))}></span>
  `)}
</div>`

export const Time = ({ t, show }) => html`
  <time datetime=${new Date(t).toISOString()} title=${utc(t)}>${show || clock(t)}</time>
`

export function useKeys(onKey) {
  useEffect(() => {
    document.addEventListener('keydown', onKey)
    return () => document.removeEventListener('keydown', onKey)
  })
}
export const isShortcut = e =>
  !(e.ctrlKey || e.metaKey || e.altKey || e.target.closest('input, select, textarea, dialog'))
