// Charts: SVG with at most 120 points and one shared cursor. Unknown values are gaps.

import { html, useLayoutEffect, useRef, useState } from './vendor/preact-htm.module.js'
import { clock, minute } from './format.js'

function useWidth() {
  const ref = useRef(null)
  const [width, setWidth] = useState(0)
  useLayoutEffect(() => {
    const el = ref.current
    setWidth(el.clientWidth)
    const watch = new ResizeObserver(() => setWidth(el.clientWidth))
    watch.observe(el)
    return () => watch.disconnect()
  }, [])
  return [ref, width]
}
function niceTop(x) {
  if (!(x > 0)) return 1
  const p = 10 ** Math.floor(Math.log10(x))
  return [1, 2, 4, 6, 8, 10].map(m => m * p).find(v => v >= x * 0.999)
}
const r1 = x => Math.round(x * 10) / 10

export function Chart({
  t,
  series,
  kind = 'line',
  height = 64,
  tick,
  top,
  low = 0,
  cursor,
  onCursor,
  label,
  band,
  xs
}) {
  const [ref, width] = useWidth()
  const n = t.length
  const left = 44
  const right = 4
  const y0 = 6
  const y1 = height - 16
  const sums =
    kind === 'line' ? null : t.map((_, i) => series.reduce((s, x) => s + (x.values[i] || 0), 0))
  const most = Math.max(
    0,
    series.ghost || 0,
    ...(sums || series.flatMap(s => s.values.filter(v => v != null)))
  )
  const max = top || niceTop(most)
  const inner = Math.max(10, width - left - right)
  const step = kind === 'bars' ? inner / n : inner / (n - 1)
  const X = i => (kind === 'bars' ? left + step * (i + 0.5) : left + step * i)
  const Y = v => y1 - ((y1 - y0) * (Math.min(max, Math.max(low, v)) - low)) / (max - low)
  const curve = values => {
    let path = ''
    values.forEach((v, i) => {
      if (v != null) path += `${i && values[i - 1] != null ? 'L' : 'M'}${r1(X(i))} ${r1(Y(v))}`
    })
    return path
  }
  const marks = []
  if (width) {
    if (kind === 'line') {
      if (band && series.length === 2) {
        const known = t
          .map((_, i) => i)
          .filter(i => series[0].values[i] != null && series[1].values[i] != null)
        const up = known.map(i => `${r1(X(i))} ${r1(Y(series[1].values[i]))}`).join('L')
        const down = known
          .map(i => `${r1(X(i))} ${r1(Y(series[0].values[i]))}`)
          .reverse()
          .join('L')
        if (up) marks.push(html`<path class=${'band ' + series[1].cls} d=${`M${up}L${down}Z`} />`)
      }
      for (const s of series)
        marks.push(html`
          <path class=${`line ${s.cls} ${s.soft ? 'soft' : ''}`} d=${curve(s.values)} />
        `)
    } else {
      const below = t.map(() => 0)
      for (const s of series) {
        const above = s.values.map((v, i) => below[i] + (v || 0))
        if (kind === 'area') {
          if (s.edge)
            marks.push(
              html`<path class=${'line ' + s.cls}
                d=${'M' + above.map((v, i) => `${r1(X(i))} ${r1(Y(v))}`).join('L')}
              />`
            )
          marks.push(
            html`<path class=${'area ' + s.cls}
              d=${
                'M' +
                above.map((v, i) => `${r1(X(i))} ${r1(Y(v))}`).join('L') +
                'L' +
                below
                  .map((v, i) => `${r1(X(i))} ${r1(Y(v))}`)
                  .reverse()
                  .join('L') +
                'Z'
              }
            />`
          )
        } else {
          const w = step > 12 ? Math.min(28, step * 0.68) : Math.max(1, step - 1)
          marks.push(
            html`<g class=${s.cls}>${above.map((v, i) =>
              s.values[i] > 0 ? html`
                <rect class="bar" x=${r1(X(i) - w / 2)} width=${r1(w)} y=${r1(Y(v))}
                  height=${r1(Math.max(0.8, Y(below[i]) - Y(v) - (step > 12 ? 1 : 0)))} />
              ` : null
            )}</g>`
          )
        }
        s.values.forEach((v, i) => {
          below[i] += v || 0
        })
      }
    }
  }
  const ticks = height > 120 ? [0, 0.25, 0.5, 0.75, 1] : [0, 0.5, 1]
  const at = e => {
    const x = e.clientX - ref.current.getBoundingClientRect().left
    const i = Math.round(kind === 'bars' ? (x - left) / step - 0.5 : (x - left) / step)
    onCursor(i >= 0 && i < n ? i : null)
  }
  const keys = e => {
    const d = { ArrowLeft: -1, ArrowRight: 1 }[e.key]
    if (d) {
      e.preventDefault()
      onCursor(Math.max(0, Math.min(n - 1, (cursor ?? n - 1) + d)))
    }
    if (e.key === 'Escape' && cursor != null) {
      e.stopPropagation()
      onCursor(null)
    }
  }
  const labels = xs
    ? xs(inner)
    : inner > 240
      ? [0, Math.floor((n - 1) / 3), Math.floor(((n - 1) * 2) / 3), n - 1]
      : inner > 150
        ? [0, Math.floor((n - 1) / 2), n - 1]
        : [0, n - 1]
  const ghost = series.ghost
  return html`<svg ref=${ref} class=${`chart ${kind}`} height=${height}
    viewBox=${`0 0 ${Math.max(1, width)} ${height}`} role="img" aria-label=${label}
    tabindex=${onCursor ? 0 : undefined} onPointerMove=${onCursor && at}
    onPointerLeave=${onCursor && (() => onCursor(null))} onKeyDown=${onCursor && keys}>
    ${ticks.map(f => {
      const v = low + (max - low) * f
      return html`<g key=${f}>
        <line class="grid" x1=${left} x2=${width - right} y1=${Math.round(Y(v)) + 0.5}
          y2=${Math.round(Y(v)) + 0.5} />
        <text x=${left - 6} y=${Y(v) + 4} text-anchor="end">${tick(v, max)}</text>
      </g>`
    })}
    ${marks}
    ${ghost && width ? html`
      <rect class="ghost" x=${r1(X(n - 1) - Math.min(28, step * 0.68) / 2)}
        width=${r1(Math.min(28, step * 0.68))} y=${r1(Y(ghost))} height=${r1(y1 - Y(ghost))} />
    ` : null}
    ${cursor != null && width ? html`<g>
      <line class="cursor" x1=${Math.round(X(cursor)) + 0.5} x2=${Math.round(X(cursor)) + 0.5}
        y1=${y0 - 4} y2=${y1} />
      ${kind === 'line'
        ? series
            .filter(s => s.values[cursor] != null)
            .map(s => html`
              <circle class=${'knob ' + s.cls} r="3" cx=${X(cursor)} cy=${Y(s.values[cursor])} />
            `)
        : null}
    </g>` : null}
    ${width
      ? labels.map((i, k) => html`<text key=${'x' + i} x=${X(i)} y=${height - 3}
          text-anchor=${
            xs
              ? X(i) > width - 24
                ? 'end'
                : 'middle'
              : k === 0
                ? 'start'
                : k === labels.length - 1
                  ? 'end'
                  : 'middle'
          }>${series.xtick ? series.xtick(t[i]) : minute(t[i])}</text>`)
      : null}
  </svg>`
}

export function Metric({ title, range, value, unit, sides, chart, cursor, t }) {
  return html`<section class="metric" aria-label=${title}>
    <h2>${title}<span class="faint">${cursor != null ? `at ${clock(t[cursor])}` : range}</span></h2>
    <div class="value">
      <b>${value}</b>${unit ? html`<span class="unit">${unit}</span>` : null}
      ${(sides || []).map(s => html`<span class=${'side ' + (s.opt ? 'opt' : '')} title=${s.title}>
        ${s.cls ? html`<i class=${`sw ${s.line ? 'line' : ''} ${s.cls}`}></i>` : null}${s.text}
      </span>`)}
    </div>
    ${chart}
  </section>`
}
