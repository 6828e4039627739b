// This file shows the model (model.js) in the document, and updates it from /history and /events.
// devices.js has the cards of the devices, and tables.js the tables below them.

import { Model, bytes, clock } from './model.js';
import { Devices } from './devices.js';
import { fill, h } from './element.js';
import { showPrograms, showWaiting } from './tables.js';

const RELOAD_MS = 30e3; // time between two loads of a span whose points are averages

const find = (id) => document.getElementById(id);
const model = new Model();
const devices = new Devices(find('devices'), model);
const choice = new URLSearchParams(location.search); // span and by, as the reader chose them

function showEvents() {
  find('events-card').hidden = model.events.length === 0;
  const when = (ms) => (Date.now() - ms < 12 * 3600e3 ? clock(ms) : new Date(ms).toLocaleString());
  fill(find('events'), ...model.events.slice(-50).reverse().map((e) =>
    h('li', {}, h('time', { datetime: new Date(e.time_ms).toISOString() }, when(e.time_ms)), h('span', { class: 'kind' }, e.kind.replaceAll('_', ' ')), h('span', {}, e.text))));
}

function show() {
  devices.show();
  showPrograms(model.state, showWaiting(model.state));
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

const shownAt = () => (model.state ? ` The figures are those of ${clock(model.state.time_ms)}.` : '');

let source = null;
let retry = 0;
let reload = 0;

/** load loads the chosen span. It returns false if another span was chosen meanwhile. */
async function load() {
  const of = find('view').elements.span.value;
  const answer = await fetch(`history?span=${of}`);
  if (!answer.ok) throw new Error(`it answers ${answer.status}`);
  const history = await answer.json();
  if (of !== find('view').elements.span.value) return false;
  model.load(history);
  if (model.state) {
    model.apply(model.state);
    show();
  }
  clearTimeout(reload);
  if (!model.live && !document.hidden) reload = setTimeout(() => load().catch(lost), RELOAD_MS);
  return true;
}

async function open() {
  close();
  try {
    await load();
  } catch (err) {
    lost();
    return;
  }
  if (document.hidden || source) return;
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
  clearTimeout(reload);
}

/** lost shows that the connection is lost, and connects again later. /history has what was missed. */
function lost() {
  close();
  connection('lost', 'connection lost', `The connection is lost; the page tries again.${shownAt()}`);
  retry = setTimeout(open, 2000);
}

/** choose shows what the reader chose, and keeps it in the address, so that it can be reloaded and shared. */
function choose(e) {
  const { name, value } = e.target;
  choice.set(name, value);
  history.replaceState(null, '', `?${choice}`);
  if (name === 'by') {
    devices.by = value;
    if (model.state) show();
  } else {
    load().catch(lost);
  }
}

for (const [name, value] of choice) {
  const field = find('view').querySelector(`input[name="${CSS.escape(name)}"][value="${CSS.escape(value)}"]`);
  if (field) field.checked = true;
}
devices.by = find('view').elements.by.value;
find('view').addEventListener('change', choose);
// A page in the background uses no connection.
document.addEventListener('visibilitychange', () => { if (document.hidden) close(); else open(); });
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { if (model.state) show(); });
find('where').textContent = location.hostname;
open();
