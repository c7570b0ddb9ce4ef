// Charts: SVG with at most 120 points and one shared cursor. Unknown values are gaps.

import { html, useLayoutEffect, useRef, useState } from './vendor/preact-htm.module.js'
import { clock, minute } from './format.js'

const LEFT = 58
const RIGHT = 4
const TOP = 6
const LABELS = 16

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

// Indexes of adjacent known values.
function runsOf(values) {
  const runs = []
  values.forEach((value, i) => {
    if (value == null) return
    if (i && values[i - 1] != null) runs.at(-1).push(i)
    else runs.push([i])
  })
  return runs
}

// Series with the `lower` and `upper` edge of each point. Lines are not stacked.
function stack(series, kind) {
  const sums = series[0].values.map(() => 0)
  return series.map(s => ({
    ...s,
    lower: [...sums],
    upper: kind === 'line'
      ? s.values
      : s.values.map((v, i) => (v == null ? null : (sums[i] += v)))
  }))
}

export function Chart(props) {
  const { t, series, kind = 'line', height, tick, top, cursor, onCursor, label, band } = props
  const { xs, xtick = minute, ghost } = props
  const [ref, width] = useWidth()
  const n = t.length
  const isBars = kind === 'bars'
  const bottom = height - LABELS
  const inner = Math.max(10, width - LEFT - RIGHT)
  const step = inner / (isBars ? n : Math.max(1, n - 1))
  const layers = stack(series, kind)
  const max = top || niceTop(Math.max(ghost || 0, ...layers.flatMap(s => s.upper)))
  const X = i => r1(LEFT + step * (isBars ? i + 0.5 : i))
  const Y = v => r1(bottom - ((bottom - TOP) * Math.min(max, Math.max(0, v))) / max)
  const barWidth = step > 12 ? Math.min(28, step * 0.68) : Math.max(1, step - 1)

  const points = (run, values) => run.map(i => `${X(i)} ${Y(values[i])}`).join('L')
  const line = ({ upper, cls, soft }) => runsOf(upper).map(run => run.length > 1 ? html`
    <path class=${`line ${cls} ${soft ? 'soft' : ''}`} d=${'M' + points(run, upper)} />
  ` : html`<circle class=${'knob ' + cls} r="2" cx=${X(run[0])} cy=${Y(upper[run[0]])} />`)
  const area = (cls, upper, lower) => runsOf(upper).map(run => html`
    <path class=${cls} d=${`M${points(run, upper)}L${points(run.reverse(), lower)}Z`} />
  `)
  const bar = (cls, i, upper, lower, gap) => html`
    <rect class=${cls} x=${r1(X(i) - barWidth / 2)} width=${r1(barWidth)} y=${Y(upper)}
      height=${r1(Math.max(0.8, Y(lower) - Y(upper) - gap))} />
  `
  const bars = ({ values, upper, lower, cls }) => html`<g class=${cls}>${values.map((v, i) =>
    v > 0 ? bar('bar', i, upper[i], lower[i], step > 12 ? 1 : 0) : null
  )}</g>`
  const draw = {
    line: () => [
      band && area('band ' + series[1].cls, series[1].values, series[0].values),
      layers.map(line)
    ],
    area: () => layers.map(s => [s.edge && line(s), area('area ' + s.cls, s.upper, s.lower)]),
    bars: () => [layers.map(bars), ghost && bar('ghost', n - 1, ghost, 0, 0)]
  }
  const at = e => {
    const x = (e.clientX - ref.current.getBoundingClientRect().left - LEFT) / step
    const i = Math.round(isBars ? x - 0.5 : x)
    onCursor(i >= 0 && i < n ? i : null)
  }
  const onKey = e => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[e.key]
    if (move) {
      e.preventDefault()
      onCursor(Math.max(0, Math.min(n - 1, (cursor ?? n - 1) + move)))
    } else if (e.key === 'Escape' && cursor != null) {
      e.stopPropagation()
      onCursor(null)
    }
  }
  const parts = inner > 240 ? 3 : inner > 150 ? 2 : 1
  const evenly = Array.from({ length: parts + 1 }, (_, k) => Math.floor(((n - 1) * k) / parts))
  const anchor = x => (x > width - 24 ? 'end' : x > LEFT ? 'middle' : 'start')
  return html`<svg ref=${ref} class=${`chart ${kind}`} height=${height}
    viewBox=${`0 0 ${Math.max(1, width)} ${height}`} role="img" aria-label=${label} tabindex="0"
    onPointerMove=${at} onPointerLeave=${() => onCursor(null)} onKeyDown=${onKey}>
    ${(height > 120 ? [0, 0.25, 0.5, 0.75, 1] : [0, 0.5, 1]).map(share => {
      const y = Math.round(Y(max * share)) + 0.5
      return html`<g key=${share}>
        <line class="grid" x1=${LEFT} x2=${width - RIGHT} y1=${y} y2=${y} />
        <text x=${LEFT - 6} y=${y + 3.5} text-anchor="end">${tick(max * share, max)}</text>
      </g>`
    })}
    ${width > 0 && html`<g>
      ${draw[kind]()}
      ${cursor != null && html`<line class="cursor" x1=${Math.round(X(cursor)) + 0.5}
        x2=${Math.round(X(cursor)) + 0.5} y1=${TOP - 4} y2=${bottom} />`}
      ${cursor != null && kind === 'line' && series.map(s => s.values[cursor] != null && html`
        <circle class=${'knob ' + s.cls} r="3" cx=${X(cursor)} cy=${Y(s.values[cursor])} />
      `)}
      ${[...new Set(xs ? xs(inner) : evenly)].map(i => html`
        <text key=${i} x=${X(i)} y=${height - 3} text-anchor=${anchor(X(i))}>${xtick(t[i])}</text>
      `)}
    </g>`}
  </svg>`
}

export function Metric({ title, range, value, unit, sides = [], ...chart }) {
  const { t, cursor } = chart
  return html`<section class="metric" aria-label=${title}>
    <h2>${title}<span class="faint">${cursor != null ? `at ${clock(t[cursor])}` : range}</span></h2>
    <div class="value">
      <b>${value}</b>${unit && html`<span class="unit">${unit}</span>`}
      ${sides.map(s => html`<span class=${'side ' + (s.opt ? 'opt' : '')} title=${s.title}>
        ${s.cls && html`<i class=${`sw ${s.line ? 'line' : ''} ${s.cls}`}></i>`}${s.text}
      </span>`)}
    </div>
    <${Chart} ...${chart} />
  </section>`
}
