// This file shows the model (model.js) in the document, and updates it from /history and /events.
// Users choose the names of programs and jobs, so these names enter the document only as text,
// through h().

import { Model, OTHERS, bytes, clock, short, span } from './model.js';
import { Chart } from './chart.js';

const COLORS = 10; // --c0 to --c9 of page.css
const TABLE_STEP = 5 * 60e3; // time between two rows of the table below a chart
const MAX_ROWS = 200;

const model = new Model();
const views = new Map(); // device → View
const find = (id) => document.getElementById(id);

/** h makes an element. Its children are elements or texts. */
function h(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) e.setAttribute(name, value);
  }
  e.append(...children.filter((c) => c !== null && c !== undefined));
  return e;
}

/** fill replaces the children of an element, unless they are equal already. */
function fill(element, ...children) {
  const fresh = h('div', {}, ...children);
  if (element.innerHTML !== fresh.innerHTML) element.replaceChildren(...fresh.childNodes);
}

/** table makes a table whose rows become cards on a narrow screen. A cell is a text or an element. */
function table(caption, heads, rows) {
  return h('table', {},
    h('caption', { class: 'unseen' }, caption),
    h('thead', {}, h('tr', {}, ...heads.map((t) => h('th', { scope: 'col' }, t)))),
    h('tbody', {}, ...rows.map((cells) => h('tr', {}, ...cells.map((c, i) => h('td', { 'data-head': heads[i] }, c))))));
}

const empty = (text) => h('p', { class: 'empty' }, text);

/** Colors gives each job a colour that no other current job has, as long as there are enough colours. */
class Colors {
  constructor() { this.of = new Map(); }

  keep(jobs) {
    for (const job of this.of.keys()) if (!jobs.has(job)) this.of.delete(job);
    for (const job of jobs) {
      if (this.of.has(job)) continue;
      const taken = new Set(this.of.values());
      let color = job % COLORS;
      for (let i = 0; i < COLORS && taken.has(color); i++) color = (color + 1) % COLORS;
      this.of.set(job, color);
    }
  }

  name(job) { return job === OTHERS ? 'others' : String(this.of.get(job)); }

  css(job) {
    return getComputedStyle(document.documentElement).getPropertyValue(`--c${this.name(job)}`).trim();
  }
}
const colors = new Colors();

/** View is the card of one device. */
class View {
  constructor(index) {
    this.index = index;
    this.title = h('h2', { id: `device-${index}` });
    this.facts = h('dl', { class: 'facts' });
    this.plot = h('div', { class: 'chart', tabindex: 0, role: 'slider', 'aria-label': 'Use of the device in the last hour', 'aria-valuemin': 0 });
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
    const track = model.tracks.get(this.index);
    this.stack = track.stack();
    this.leases = new Map();
    for (const l of model.state.leases) {
      if (l.device === this.index) this.leases.set(l.job, [...(this.leases.get(l.job) ?? []), l]);
    }
    this.head();
    this.chart.show(model, track, device.total_bytes, this.stack.map((s) => colors.css(s.job)));
    this.read();
    this.fillRows();
  }

  head() {
    const d = this.device;
    const name = d.vendor === 'cpu' ? 'Processor' : `GPU ${d.index}`;
    fill(this.title, name, ' ', h('span', { class: 'model' }, d.name), d.state === 'ok' ? null : h('span', { class: `badge ${d.state}` }, d.state));
    const facts = [['Used', bytes(d.used_bytes)], ['Reserved', bytes(d.reserved_bytes)], ['Capacity', bytes(d.capacity_bytes)], ['Total', bytes(d.total_bytes)]];
    if (d.unmanaged_bytes > 0) {
      const by = d.unmanaged_by.map((u) => short(u.command)).slice(0, 3).join(', ');
      facts.push(['Unmanaged', bytes(d.unmanaged_bytes) + (by ? ` (${by})` : '')]);
    }
    facts.push(['Slots', d.slots_max === null ? String(d.slots_current) : `${d.slots_current} of ${d.slots_max}`], ['Waiting', String(d.queue_depth)]);
    fill(this.facts, ...facts.map(([k, v]) => h('div', {}, h('dt', {}, k), h('dd', {}, v))));
  }

