// This file makes the tables of requests that wait and of programs. Each request is below its
// device, whose heading names the holders once, with a link to the row of each. table.js has the
// table itself.

import { bytes, left, short, span } from './model.js';
import { empty, fill, h } from './element.js';
import { MAX_ROWS, Table } from './table.js';

const NAMED = 4; // holders that the heading of a device names
// The parts of a request's text that name the holders and the requests ahead of it, and their replacements. The page shows both elsewhere.
const NAMES = [
  [/^waits for [^:]*: /, ''],
  [/; (holds|ahead of it): .*?(?=; (?:ahead of it: |it never fits |asked to make room: )|$)/g, ''],
  [/ are held by .*?(?=; (?:it never fits |asked to make room: )|$)/, ' are taken'],
  [/^held (alone [^ ]* )?by .*$/, 'held $1'],
];

const find = (id) => document.getElementById(id);
const nameOf = (row) => row.job_name ?? short(row.command);
const command = (row) => h('span', { class: 'command', title: row.command }, nameOf(row));
const badge = (state) => h('span', { class: `badge ${state.replaceAll(' ', '-')}` }, state);
const rowId = (device, job, pid) => (job ? `job-${job}-${device}` : `pid-${pid}-${device}`);
export const called = (device) => (device.vendor === 'cpu' ? 'Processor' : `GPU ${device.index}`);

const waiting = new Table('waiting', 'Requests that wait', [
  { head: 'Place', value: (t) => t.pos },
  { head: 'User', value: (t) => t.user },
  { head: 'PID', value: (t) => t.pid },
  { head: 'Wants', value: (t) => t.wants_bytes ?? 0, cell: (t) => (t.wants_bytes === null ? t.wants : bytes(t.wants_bytes)), largest: true },
  { head: 'Waited', value: (t) => t.waited_ms, cell: (t) => span(t.waited_ms), largest: true },
  { head: 'Reason', value: reason, cell: (t) => h('span', { class: 'reason' }, reason(t), t.held ? [' · ', h('a', { href: `#${t.held}` }, 'its holders')] : null, room(t)) },
  { head: 'Command', value: nameOf, cell: command },
]);

const programs = new Table('programs', 'Programs', [
  { head: 'GPU', value: (l) => l.device },
  { head: 'User', value: (l) => l.user ?? '' },
  { head: 'PID', value: (l) => l.pid },
  { head: 'State', value: (l) => l.state, cell: (l) => badge(l.state) },
  { head: 'Used', value: (l) => l.used_bytes, cell: (l) => bytes(l.used_bytes), largest: true },
  { head: 'Budget', value: (l) => (l.state === 'unmanaged' ? -1 : l.budget_bytes ?? Infinity), cell: budget, largest: true },
  { head: 'Reserved', value: (l) => l.min_bytes ?? -1, cell: (l) => bytes(l.min_bytes), largest: true },
  { head: 'Peak', value: (l) => l.peak_bytes ?? -1, cell: (l) => bytes(l.peak_bytes), largest: true },
  { head: 'GPU use', value: (l) => l.util_percent ?? -1, cell: (l) => (l.util_percent === null ? '–' : `${l.util_percent} %`), largest: true },
  { head: 'Idle', value: (l) => l.unused_ms ?? -1, cell: (l) => (l.unused_ms === null ? '–' : span(l.unused_ms)), largest: true },
  { head: 'Streams', value: (l) => l.streams ?? -1, cell: (l) => String(l.streams ?? '–'), largest: true },
  { head: 'Age', value: (l) => l.age_ms, cell: (l) => span(l.age_ms), largest: true },
  { head: 'Command', value: nameOf, cell: command },
]);

/**
 * budget returns the text of the column Budget: the most that a program may use. A program without gpuarb has no budget of its own. If it
 * is charged, its memory counts against the budget of its job.
 */
function budget(l) {
  if (l.state === 'unmanaged') return l.charged ? 'counts in its job’s' : 'none';
  return l.budget_bytes === null ? 'max' : bytes(l.budget_bytes);
}

/** reason returns why a request waits, without the holders: the heading of its device names them. */
function reason(t) {
  return NAMES.reduce((text, [part, by]) => text.replace(part, by), t.text || t.reason);
}

/** room returns an element that says which other device has room for the program of a request; null: none has. */
function room(t) {
  if (t.room === null) return null;
  return h('span', { class: 'room' }, `${called(t.room)} has ${bytes(t.room.free_bytes)} free: `, h('code', {}, `gpuarb run --device ${t.room.index}`), ', or ', h('code', {}, '--device emptiest'));
}

