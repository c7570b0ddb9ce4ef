// Text of numbers, money and times. Unknown values are a word or a dash, never 0.

const INTEGER = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 })
const MONTHS = [
  'Jan',
  'Feb',
  'Mar',
  'Apr',
  'May',
  'Jun',
  'Jul',
  'Aug',
  'Sep',
  'Oct',
  'Nov',
  'Dec'
]

export const int = n => (n == null ? '–' : INTEGER.format(n))
export const fixed = (n, digits) =>
  n == null
    ? '–'
    : n.toLocaleString('en-US', { minimumFractionDigits: digits, maximumFractionDigits: digits })

// USD with at least two significant digits: what is not 0 never reads as 0.
export function usd(value) {
  if (value == null) return 'unknown'
  const number = Number(value)
  if (number === 0) return '$0'
  if (number >= 1) return '$' + fixed(number, 2)
  const digits = Math.min(9, Math.max(2, 3 - Math.floor(Math.log10(number))))
  return '$' + fixed(number, digits).replace(/(\.\d\d\d*?)0+$/, '$1')
}
export const usdExact = value =>
  value == null ? 'Unknown: no price covers this' : '$' + Number(value).toFixed(9)
export function usdColumn(value) {
  if (value == null) return 'unknown'
  return value === 0 ? '0' : value < 1e-6 ? '<0.000001' : value.toFixed(6)
}
export const usdCents = value =>
  value == null ? 'unknown' : value > 0 && value < 0.005 ? '<0.01' : fixed(value, 2)

export function ms(value) {
  if (value == null) return '–'
  if (value < 10) return fixed(value, 2) + ' ms'
  if (value < 1000) return fixed(value, 0) + ' ms'
  if (value < 60000) return fixed(value / 1000, 2) + ' s'
  return span(value)
}
export function span(milliseconds) {
  const seconds = Math.max(0, Math.round(milliseconds / 1000))
  if (seconds < 60) return `${seconds} s`
  const minutes = Math.floor(seconds / 60)
  if (minutes < 60)
    return seconds % 60 && minutes < 10 ? `${minutes} min ${seconds % 60} s` : `${minutes} min`
  const hours = Math.floor(minutes / 60)
  return hours < 48
    ? `${hours} h ${minutes % 60} min`
    : `${Math.floor(hours / 24)} d ${hours % 24} h`
}
export function pct(share, digits = 1) {
  if (share == null) return '–'
  return share > 0 && share < 0.5 / 10 ** (digits + 2)
    ? '<' + fixed(1 / 10 ** digits, digits) + ' %'
    : fixed(share * 100, digits) + ' %'
}

// Times are milliseconds since 1970, shown in the zone of the browser or in UTC.
let zone = 'local'
export const setZone = name => {
  zone = name
}
export const two = n => String(n).padStart(2, '0')
const parts = time => {
  const d = new Date(time)
  return zone === 'utc'
    ? [d.getUTCMonth(), d.getUTCDate(), d.getUTCHours(), d.getUTCMinutes(), d.getUTCSeconds()]
    : [d.getMonth(), d.getDate(), d.getHours(), d.getMinutes(), d.getSeconds()]
}
export function clock(time) {
  const [, , h, m, s] = parts(time)
  return `${two(h)}:${two(m)}:${two(s)}`
}
export const minute = time => clock(time).slice(0, 5)
export function date(time) {
  const [month, day] = parts(time)
  return `${MONTHS[month]} ${day}`
}
export const utc = time => new Date(time).toISOString().replace('T', ' ').replace('Z', ' UTC')
