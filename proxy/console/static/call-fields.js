// Values of a call that several pages read. Rows have the fields of the log line (docs/logs.md).

export const OUTCOMES = [
  'success', 'client_error', 'limited', 'blocked', 'upstream_error', 'timeout', 'proxy_error',
  'client_abort'
]
export const hasFinding = guard => !['passed', 'not_applicable'].includes(guard.verdict)
export const timeOf = call => Date.parse(call.time)
export const requested = call => call.models[0] || ''

const count = (call, isCounted) =>
  call.tokens &&
  Object.entries(call.tokens).reduce((sum, [type, n]) => (isCounted(type) ? sum + n : sum), 0)
export const tokensIn = call => count(call, type => /input|cache/.test(type))
export const tokensOut = call => count(call, type => !/input|cache|web_search/.test(type))
