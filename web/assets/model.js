// This file holds what the page knows: the last hour, day or week of each device, in columns as
// /history has it. The states that arrive on /events continue the hour; a longer span is loaded
// again. page.js shows it; this file does not touch the document.

export const HOUR = 3600e3;
export const OTHERS = 'others'; // key of all jobs, or all users, that have no column of their own
export const UNIT = 2 ** 30;

/** bytes formats an amount: in GiB, or in MiB if it is small. */
export function bytes(n) {
  if (n === null || n === undefined) return '–';
  if (n === 0) return '0';
  if (n < UNIT / 10) return `${round(n / 2 ** 20)} MiB`;
  return `${round(n / UNIT)} GiB`;
}

function round(x) {
  const digits = x >= 100 ? 0 : x >= 10 ? 1 : 2;
  return String(Number(x.toFixed(digits)));
}

/** short returns a command without the folders of its program and of a script. */
export function short(command) {
  return command.replace(/^\S*\//, '').replace(/^(\S+ )\/\S*\//, '$1');
}

/** span formats milliseconds for users. */
export function span(ms) {
  const s = Math.floor(ms / 1000);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor(s / 3600) % 24} h`;
}

/** clock formats a time as the time of day. */
export function clock(ms, seconds = true) {
  const style = { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' };
  if (seconds) style.second = '2-digit';
  return new Intl.DateTimeFormat(undefined, style).format(new Date(ms));
}

/** day formats a time as the day of the week and the day of the month. */
export function day(ms) {
  return new Intl.DateTimeFormat(undefined, { weekday: 'short', day: 'numeric' }).format(new Date(ms));
}

/** left returns how much of a device is neither granted nor reserved. While requests wait, new programs may get less (free_bytes). */
export function left(device) {
  return Math.max(0, device.capacity_bytes - device.committed_bytes);
}

/** unused returns how much of a device is reserved and not used. */
export function unused(device) {
  return Math.max(0, device.committed_bytes - device.granted_bytes);
}

/** keyOf returns the key of a job, or of a user if job is 0. */
const keyOf = (job, user) => (job ? `job ${job}` : user ? `user ${user}` : OTHERS);

/** Track is a span of time of one device. */
export class Track {
  constructor(index) {
    this.index = index;
    this.columns = { capacity: [], unused: [], total: [], peak: [] };
    this.stacks = { job: new Map(), user: new Map() }; // key → {key, job, pid, user, name, used: []}
  }

  /** put sets the point at i. device is null if the point has no figures. */
  put(i, device, shares) {
    const c = this.columns;
    c.capacity[i] = device ? device.capacity_bytes : null;
    c.unused[i] = device ? unused(device) : null;
    c.total[i] = device ? device.total_bytes : null;
    c.peak[i] = device ? Math.max(c.peak[i] ?? 0, device.used_bytes) : null;
    for (const [by, stack] of Object.entries(this.stacks)) {
      for (const h of stack.values()) h.used[i] = device ? 0 : null;
      for (const [key, share] of device ? shares[by] : []) {
        let h = stack.get(key);
        if (!h) stack.set(key, h = { key, used: c.capacity.slice(0, i + 1).map((n) => (n === null ? null : 0)) });
        const { used, ...facts } = share;
        Object.assign(h, facts);
        h.used[i] = used;
      }
    }
  }

  /** drop removes the n oldest points, and the jobs and users without use in the remaining points. */
  drop(n) {
    for (const c of Object.values(this.columns)) c.splice(0, n);
    for (const stack of Object.values(this.stacks)) {
      for (const [key, h] of stack) {
        h.used.splice(0, n);
        if (!h.used.some((v) => v > 0)) stack.delete(key);
      }
    }
  }

  /** stack returns the jobs, or the users, from the bottom up, sorted by number or name; OTHERS is on top. */
  stack(by) {
    return [...this.stacks[by].values()].filter((h) => h.used.some((v) => v > 0))
      .sort((a, b) => (a.key === OTHERS) - (b.key === OTHERS) || a.job - b.job || (a.user < b.user ? -1 : 1));
  }
}

/** Model holds everything that the page knows. */
export class Model {
  constructor() {
    this.step = 5000;
    this.span = HOUR;
    this.state = null;
    this.events = []; // {id, time_ms, device, kind, text}, oldest first
    this.lastEvent = 0; // id of the newest event
    this.forget();
  }

  forget() {
    this.times = [];
    this.tracks = new Map();
  }

  /** live reports whether states continue the columns. The points of a longer span are averages, which only the server has. */
  get live() { return this.span <= HOUR; }

  /** load replaces the model by an answer of /history. */
  load(history) {
    this.forget();
    this.step = history.step_ms;
    this.span = history.span_ms;
    this.events = history.events;
    this.lastEvent = Math.max(this.lastEvent, this.events.at(-1)?.id ?? 0);
    this.times = history.times_ms;
    for (const d of history.devices) {
      const track = new Track(d.index);
      track.columns = { capacity: d.capacity_bytes, unused: d.reserved_unused_bytes, total: d.total_bytes, peak: d.peak_bytes };
      for (const [by, all] of [['job', d.holders], ['user', d.users]]) {
        for (const h of all) {
          const key = keyOf(h.job, h.user);
          track.stacks[by].set(key, { key, job: h.job, pid: h.pid, user: h.user, name: h.name, used: h.used_bytes });
        }
      }
      this.tracks.set(d.index, track);
    }
  }

  /** apply adds a state. It replaces the last point, unless that point is already a step after the point before it. */
  apply(state) {
    this.state = state;
    for (const { index } of state.devices) {
      if (this.tracks.has(index)) continue;
      const track = new Track(index);
      for (let k = 0; k < this.times.length; k++) track.put(k, null);
      this.tracks.set(index, track);
    }
    if (!this.live) return;
    const n = this.times.length;
    const last = this.times[n - 1];
    let at = n;
    if (n > 1 && state.time_ms - this.times[n - 2] < this.step) at = n - 1;
    else if (n > 0 && state.time_ms - last > 4 * this.step) { // no state arrived meanwhile, so there is a gap
      this.point(n, last + this.step, null);
      at = n + 1;
    }
    this.point(at, state.time_ms, state);
    const old = this.times.findIndex((t) => t >= state.time_ms - this.span);
    if (old > 0) {
      this.times.splice(0, old);
      for (const track of this.tracks.values()) track.drop(old);
    }
  }

  /** happen adds an event that the model does not have. It removes events that are older than the span. */
  happen(event) {
    if (event.id <= this.lastEvent) return;
    this.lastEvent = event.id;
    this.events = this.events.filter((e) => e.time_ms >= event.time_ms - this.span).concat(event);
  }

  point(i, time, state) {
    this.times[i] = time;
    const devices = new Map((state ? state.devices : []).map((d) => [d.index, d]));
    for (const [index, track] of this.tracks) track.put(i, devices.get(index) ?? null, state ? sharesOf(state, index) : null);
  }

  /** eventsNear returns the events at most a step before a time, of a device or of no single device. */
  eventsNear(index, time) {
    return this.events.filter((e) => (e.device === index || e.device === null) &&
      e.time_ms > time - this.step && e.time_ms <= time);
  }
}

// APART is the number of jobs, and of users, of a device that have a column of their own.
const APART = 16;

/** sharesOf sums up the leases of a device by job and by user. */
function sharesOf(state, index) {
  const shares = { job: new Map(), user: new Map() };
  const add = (by, key, facts, used) => {
    const share = shares[by].get(key);
    if (share) share.used += used;
    else shares[by].set(key, { ...facts, used });
  };
  for (const l of state.leases) {
    if (l.device !== index) continue;
    add('job', keyOf(l.job), { job: l.job, pid: l.pid, user: l.user, name: l.job_name ?? l.command }, l.used_bytes);
    add('user', keyOf(0, l.user), { job: 0, pid: 0, user: l.user, name: '' }, l.used_bytes);
  }
  return { job: largest(shares.job), user: largest(shares.user) };
}

/** largest returns the APART largest shares, and one for all others. */
function largest(shares) {
  if (shares.size <= APART) return shares;
  const most = [...shares].sort((a, b) => b[1].used - a[1].used);
  const rest = most.slice(APART).reduce((sum, [, s]) => sum + s.used, 0);
  return new Map([...most.slice(0, APART), [OTHERS, { job: 0, pid: 0, user: '', name: '', used: rest }]]);
}