/** holdersOf returns the jobs and programs that hold memory of a device, or the device as a whole, the largest first: {id, name, size, what}. */
function holdersOf(state, device) {
  const all = new Map(); // id → holder
  for (const l of state.leases) {
    if (l.device !== device.index) continue;
    const id = rowId(l.device, l.job, l.pid);
    const known = all.get(id);
    if (known) known.size += l.used_bytes;
    else all.set(id, { id, name: nameOf(l), size: l.used_bytes, what: '' });
  }
  for (const j of state.others) {
    if (j.device !== device.index || j.holds[0] === 'slot') continue;
    const isUnmanaged = j.holds.includes('unmanaged');
    const id = rowId(j.device, isUnmanaged ? 0 : j.job, j.pid);
    all.set(id, { id, name: nameOf(j), size: Math.max(j.used_bytes, j.reserved_bytes), what: isUnmanaged ? 'unmanaged' : j.reserved_bytes > 0 ? 'reserved' : j.holds[0] });
  }
  return [...all.values()].filter((h) => h.size > 0 || h.what).sort((a, b) => b.size - a.size);
}

/** heldBy returns the heading of a device with waiting requests: what is left, and which jobs and programs hold the rest. */
function heldBy(device, holders) {
  const more = holders.length - NAMED;
  const words = holders.slice(0, NAMED).map((j) =>
    h('span', { class: 'holder' }, h('a', { href: `#${j.id}` }, j.name), ` ${[j.size > 0 ? bytes(j.size) : '', j.what].filter(Boolean).join(' ')}`));
  if (more > 0) words.push(h('a', { href: '#programs' }, `and ${more} more`));
  return h('div', { id: `held-${device.index}`, class: 'held' }, h('strong', {}, called(device)), ` ${bytes(left(device))} left of ${bytes(device.capacity_bytes)}`,
    words.length > 0 ? [h('span', { class: 'soft' }, 'held by'), ...words] : null);
}

/** showWaiting shows the queue, and returns the ids of the rows to which it links. */
export function showWaiting(state) {
  const linked = new Set();
  const groups = [];
  for (const device of [...state.devices, null]) {
    const rows = state.queue.filter((t) => (device === null ? t.device === null : t.device === device.index));
    if (rows.length === 0) continue;
    const holders = device === null ? [] : holdersOf(state, device);
    for (const j of holders.slice(0, NAMED)) linked.add(j.id);
    const held = holders.length > 0 ? `held-${device.index}` : null;
    groups.push({ key: device?.index ?? 'any', head: device === null ? h('div', { class: 'held' }, h('strong', {}, 'Any GPU')) : heldBy(device, holders),
      rows: rows.map((t) => ({ key: t.ticket, data: { ...t, held, room: state.devices.find((d) => d.index === t.room_on) ?? null } })) });
  }
  place('queue', waiting, groups, state.queue.length, 'No request waits.');
  return linked;
}

/** showPrograms shows leases, programs without gpuarb, and jobs that have only a reservation or a claim, or gave all of their memory back. */
export function showPrograms(state, linked) {
  const rows = [];
  const ids = new Set();
  const add = (data, id, kind) => {
    const first = !ids.has(id); // a further process of a job has no id
    ids.add(id);
    rows.push({ key: `${data.device} ${data.job} ${data.pid} ${data.state}`, id: first ? id : null, kind, pinned: first && linked.has(id), data });
  };
  for (const l of state.leases) add(l, rowId(l.device, l.job, l.pid), '');
  for (const j of state.others) {
    const kind = j.holds[0] ?? j.residence;
    if (!j.residence && !['unmanaged', 'reservation', 'claim', 'exclusive'].includes(kind)) continue;
    add({ device: j.device, user: j.user, job: j.job, job_name: j.job_name, pid: j.pid, state: j.residence ?? (kind === 'reservation' ? 'reserved' : kind), used_bytes: j.used_bytes, budget_bytes: null, charged: j.holds.includes('charged'),
      min_bytes: j.reserved_bytes, peak_bytes: null, util_percent: null, unused_ms: null, streams: null, age_ms: j.age_ms, command: j.command }, rowId(j.device, kind === 'unmanaged' ? 0 : j.job, j.pid), kind);
  }
  place('leases', programs, [{ key: 'all', head: null, rows }], rows.length, 'No program has a lease.');
}

/** place shows a table in a card, or the sentence none if count, the number of its rows, is 0. */
function place(id, table, groups, count, none) {
  find(`${id}-count`).textContent = count > MAX_ROWS ? `${MAX_ROWS} of ${count} shown` : count > 0 ? String(count) : '';
  if (count === 0) {
    fill(find(id), empty(none));
    return;
  }
  table.show(groups);
  if (table.root.parentNode !== find(id)) find(id).replaceChildren(table.root);
}
