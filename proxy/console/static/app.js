// The shell: navigation, time range, theme, time zone, and the states of the connection.

import { html, render, useEffect, useRef, useState } from './vendor/preact-htm.module.js'
import { amend, go, link, readRoute } from './address.js'
import { api, onReachable, RETRY_MS, setShell } from './api.js'
import { Calls } from './calls.js'
import { Help, Palette, SignIn } from './dialogs.js'
import { setZone as setFormatZone } from './format.js'
import { Money } from './money.js'
import { Overview } from './overview.js'
import { Glyph, Icon, isShortcut, Select, setAnnouncer, Time, useKeys } from './parts.js'
import { Policy } from './policy.js'
import { Try } from './try.js'

const PAGES = [
  ['overview', 'Overview', Overview],
  ['calls', 'Calls', Calls],
  ['policy', 'Policy', Policy],
  ['try', 'Try', Try],
  ['money', 'Money', Money]
]
const RANGES = {
  overview: [['5m', 'Last 5 min'], ['15m', 'Last 15 min'], ['1h', 'Last 1 h']],
  money: [['7d', 'Last 7 days'], ['30d', 'Last 30 days'], ['90d', 'Last 90 days']]
}
const ZONES = [['local', 'Local time'], ['utc', 'UTC']]
const NEXT_THEME = { auto: 'light', light: 'dark', dark: 'auto' }

// A choice of the reader that the browser remembers, except in private mode.
function useSetting(name, fallback) {
  const access = action => {
    try {
      return action('headrace.' + name)
    } catch {
      return null
    }
  }
  const [value, setValue] = useState(() => access(key => localStorage.getItem(key)) || fallback)
  const set = next => {
    setValue(next)
    access(key => localStorage.setItem(key, next))
  }
  return [value, set]
}

