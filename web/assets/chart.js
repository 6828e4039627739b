// This file draws the chart of a device: the memory that jobs or users used, stacked, above it what
// is reserved and not used, hatched, and the capacity as a line. A reader can select a point with
// the mouse, by touch and by the keyboard. The callback onread tells devices.js that another point
// is selected.

import { UNIT, clock, day } from './model.js';
import { color } from './element.js';

const FEWEST_MS = 5 * 60e3; // shortest time that a chart spans
const DAY = 24 * 3600e3;

export class Chart {
  /** onread is called when another point is selected. */
  constructor(root, onread) {
    this.root = root;
    this.onread = onread;
    this.at = null; // index of the selected point; null: none is selected, and the last counts
    this.plot = null;
    this.shape = '';
    root.addEventListener('keydown', (e) => this.key(e));
    root.addEventListener('blur', () => this.point(null));
    new ResizeObserver(() => this.resize()).observe(root);
  }

  size() {
    return { width: Math.max(200, this.root.clientWidth), height: this.root.clientWidth < 480 ? 190 : 240 };
  }

  resize() {
    const { width, height } = this.size();
    if (this.plot && (this.plot.width !== width || this.plot.height !== height)) this.plot.setSize({ width, height });
  }

  /** show draws a Track. stack: its jobs or users, from the bottom up; colors: their colours; total: bytes of the device. */
  show(model, track, stack, colors, total) {
    this.model = model;
    this.track = track;
    this.total = total;
    const shape = JSON.stringify([stack.map((h) => h.key), colors, total, model.span, color('--ink'), devicePixelRatio]); // the colour differs between dark and light
    const data = this.data(stack);
    if (this.plot && shape === this.shape) {
      this.plot.setData(data, false);
      this.plot.setScale('x', this.range());
    } else {
      this.shape = shape;
      this.plot?.destroy();
      this.plot = new uPlot(this.options(stack, colors), data, this.root);
    }
    if (this.at !== null) this.place(Math.min(this.at, model.times.length - 1));
  }

  /**
   * data returns the columns to draw, which are painted one over another: the device, its capacity, the stack with what
   * is reserved, the sums of the stack from the top down, then the lines.
   */
  data(stack) {
    const { capacity, unused, total, peak } = this.track.columns;
    const scaled = (column) => column.map((v) => (v === null ? null : v / UNIT));
    const sums = [];
    let below = scaled(capacity).map((v) => (v === null ? null : 0));
    for (const h of stack) {
      below = below.map((sum, i) => (h.used[i] === null || sum === null ? null : sum + h.used[i] / UNIT));
      sums.unshift(below);
    }
    const reserved = below.map((sum, i) => (sum === null ? null : sum + unused[i] / UNIT));
    const lines = this.model.live ? [scaled(capacity)] : [scaled(peak), scaled(capacity)];
    return [this.model.times.map((t) => t / 1000), scaled(total), scaled(capacity), reserved, ...sums, ...lines];
  }

  /** range returns the time that the chart shows. An hour that has just begun is drawn larger. */
  range() {
    const { times, span, live } = this.model;
    const last = times.length > 0 ? times[times.length - 1] : Date.now();
    const first = live ? Math.max(last - span, Math.min(times[0] ?? last, last - FEWEST_MS)) : last - span;
    return { min: first / 1000, max: last / 1000 };
  }

  options(stack, colors) {
    const ink = color('--ink'), soft = color('--soft'), grid = color('--grid'), card = color('--card');
    const paths = uPlot.paths.stepped({ align: -1 });
    const none = { show: false };
    const area = (fill, stroke) => ({ paths, fill, stroke, width: stroke ? 1 : 0, points: none });
    const areas = colors.map((c) => area(c, this.model.live ? card : null)).reverse(); // with many steps, edges would cover the areas
    const line = (stroke, width) => ({ paths, stroke, width, points: none });
    const font = `12px ${color('--font')}`;
    const axis = { stroke: soft, font, grid: { stroke: grid, width: 1 }, ticks: { show: false } };
    return {
      ...this.size(),
      padding: [10, 20, 0, 0],
      legend: none,
      drawOrder: ['series', 'axes'],
      scales: {
        x: { time: true, range: () => { const r = this.range(); return [r.min, r.max]; } },
        y: { range: [0, Math.max(this.total / UNIT, 0.001) * 1.04] },
      },
      axes: [
        { ...axis, space: 70, size: 28, values: (_, ticks) => this.labels(ticks) },
        { ...axis, size: 62, space: 36, incrs: [1 / 64, 1 / 16, 1 / 4, 1 / 2, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512], values: (_, ticks) => ticks.map((v) => (v < 1 && v > 0 ? `${Math.round(v * 1024)} MiB` : v === 0 ? '0' : `${v} GiB`)) },
      ],
      series: [{}, area(color('--above')), area(card), area(hatched(card, color('--hatch')), this.model.live ? color('--hatch') : null), ...areas,
        ...(this.model.live ? [] : [line(soft, 1)]), line(ink, 2)],
      cursor: { y: false, points: none, drag: { x: false, y: false, setScale: false } },
      hooks: {
        setCursor: [(u) => this.moved(u.cursor.idx ?? null)],
        draw: [(u) => this.marks(u, color('--mark'))],
      },
    };
  }

