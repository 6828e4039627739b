// This file shows the card of each device: its figures, its chart, and the legend that reads the
// chart. chart.js draws the chart.

import { OTHERS, bytes, clock, day, left, short } from './model.js';
import { Chart } from './chart.js';
import { color, empty, fill, h } from './element.js';
import { called } from './tables.js';

const COLORS = 10; // --c0 to --c9 of page.css
const TABLE_ROWS = 12; // rows of the table below a chart, about

/** Colors gives each job, and each user, a colour that no other current one has, as long as there are enough colours. */
class Colors {
  constructor() { this.of = new Map(); }

  keep(keys) {
    for (const key of this.of.keys()) if (!keys.has(key)) this.of.delete(key);
    for (const key of keys) {
      if (this.of.has(key)) continue;
      const taken = new Set(this.of.values());
      let n = number(key) % COLORS;
      for (let i = 0; i < COLORS && taken.has(n); i++) n = (n + 1) % COLORS;
      this.of.set(key, n);
    }
  }

  name(key) { return key === OTHERS ? 'others' : String(this.of.get(key)); }

  css(key) { return color(`--c${this.name(key)}`); }
}

/** number returns the number of a job, or a number that depends only on the name of a user. */
function number(key) {
  const [kind, rest] = [key.slice(0, key.indexOf(' ')), key.slice(key.indexOf(' ') + 1)];
  return kind === 'job' ? Number(rest) : [...rest].reduce((sum, c) => (sum * 31 + c.codePointAt(0)) % 997, 0);
}

/** Devices shows all devices of a model. */
export class Devices {
  constructor(root, model) {
    this.root = root;
    this.model = model;
    this.by = 'job'; // what the chart stacks: job or user
    this.views = new Map(); // device → View
    this.colors = new Colors();
  }

  show() {
    const { devices } = this.model.state;
    const keys = [...this.model.tracks.values()].flatMap((t) => t.stack(this.by).map((s) => s.key));
    this.colors.keep(new Set(keys.filter((key) => key !== OTHERS)));
    for (const [index, view] of this.views) {
      if (!devices.some((d) => d.index === index)) { view.root.remove(); this.views.delete(index); }
    }
    for (const d of devices) {
      if (!this.views.has(d.index)) {
        this.views.set(d.index, new View(d.index, this));
        this.root.append(this.views.get(d.index).root);
      }
      this.views.get(d.index).show(d);
    }
    const none = document.getElementById('no-device');
    if (devices.length > 0) none?.remove();
    else if (!none) this.root.append(h('div', { class: 'card', id: 'no-device' }, h('h2', {}, 'No device'), empty('The daemon finds no GPU on this machine; gpuarb doctor says why.')));
  }
}