function App() {
  const [route, setRoute] = useState(readRoute())
  const [dialog, setDialog] = useState(null)
  const [toast, setToast] = useState('')
  const [theme, setTheme] = useSetting('theme', 'auto')
  const [zone, setZone] = useSetting('zone', 'local')
  const [keys, setKeys] = useSetting('keys', 'on')
  const [live, setLive] = useState(true)
  const [down, setDown] = useState(null)
  const [stale, setStale] = useState(null)
  const [session, setSession] = useState(null)
  const toastTimer = useRef(null)
  const retryTimer = useRef(null)
  const keysOn = keys !== 'off'
  setFormatZone(zone)
  setAnnouncer(text => {
    setToast(text)
    clearTimeout(toastTimer.current)
    toastTimer.current = setTimeout(() => setToast(''), 2500)
  })
  const { dataset } = document.documentElement
  if (theme === 'auto') delete dataset.theme
  else dataset.theme = theme
  const check = () =>
    api('session').then(setSession, () => {
      clearTimeout(retryTimer.current)
      retryTimer.current = setTimeout(check, RETRY_MS)
    })
  setShell({ signedOut: () => setSession({ authorized: false }), showStale: setStale })
  useEffect(() => {
    check()
    return onReachable(up => {
      setDown(up ? null : Date.now())
      check()
    })
  }, [])
  useEffect(() => {
    const onHash = () =>
      setRoute(old => {
        const next = readRoute()
        if (next.page !== old.page) window.scrollTo(0, 0)
        return next
      })
    window.addEventListener('hashchange', onHash)
    return () => window.removeEventListener('hashchange', onHash)
  }, [])
  useKeys(e => {
    if ((e.ctrlKey || e.metaKey) && e.key.toLowerCase() === 'k') {
      e.preventDefault()
      setDialog('palette')
    } else if (keysOn && isShortcut(e)) {
      if (e.key === '?') setDialog('help')
      if (/^[1-9]$/.test(e.key) && PAGES[e.key - 1]) go(PAGES[e.key - 1][0])
    }
  })
  const [page, name, Page] = PAGES.find(p => p[0] === route.page) || PAGES[0]
  document.title = `${name} · Headrace`
  if (session && !session.authorized) return html`<${SignIn} onDone=${check} />`
  const close = () => setDialog(null)
  const signOut = () => {
    close()
    api('session', { method: 'DELETE' }).then(check)
  }
  const [state, label, hint] = down
    ? ['Reconnecting', 'Reconnecting', 'Reconnecting']
    : live
      ? ['Live', 'Live. Pause the updates', 'Updates arrive as they happen. Click to pause']
      : ['Paused', 'Paused. Resume the updates', 'Paused. Click to resume']
  return html`<div class=${down || stale ? 'stale' : ''}>
    <a class="skip" href="#main"
      onClick=${e => {
        e.preventDefault()
        const main = document.getElementById('main')
        main.tabIndex = -1
        main.focus()
      }}>
      Skip to the content
    </a>
    <header class="top">
      <a class="brand" href=${link('overview')} aria-label="Headrace, overview">
        <svg viewBox="0 0 16 16" aria-hidden="true">
          <rect class="tile" width="16" height="16" rx="3" />
          <path class="ways" d="M3 4.5h10M3 8h6.5M3 11.5h10M9.5 8l3.5 3.5" />
        </svg>
        <span>Headrace</span>
      </a>
      <nav class="nav" aria-label="Pages">${PAGES.map(([id, text]) => html`
        <a key=${id} href=${link(id)} aria-current=${id === page ? 'page' : undefined}>
          <${Icon} n=${id} />${text}
        </a>
      `)}</nav>
      <span class="spacer"></span>
      <button type="button" class="btn jump" onClick=${() => setDialog('palette')}>
        <${Icon} n="search" /><span class="text">Jump to…</span>
        <span class="vh"> a call, key, deployment or page </span><kbd>Ctrl K</kbd>
      </button>
      ${RANGES[page] && html`<label>
        <span class="vh">Time range</span>
        <${Select} class="soft" options=${RANGES[page]} onPick=${range => amend({ range })}
          value=${route.query.range || RANGES[page][1][0]} />
      </label>`}
      <label class="desk">
        <span class="vh">Time zone</span>
        <${Select} class="soft" options=${ZONES} value=${zone} onPick=${setZone} />
      </label>
      <button type="button" class="btn quiet live" disabled=${Boolean(down)} aria-label=${label}
        title=${hint} onClick=${() => setLive(!live)}>
        <svg class=${'dot ' + (down ? 'wait' : live ? '' : 'off')} viewBox="0 0 8 8"
          aria-hidden="true"><circle cx="4" cy="4" r="3" /></svg>
        <span class="text">${state}</span>
      </button>
      <button type="button" class="btn quiet icon desk" aria-label=${`Theme: ${theme}. Change`}
        title=${`Theme: ${theme}`} onClick=${() => setTheme(NEXT_THEME[theme])}>
        <${Icon} n=${{ auto: 'auto', light: 'sun', dark: 'moon' }[theme]} />
      </button>
      <button type="button" class="btn quiet icon desk" aria-label="Keyboard help"
        title="Keyboard (?)" onClick=${() => setDialog('help')}><${Icon} n="help" /></button>
    </header>
    ${down || stale ? html`<div class="banner" role="alert">
      <${Glyph} n="warn" />
      <span>Showing data of <${Time} t=${down || stale.at} />:</span>
      <b>${down ? 'The proxy does not answer.' : stale.message}</b>
      <span>
        ${down ? 'It may be restarting, and is tried again every 4 s. ' : ''}See${' '}
        <code>docs/troubleshooting.md</code>.
      </span>
      <button type="button" class="btn tiny" onClick=${check}>Try now</button>
    </div>` : null}
    ${session
      ? html`<${Page} key=${page + zone} query=${route.query} live=${live} keysOn=${keysOn} />`
      : html`<main id="main" class="page"></main>`}
    ${dialog === 'palette' && html`
      <${Palette} close=${close} pages=${PAGES} setTheme=${setTheme} zones=${ZONES}
        setZone=${setZone} />
    `}
    ${dialog === 'help' && html`
      <${Help} close=${close} keysOn=${keysOn} setKeysOn=${on => setKeys(on ? 'on' : 'off')}
        signOut=${session?.can_sign_out && signOut} />
    `}
    <div class="toast" role="status" aria-live="polite">${toast}</div>
  </div>`
}
render(html`<${App} />`, document.getElementById('app'))