  /** read shows the figures of the selected point, or of the last point. */
  read() {
    const last = model.times.length - 1;
    const at = this.chart.at ?? last;
    const track = model.tracks.get(this.index);
    const { capacity, reserved } = track.columns;
    const shown = this.stack.map((s) => [s, s.used[at]]);
    const sum = shown.reduce((n, [, used]) => n + (used ?? 0), 0);
    fill(this.when, h('strong', {}, this.chart.at === null ? 'now' : clock(model.times[at])), ` ${bytes(sum)} used`);
    const line = (cls, name, value) => h('li', {}, h('span', { class: `swatch ${cls}` }), h('span', { class: 'who' }, name), h('span', { class: 'much' }, bytes(value)));
    const rows = shown.filter(([s, used]) => used > 0 || this.leases.has(s.job)).reverse().map(([s, used]) => this.row(s, used));
    if (rows.length === 0) rows.push(h('li', { class: 'empty' }, this.stack.length === 0 ? 'No lease yet.' : 'Not used at that time.'));
    fill(this.legend, ...rows, line('capacity', 'capacity', capacity[at]), line('reserved', 'reserved (memory.min)', reserved[at]));
    const events = model.eventsNear(this.index, model.times[at]);
    fill(this.happened, events.map((e) => `${clock(e.time_ms)} ${e.text}`).join('; '));
    this.say(at, last, shown, capacity[at]);
  }

  row(s, used) {
    const leases = this.leases.get(s.job) ?? [];
    const state = leases.find((l) => l.state !== 'running')?.state;
    const who = s.job === OTHERS ? [h('span', { class: 'who' }, 'all others')] : [
      h('span', { class: 'who', title: s.name }, short(s.name) || '(no name)'),
      h('span', { class: 'whose' }, `${s.user} · pid ${s.pid}${leases.length > 1 ? ` and ${leases.length - 1} more` : ''}`),
    ];
    return h('li', {}, h('span', { class: `swatch c${colors.name(s.job)}` }), ...who,
      state ? h('span', { class: `badge ${state}` }, state) : null, h('span', { class: 'much' }, bytes(used)));
  }

  /** say gives these figures to screen readers, as the value of the slider that represents the chart. */
  say(at, last, shown, capacity) {
    const words = shown.filter(([, used]) => used > 0).map(([s, used]) => `${short(s.name) || 'all others'} ${bytes(used)}`);
    const text = `${clock(model.times[at])}: ${words.join(', ') || 'not used'}; capacity ${bytes(capacity)}`;
    for (const [name, value] of [['valuemax', last], ['valuenow', at], ['valuetext', text]]) this.plot.setAttribute(`aria-${name}`, value);
  }

  /** fillRows fills the table if it is open. */
  fillRows() {
    if (!this.details.open || !this.device) return;
    const { capacity, reserved } = model.tracks.get(this.index).columns;
    const rows = [];
    for (let i = model.times.length - 1, due = Infinity; i >= 0; i--) {
      if (model.times[i] > due) continue;
      due = model.times[i] - TABLE_STEP;
      rows.push([clock(model.times[i], false), ...this.stack.map((s) => bytes(s.used[i])), bytes(reserved[i]), bytes(capacity[i])]);
    }
    const heads = ['Time', ...this.stack.map((s) => (s.job === OTHERS ? 'all others' : `${short(s.name)} (${s.user}, pid ${s.pid})`)), 'Reserved', 'Capacity'];
    fill(this.rows, table(`GPU ${this.index} in the last hour`, heads, rows));
  }
}

function showDevices() {
  const { devices } = model.state;
  colors.keep(new Set([...model.tracks.values()].flatMap((t) => t.stack().map((s) => s.job)).filter((job) => job !== OTHERS)));
  for (const [index, view] of views) {
    if (!devices.some((d) => d.index === index)) { view.root.remove(); views.delete(index); }
  }
  for (const d of devices) {
    if (!views.has(d.index)) {
      views.set(d.index, new View(d.index));
      find('devices').append(views.get(d.index).root);
    }
    views.get(d.index).show(d);
  }
  const none = find('no-device');
  if (devices.length > 0) none?.remove();
  else if (!none) find('devices').append(h('div', { class: 'card', id: 'no-device' }, h('h2', {}, 'No device'), empty('The daemon finds no GPU on this machine; gpuarb doctor says why.')));
}

