// This file draws the chart of a device: the memory that jobs used, stacked, with the capacity and
// the reservations as lines. A reader can select a point with the mouse, by touch and by the
// keyboard. The callback onread tells page.js that another point is selected.

import { HOUR, UNIT, clock } from './model.js';

const FEWEST_MS = 5 * 60e3; // shortest time that a chart spans

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

  /** show draws a Track. total: bytes of the device; colors: colours of the stacked jobs, from the bottom up. */
  show(model, track, total, colors) {
    this.model = model;
    this.track = track;
    this.total = total;
    const stack = track.stack();
    const shape = JSON.stringify([stack.map((h) => h.job), colors, total, style('--ink')]); // the colour differs between dark and light
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

  /** data returns the columns to draw: the sums of the stack, from the top down, then the lines. */
  data(stack) {
    const sums = [];
    let below = this.model.times.map(() => 0);
    for (const h of stack) {
      below = below.map((sum, i) => (h.used[i] === null || sum === null ? null : sum + h.used[i] / UNIT));
      sums.unshift(below);
    }
    const line = (column) => column.map((v) => (v === null ? null : v / UNIT));
    const { capacity, reserved } = this.track.columns;
    return [this.model.times.map((t) => t / 1000), ...sums, line(reserved), line(capacity)];
  }

  range() {
    const { times } = this.model;
    const last = times[times.length - 1];
    const first = Math.max(last - HOUR, Math.min(times[0], last - FEWEST_MS));
    return { min: first / 1000, max: last / 1000 };
  }

  options(stack, colors) {
    const ink = style('--ink'), soft = style('--soft'), grid = style('--grid'), card = style('--card');
    const paths = uPlot.paths.stepped({ align: -1 });
    const none = { show: false };
    const areas = stack.map((h, i) => ({ paths, fill: colors[i], stroke: card, width: 1, points: none })).reverse();
    const font = `12px ${style('--font')}`;
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
        { ...axis, space: 70, size: 28, values: (_, ticks) => ticks.map((t) => clock(t * 1000, this.short())) },
        { ...axis, size: 62, space: 36, incrs: [1 / 64, 1 / 16, 1 / 4, 1 / 2, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512], values: (_, ticks) => ticks.map((v) => (v < 1 && v > 0 ? `${Math.round(v * 1024)} MiB` : v === 0 ? '0' : `${v} GiB`)) },
      ],
      series: [{}, ...areas,
        { paths, stroke: ink, width: 1.5, dash: [5, 4], points: none },
        { paths, stroke: ink, width: 2, points: none }],
      cursor: { y: false, points: none, drag: { x: false, y: false, setScale: false } },
      hooks: {
        setCursor: [(u) => this.moved(u.cursor.idx ?? null)],
        draw: [(u) => this.marks(u, style('--mark'))],
      },
    };
  }

  /** short reports whether the chart spans so little time that seconds matter. */
  short() {
    const { min, max } = this.range();
    return max - min < 600 && this.root.clientWidth > 480;
  }

  /** marks draws the events on the axis of time. */
  marks(u, color) {
    const { ctx } = u;
    const { top, height, left, width } = u.bbox;
    const d = devicePixelRatio;
    ctx.save();
    ctx.fillStyle = ctx.strokeStyle = color;
    ctx.lineWidth = d;
    ctx.setLineDash([2 * d, 3 * d]);
    for (const e of this.model.events) {
      if (e.device !== this.track.index && e.device !== null) continue;
      const x = u.valToPos(e.time_ms / 1000, 'x', true);
      if (x < left || x > left + width) continue;
      ctx.beginPath();
      ctx.moveTo(x, top);
      ctx.lineTo(x, top + height);
      ctx.stroke();
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
    const minute = Math.max(1, Math.round(60e3 / this.model.step));
    const at = this.at ?? last;
    const to = {
      ArrowLeft: at - 1, ArrowDown: at - 1, ArrowRight: at + 1, ArrowUp: at + 1,
      PageUp: at - 5 * minute, PageDown: at + 5 * minute, Home: 0, End: last, Escape: null,
    }[e.key];
    if (to === undefined) return;
    e.preventDefault();
    this.point(to === null ? null : Math.min(last, Math.max(0, to)));
  }
}

function style(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