  /** labels formats the times of the axis: the day at midnight, seconds if the chart spans little time. */
  labels(ticks) {
    const { min, max } = this.range();
    const seconds = max - min < 600 && this.root.clientWidth > 480;
    const midnight = (t) => new Date(t * 1000).getHours() === 0 && new Date(t * 1000).getMinutes() === 0;
    return ticks.map((t) => ((max - min) * 1000 >= DAY && midnight(t) ? day(t * 1000) : clock(t * 1000, seconds)));
  }

  /** marks draws the events on the axis of time. */
  marks(u, stroke) {
    const { ctx } = u;
    const { top, height, left, width } = u.bbox;
    const d = devicePixelRatio;
    ctx.save();
    ctx.fillStyle = ctx.strokeStyle = stroke;
    ctx.lineWidth = d;
    ctx.setLineDash([2 * d, 3 * d]);
    for (const e of this.model.events) {
      if (e.device !== this.track.index && e.device !== null) continue;
      const x = u.valToPos(e.time_ms / 1000, 'x', true);
      if (x < left || x > left + width) continue;
      if (this.model.live) { // on a longer span the lines would cover the areas
        ctx.beginPath();
        ctx.moveTo(x, top);
        ctx.lineTo(x, top + height);
        ctx.stroke();
      }
      ctx.beginPath();
      ctx.moveTo(x - 4 * d, top);
      ctx.lineTo(x + 4 * d, top);
      ctx.lineTo(x, top + 7 * d);
      ctx.fill();
    }
    ctx.restore();
  }

  moved(i) {
    if (i === this.at) return;
    this.at = i;
    this.onread();
  }

  /** place moves the cursor to a point. */
  place(i) {
    const left = this.plot.valToPos(this.model.times[i] / 1000, 'x');
    this.plot.setCursor({ left, top: 0 });
  }

  point(i) {
    if (!this.plot) return;
    if (i === null) this.plot.setCursor({ left: -10, top: -10 });
    else this.place(i);
  }

  key(e) {
    if (!this.plot || e.ctrlKey || e.altKey || e.metaKey) return;
    const last = this.model.times.length - 1;
    const page = 60; // points: 5 minutes of an hour
    const at = this.at ?? last;
    const to = {
      ArrowLeft: at - 1, ArrowDown: at - 1, ArrowRight: at + 1, ArrowUp: at + 1,
      PageUp: at - page, PageDown: at + page, Home: 0, End: last, Escape: null,
    }[e.key];
    if (to === undefined) return;
    e.preventDefault();
    this.point(to === null ? null : Math.min(last, Math.max(0, to)));
  }
}

/** hatched returns a pattern of diagonal lines. */
function hatched(back, lines) {
  const n = Math.round(7 * devicePixelRatio);
  const canvas = document.createElement('canvas');
  canvas.width = canvas.height = n;
  const ctx = canvas.getContext('2d');
  ctx.fillStyle = back;
  ctx.fillRect(0, 0, n, n);
  ctx.strokeStyle = lines;
  ctx.lineWidth = 1.4 * devicePixelRatio;
  ctx.beginPath();
  for (const shift of [-n, 0, n]) {
    ctx.moveTo(shift - 1, n + 1);
    ctx.lineTo(shift + n + 1, -1);
  }
  ctx.stroke();
  return ctx.createPattern(canvas, 'repeat');
}
