// The address of a view: #/page?name=value. It holds the page, the filters and the open call.

export function readRoute() {
  const [path, query] = location.hash.replace(/^#\/?/, '').split('?')
  return {
    page: path || 'overview',
    query: Object.fromEntries(new URLSearchParams(query || ''))
  }
}
export function link(page, query = {}) {
  const text = new URLSearchParams(
    Object.entries(query).filter(([, value]) => value != null && value !== '')
  ).toString()
  return `#/${page}${text ? '?' + text : ''}`
}
export const go = (page, query) => {
  location.hash = link(page, query)
}
export function amend(changes, { replace = false } = {}) {
  const { page, query } = readRoute()
  const address = link(page, { ...query, ...changes })
  if (replace) location.replace(address)
  else location.hash = address
}