/** View is the card of one device. */
class View {
  constructor(index, all) {
    this.index = index;
    this.all = all;
    this.model = all.model;
    this.title = h('h2', { id: `device-${index}` });
    this.facts = h('dl', { class: 'facts' });
    this.plot = h('div', { class: 'chart', tabindex: 0, role: 'slider', 'aria-label': 'Use of the device over time', 'aria-valuemin': 0 });
    this.when = h('p', { class: 'when' });
    this.legend = h('ul', { class: 'legend' });
    this.happened = h('p', { class: 'happened' });
    this.rows = h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'The chart as a table' });
    this.details = h('details', {}, h('summary', {}, 'The chart as a table'), this.rows);
    this.details.addEventListener('toggle', () => this.fillRows());
    this.root = h('article', { class: 'card', 'aria-labelledby': `device-${index}` },
      this.title, this.facts, this.plot, this.when, this.legend, this.happened, this.details);
    this.chart = new Chart(this.plot, () => this.read());
  }

  show(device) {
    this.device = device;
    this.track = this.model.tracks.get(this.index);
    this.stack = this.track.stack(this.all.by);
    this.leases = new Map(); // job or user → leases
    for (const l of this.model.state.leases) {
      const key = this.all.by === 'job' ? `job ${l.job}` : `user ${l.user}`;
      if (l.device === this.index) this.leases.set(key, [...(this.leases.get(key) ?? []), l]);
    }
    this.head();
    this.chart.show(this.model, this.track, this.stack, this.stack.map((s) => this.all.colors.css(s.key)), device.total_bytes);
    this.read();
    this.fillRows();
  }

  head() {
    const d = this.device;
    fill(this.title, called(d), ' ', h('span', { class: 'model' }, d.name), d.state === 'ok' ? null : h('span', { class: `badge ${d.state}` }, d.state));
    const kept = d.free_bytes === 0 && d.queue_depth > 0 ? left(d) : 0;
    const facts = [['Free', bytes(d.free_bytes) + (kept > 0 ? ` (${bytes(kept)} for the queue)` : ''), 'what a new program would be granted now, beside its context'], ['Used', bytes(d.used_bytes), 'what programs have allocated'],
      ['Reserved', bytes(d.reserved_bytes), 'memory.min of all jobs, used or not'], ['Capacity', bytes(d.capacity_bytes), 'what can be granted in all: the total without unmanaged memory, contexts and what is set aside'], ['Total', bytes(d.total_bytes), null]];
    if (d.unmanaged_bytes > 0) {
      const by = d.unmanaged_by.map((u) => short(u.command)).slice(0, 3).join(', ');
      facts.push(['Unmanaged', bytes(d.unmanaged_bytes) + (by ? ` (${by})` : ''), 'programs that run without gpuarb']);
    }
    if (d.slots_max !== null) facts.push(['Slots', `${d.slots_current} of ${d.slots_max}`, 'jobs with work on the device']);
    facts.push(['Waiting', String(d.queue_depth), null]);
    fill(this.facts, ...facts.map(([k, v, title]) => h('div', { title, class: k === 'Free' ? 'free' : null }, h('dt', {}, k), h('dd', {}, v))));
  }

  /** time formats the time of a point. */
  time(at) {
    const { times, live } = this.model;
    return live ? clock(times[at]) : `${day(times[at])} ${clock(times[at], false)}`;
  }

  /** read shows the figures of the selected point, or of the last point. */
  read() {
    const { times, live } = this.model;
    const last = times.length - 1;
    const at = this.chart.at === null ? last : Math.min(this.chart.at, last);
    const { capacity, unused, total, peak } = this.track.columns;
    const shown = this.stack.map((s) => [s, s.used[at]]);
    const sum = shown.reduce((n, [, used]) => n + (used ?? 0), 0);
    const isNow = this.chart.at === null;
    fill(this.when, h('strong', {}, isNow && live ? 'now' : last < 0 ? 'not recorded yet' : this.time(at)), ` ${bytes(sum)} used`,
      live ? null : `, on average of ${this.model.step / 60e3} min; at most ${bytes(peak[at])}`);
    const line = (cls, name, value) => h('li', { class: 'line' }, h('span', { class: `swatch ${cls}` }), h('span', { class: 'who' }, name), h('span', { class: 'much' }, bytes(value)));
    const rows = shown.filter(([s, used]) => used > 0 || (isNow && this.leases.has(s.key))).reverse().map(([s, used]) => this.row(s, used));
    if (rows.length === 0) rows.push(h('li', { class: 'empty' }, this.stack.length === 0 ? 'No lease yet.' : 'Not used at that time.'));
    const rest = capacity[at] === null || capacity[at] === undefined ? null : Math.max(0, capacity[at] - sum - unused[at]);
    fill(this.legend, ...rows, unused[at] > 0 ? line('unused', 'reserved, not used', unused[at]) : null, line('nothing', 'left', rest), line('capacity', 'capacity', capacity[at]),
      total[at] - capacity[at] > total[at] / 200 ? line('above', 'unmanaged, contexts, set aside', total[at] - capacity[at]) : null);
    const events = this.model.eventsNear(this.index, times[at]);
    fill(this.happened, events.slice(-3).map((e) => `${clock(e.time_ms)} ${e.text}`).join('; '));
    this.say(at, last, shown, capacity[at]);
  }

  row(s, used) {
    const leases = this.leases.get(s.key) ?? [];
    const state = leases.find((l) => l.state !== 'running')?.state;
    const others = this.all.by === 'job' ? 'all other jobs' : 'all other users';
    const jobs = new Set(leases.map((l) => l.job)).size;
    const who = s.key === OTHERS ? [h('span', { class: 'who' }, others)] : this.all.by === 'user' ? [
      h('span', { class: 'who' }, s.user), h('span', { class: 'whose' }, jobs === 0 ? '' : jobs === 1 ? '1 job' : `${jobs} jobs`),
    ] : [
      h('span', { class: 'who', title: s.name }, short(s.name) || '(no name)'),
      h('span', { class: 'whose' }, `${s.user} · pid ${s.pid}${leases.length > 1 ? ` and ${leases.length - 1} more` : ''}`),
    ];
    return h('li', {}, h('span', { class: `swatch c${this.all.colors.name(s.key)}` }), ...who,
      state ? h('span', { class: `badge ${state}` }, state) : null, h('span', { class: 'much' }, bytes(used)));
  }

  /** say gives these figures to screen readers, as the value of the slider that represents the chart. */
  say(at, last, shown, capacity) {
    const name = (s) => (s.key === OTHERS ? 'all others' : short(s.name) || s.user);
    const words = shown.filter(([, used]) => used > 0).map(([s, used]) => `${name(s)} ${bytes(used)}`);
    const text = last < 0 ? 'not recorded yet' : `${this.time(at)}: ${words.join(', ') || 'not used'}; capacity ${bytes(capacity)}`;
    for (const [key, value] of [['valuemax', Math.max(0, last)], ['valuenow', Math.max(0, at)], ['valuetext', text]]) this.plot.setAttribute(`aria-${key}`, value);
  }

  /** fillRows fills the table if it is open: the last point, and about TABLE_ROWS of those before it. */
  fillRows() {
    if (!this.details.open || !this.device) return;
    const { capacity, unused } = this.track.columns;
    const rows = [];
    for (let i = this.model.times.length - 1, due = Infinity; i >= 0; i--) {
      if (this.model.times[i] > due) continue;
      due = this.model.times[i] - this.model.span / TABLE_ROWS;
      rows.push([this.model.live ? clock(this.model.times[i], false) : this.time(i), ...this.stack.map((s) => bytes(s.used[i])), bytes(unused[i]), bytes(capacity[i])]);
    }
    const heads = ['Time', ...this.stack.map((s) => (s.key === OTHERS ? 'all others' : s.name ? `${short(s.name)} (${s.user}, pid ${s.pid})` : s.user)), 'Reserved, not used', 'Capacity'];
    fill(this.rows, h('table', {}, h('caption', { class: 'unseen' }, `${called(this.device)} over time`),
      h('thead', {}, h('tr', {}, ...heads.map((t) => h('th', { scope: 'col' }, t)))),
      h('tbody', {}, ...rows.map((cells) => h('tr', {}, ...cells.map((c) => h('td', {}, c)))))));
  }
}
