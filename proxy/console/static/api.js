// The JSON API of the process. `SignedOut` asks for the token, `Unreachable` for another try, and
// `Refused` has the reason of the proxy.

import { useEffect, useState } from './vendor/preact-htm.module.js'

export class SignedOut extends Error {}
class Unreachable extends Error {}
export class Refused extends Error {}
export const RETRY_MS = 4000
const listeners = new Set()
let reachable = true
export const onReachable = listener => {
  listeners.add(listener)
  return () => listeners.delete(listener)
}
export function setReachable(state) {
  if (state === reachable) return
  reachable = state
  listeners.forEach(listener => listener(state))
}

// Views whose last refresh failed, by name: a sentence, and the time of the data that they show.
const failures = new Map()
const shell = { signedOut() {}, showStale() {} }
export const setShell = callbacks => Object.assign(shell, callbacks)
export function setStale(name, failure) {
  if (failure) failures.set(name, failure)
  else failures.delete(name)
  shell.showStale([...failures.values()][0] || null)
}

export async function api(path, options) {
  let response
  try {
    response = await fetch('/api/v1/' + path, { cache: 'no-store', ...options })
  } catch (error) {
    setReachable(false)
    throw new Unreachable(error.message)
  }
  setReachable(true)
  if (response.status === 204) return null
  const body = await response.json().catch(() => ({}))
  if (response.ok) return body
  const message = (body.error && body.error.message) || `The proxy answered ${response.status}.`
  if (response.status !== 401 || path === 'session') throw new Refused(message)
  shell.signedOut()
  throw new SignedOut(message)
}
export const post = (path, body) =>
  api(path, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body)
  })

// The data of a path, requested every `every` milliseconds while the page is `live` and visible.
// All pages request it at the same times, so that the proxy builds it once for them.
export function useData(path, every, live = true) {
  const [state, setState] = useState({ path: null, data: null, error: null })
  useEffect(() => {
    let timer
    let ended = false
    let at = null
    const load = async () => {
      clearTimeout(timer)
      if (document.visibilityState !== 'visible') return
      try {
        const data = await api(path)
        if (ended) return
        at = Date.now()
        setState({ path, data, error: null })
        setStale(path, null)
      } catch (error) {
        if (ended) return
        setState(old => ({ path, data: old.path === path ? old.data : null, error }))
        if (at && error instanceof Refused) setStale(path, { at, message: error.message })
      }
      const wait = reachable ? every - (Date.now() % every) : RETRY_MS
      if (every && live) timer = setTimeout(load, wait)
    }
    load()
    const again = () => live && load()
    document.addEventListener('visibilitychange', again)
    const stop = onReachable(up => up && again())
    return () => {
      ended = true
      clearTimeout(timer)
      setStale(path, null)
      stop()
      document.removeEventListener('visibilitychange', again)
    }
  }, [path, every, live])
  return state.path === path ? state : { path, data: null, error: null }
}