/** cut limits a table to MAX_ROWS: a browser is slow with more. */
function cut(rows, id) {
  find(`${id}-count`).textContent = rows.length > 0 ? String(rows.length) : '';
  return rows.slice(0, MAX_ROWS);
}

const onDevice = (index) => (index === null ? 'any' : index);
const who = (row) => h('span', { class: 'command', title: row.command }, row.job_name ?? short(row.command));

function showQueue() {
  const rows = cut(model.state.queue, 'queue');
  fill(find('queue'), rows.length === 0 ? empty('No request waits.') :
    table('Requests that wait', ['Place', 'User', 'PID', 'GPU', 'Wants', 'Waits', 'Reason', 'Command'],
      rows.map((t) => [t.pos, t.user, t.pid, onDevice(t.device), t.wants_bytes === null ? t.wants : bytes(t.wants_bytes), span(t.waited_ms),
        h('span', { class: 'reason' }, t.text || t.reason), who(t)])));
}

function showLeases() {
  const rows = cut(model.state.leases, 'leases');
  fill(find('leases'), rows.length === 0 ? empty('No program has a lease.') :
    table('Leases', ['GPU', 'User', 'PID', 'State', 'Used', 'Budget', 'Reserved', 'Peak', 'Streams', 'Age', 'Command'],
      rows.map((l) => [l.device, l.user, l.pid, h('span', { class: `badge ${l.state}` }, l.state), bytes(l.used_bytes), l.budget_bytes === null ? 'max' : bytes(l.budget_bytes),
        bytes(l.min_bytes), bytes(l.peak_bytes), l.streams, span(l.age_ms), who(l)])));
}

function showEvents() {
  find('events-card').hidden = model.events.length === 0;
  fill(find('events'), ...model.events.slice(-50).reverse().map((e) =>
    h('li', {}, h('time', { datetime: new Date(e.time_ms).toISOString() }, clock(e.time_ms)), h('span', { class: 'kind' }, e.kind.replaceAll('_', ' ')), h('span', {}, e.text))));
}

function show() {
  showDevices();
  showQueue();
  showLeases();
  showEvents();
  find('version').textContent = `gpuarb ${model.state.version}`;
  const used = model.state.devices.reduce((n, d) => n + d.used_bytes, 0);
  document.title = `${bytes(used)} · gpuarb`;
}

/** connection shows the state of the connection: live, lost, or down (the daemon does not answer). */
function connection(state, text, banner = '') {
  document.body.dataset.connection = state;
  find('status').textContent = text;
  find('banner').hidden = banner === '';
  find('banner').textContent = banner;
}

const shownAt = () => (model.state ? ` What is shown is of ${clock(model.state.time_ms)}.` : '');

let source = null;
let retry = 0;

async function open() {
  close();
  try {
    const answer = await fetch('history');
    if (!answer.ok) throw new Error(`it answers ${answer.status}`);
    model.load(await answer.json());
  } catch (err) {
    lost();
    return;
  }
  source = new EventSource(`events?after=${model.lastEvent}`); // the answer of /history may be a second old
  source.addEventListener('state', (e) => {
    model.apply(JSON.parse(e.data));
    show();
    connection('live', 'live');
  });
  source.addEventListener('happened', (e) => { model.happen(JSON.parse(e.data)); }); // shown with the next state
  source.addEventListener('down', (e) => {
    connection('down', 'no daemon', `The daemon does not answer: ${JSON.parse(e.data).error}.${shownAt()}`);
  });
  source.addEventListener('error', lost);
}

function close() {
  source?.close();
  source = null;
  clearTimeout(retry);
}

/** lost shows that the connection is lost, and connects again later. /history has what was missed. */
function lost() {
  close();
  connection('lost', 'connection lost', `The connection is lost; the page tries again.${shownAt()}`);
  retry = setTimeout(open, 2000);
}

// A page in the background uses no connection.
document.addEventListener('visibilitychange', () => { if (document.hidden) close(); else open(); });
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { if (model.state) show(); });
find('where').textContent = location.hostname;
open();
