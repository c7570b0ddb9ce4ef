// Text of numbers, money and times. Unknown values are a word or a dash, never 0.

const NUMBERS = Array.from({ length: 10 }, (_, digits) =>
  new Intl.NumberFormat('en-US', { minimumFractionDigits: digits, maximumFractionDigits: digits })
)
export const fixed = (n, digits) => (n == null ? '–' : NUMBERS[digits].format(n))
export const int = n => fixed(n, 0)

// USD with at least two significant digits: what is not 0 never reads as 0.
export function usd(value) {
  if (value == null) return 'unknown'
  if (value === 0) return '$0'
  if (value >= 1) return '$' + fixed(value, 2)
  const digits = Math.min(9, Math.max(2, 3 - Math.floor(Math.log10(value))))
  return '$' + fixed(value, digits).replace(/(\.\d\d\d*?)0+$/, '$1')
}
export const usdExact = value =>
  value == null ? 'Unknown: no price covers this' : '$' + value.toFixed(9)
export function usdColumn(value) {
  if (value == null) return 'unknown'
  return value === 0 ? '0' : value < 1e-6 ? '<0.000001' : value.toFixed(6)
}
export const usdCents = value =>
  value == null ? 'unknown' : value > 0 && value < 0.005 ? '<0.01' : fixed(value, 2)

export function ms(value) {
  if (value == null) return '–'
  if (value < 1000) return fixed(value, value < 10 ? 2 : 0) + ' ms'
  return value < 60000 ? fixed(value / 1000, 2) + ' s' : span(value)
}
export function span(milliseconds) {
  const seconds = Math.max(0, Math.round(milliseconds / 1000))
  const minutes = Math.floor(seconds / 60)
  const hours = Math.floor(minutes / 60)
  if (seconds < 60) return `${seconds} s`
  if (minutes < 10 && seconds % 60) return `${minutes} min ${seconds % 60} s`
  if (minutes < 60) return `${minutes} min`
  if (hours < 48) return `${hours} h ${minutes % 60} min`
  return `${Math.floor(hours / 24)} d ${hours % 24} h`
}
export function pct(share, digits = 1) {
  if (share == null) return '–'
  return share > 0 && share < 0.5 / 10 ** (digits + 2)
    ? '<' + fixed(1 / 10 ** digits, digits) + ' %'
    : fixed(share * 100, digits) + ' %'
}
export const tagsText = tags => Object.entries(tags).map(([tag, value]) => `${tag}=${value}`)
export const findingsText = findings =>
  Object.entries(findings).map(([kind, n]) => `${n} ${kind}`).join(', ')

// Times are milliseconds since 1970, shown in the zone of the browser or in UTC.
export const dateIn = timeZone =>
  new Intl.DateTimeFormat('en-US', { month: 'short', day: 'numeric', timeZone }).format
export let clock
export let date
export function setZone(name) {
  const timeZone = name === 'utc' ? 'UTC' : undefined
  clock = new Intl.DateTimeFormat('en-GB', { timeStyle: 'medium', timeZone }).format
  date = dateIn(timeZone)
}
export const minute = time => clock(time).slice(0, 5)
export const millis = time => '.' + String(time % 1000).padStart(3, '0')
export const utc = time => new Date(time).toISOString().replace('T', ' ').replace('Z', ' UTC')
