// This file holds what the page knows: the last hour of each device, in columns as /history has it.
// The states that arrive on /events continue it. page.js shows it; this file does not touch the
// document.

export const HOUR = 3600e3;
export const OTHERS = 0; // stands for all jobs that have no column of their own
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

/** short returns a command without the folder of its program. */
export function short(command) {
  return command.replace(/^\S*\//, '');
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

/** Track is the last hour of one device. */
export class Track {
  constructor(index) {
    this.index = index;
    this.columns = { capacity: [], reserved: [] };
    this.holders = new Map(); // job → {job, pid, user, name, used: []}
  }

  /** put sets the point at i. device is null if the point has no figures. */
  put(i, device, shares) {
    this.columns.capacity[i] = device ? device.capacity_bytes : null;
    this.columns.reserved[i] = device ? device.reserved_bytes : null;
    for (const h of this.holders.values()) h.used[i] = device ? 0 : null;
    for (const [job, share] of shares) {
      let h = this.holders.get(job);
      if (!h) {
        const known = this.columns.capacity.slice(0, i + 1);
        this.holders.set(job, h = { job, used: known.map((c) => (c === null ? null : 0)) });
      }
      Object.assign(h, { pid: share.pid, user: share.user, name: share.name });
      h.used[i] = share.used;
    }
  }

  /** drop removes the n oldest points, and the jobs without use in the remaining points. */
  drop(n) {
    for (const c of Object.values(this.columns)) c.splice(0, n);
    for (const [job, h] of this.holders) {
      h.used.splice(0, n);
      if (!h.used.some((v) => v > 0)) this.holders.delete(job);
    }
  }

  /** stack returns the jobs from the bottom up, sorted by number; OTHERS is on top. */
  stack() {
    return [...this.holders.values()].filter((h) => h.used.some((v) => v > 0))
      .sort((a, b) => (a.job === OTHERS) - (b.job === OTHERS) || a.job - b.job);
  }
}

/** Model holds everything that the page knows. */
export class Model {
  constructor() {
    this.step = 5000;
    this.state = null;
    this.events = []; // {id, time_ms, device, kind, text}, oldest first
    this.lastEvent = 0; // id of the newest event
    this.forget();
  }

  forget() {
    this.times = [];
    this.tracks = new Map();
  }

  /** load replaces the model by an answer of /history. */
  load(history) {
    this.forget();
    this.step = history.step_ms;
    this.events = history.events;
    this.lastEvent = this.events.at(-1)?.id ?? 0;
    this.times = history.times_ms;
    for (const d of history.devices) {
      const track = new Track(d.index);
      track.columns = { capacity: d.capacity_bytes, reserved: d.reserved_bytes };
      for (const h of d.holders) {
        track.holders.set(h.job, { job: h.job, pid: h.pid, user: h.user, name: h.name, used: h.used_bytes });
      }
      this.tracks.set(d.index, track);
    }
  }

  /** apply adds a state. It moves the last point until that point is a step after the point before it. */
  apply(state) {
    this.state = state;
    const n = this.times.length;
    const last = this.times[n - 1];
    let at = n;
    if (n > 1 && state.time_ms - this.times[n - 2] < this.step) at = n - 1;
    else if (n > 0 && state.time_ms - last > 4 * this.step) { // no state arrived meanwhile, so there is a gap
      this.point(n, last + this.step, null);
      at = n + 1;
    }
    this.point(at, state.time_ms, state);
    const old = this.times.findIndex((t) => t >= state.time_ms - HOUR);
    if (old > 0) {
      this.times.splice(0, old);
      for (const track of this.tracks.values()) track.drop(old);
    }
  }

  /** happen adds an event that the model does not have. It removes events that are older than an hour. */
  happen(event) {
    if (event.id <= this.lastEvent) return;
    this.lastEvent = event.id;
    this.events = this.events.filter((e) => e.time_ms >= event.time_ms - HOUR).concat(event);
  }

  point(i, time, state) {
    this.times[i] = time;
    const devices = new Map((state ? state.devices : []).map((d) => [d.index, d]));
    for (const index of devices.keys()) {
      if (this.tracks.has(index)) continue;
      const track = new Track(index);
      for (let k = 0; k < i; k++) track.put(k, null, new Map());
      this.tracks.set(index, track);
    }
    for (const [index, track] of this.tracks) {
      track.put(i, devices.get(index), state ? sharesOf(state, index) : new Map());
    }
  }

  /** eventsNear returns the events at most a step before a time, of a device or of no single device. */
  eventsNear(index, time) {
    return this.events.filter((e) => (e.device === index || e.device === null) &&
      e.time_ms > time - this.step && e.time_ms <= time);
  }
}

// APART is the number of jobs of a device that have a column of their own, as in the history.
const APART = 16;

/** sharesOf sums up the leases of a device by job. */
function sharesOf(state, index) {
  const shares = new Map();
  for (const l of state.leases) {
    if (l.device !== index) continue;
    const share = shares.get(l.job);
    if (share) share.used += l.used_bytes;
    else shares.set(l.job, { pid: l.pid, user: l.user, name: l.job_name ?? l.command, used: l.used_bytes });
  }
  if (shares.size <= APART) return shares;
  const most = [...shares].sort((a, b) => b[1].used - a[1].used);
  const rest = most.slice(APART).reduce((sum, [, s]) => sum + s.used, 0);
  return new Map([...most.slice(0, APART), [OTHERS, { pid: 0, user: '', name: '', used: rest }]]);
}
