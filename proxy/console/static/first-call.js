// What to do before there is a call.

import { html } from './vendor/preact-htm.module.js'
import { link } from './address.js'
import { useData } from './api.js'
import { Code } from './parts.js'

const curl = (listen, deployment) => `curl http://${listen}/v1/chat/completions \\
  -H "Authorization: Bearer $KEY" -H 'Content-Type: application/json' \\
  -d '{"model": "${deployment}", "messages": [{"role": "user", "content": "Where is my order?"}]}'`

export function FirstCall() {
  const { data } = useData('overview?range=5m', 0)
  const command = curl(
    data ? data.listen : '127.0.0.1:8080',
    (data && data.deployment) || 'DEPLOYMENT'
  )
  return html`<section class="panel empty" aria-label="No calls yet">
    <h2>No calls yet</h2>
    <p class="muted">The proxy is ready. Send one call; it appears here within a second.</p>
    <ol class="steps">
      <li><div class="stack">
        <span>
          Put a key into your shell. <code>make run</code> prints one;${' '}
          <code>headrace key NAME</code> creates another.
        </span>
        <${Code} text="export KEY=hr-demo-key" what="the command" />
      </div></li>
      <li><div class="stack">
        <span>Send a call.</span><${Code} text=${command} what="the curl command" />
      </div></li>
      <li>
        <span>Open the call to see how it was decided: <a href=${link('calls')}>Calls</a>.</span>
      </li>
    </ol>
  </section>`
}
