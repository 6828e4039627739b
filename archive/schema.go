package archive

// This file has the tables of the store, as steps: each step brings a file from one version to the next.

// steps are the changes of the schema. A file of version n has had the first n steps. A step is never changed after a release; a new
// version adds a step.
//
// Times are Unix times in milliseconds, sums are byte-seconds, and user, grp, name, command, program, unit and
// daemon are numbers of rows of texts.
var steps = []string{
	`CREATE TABLE texts (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);
	CREATE TABLE devices (id INTEGER PRIMARY KEY, uuid TEXT NOT NULL, number INTEGER NOT NULL, UNIQUE (uuid, number));
	CREATE TABLE jobs (
		id INTEGER PRIMARY KEY,
		daemon INTEGER NOT NULL, -- text: the daemon that counted
		job INTEGER NOT NULL,    -- number of the job
		key TEXT NOT NULL,       -- identifies the job over restarts of the daemon
		uid INTEGER NOT NULL,
		user INTEGER NOT NULL, grp INTEGER NOT NULL, name INTEGER NOT NULL, command INTEGER NOT NULL, program INTEGER NOT NULL, unit INTEGER NOT NULL,
		path INTEGER NOT NULL DEFAULT 0, -- not used: 0
		began INTEGER NOT NULL, seen INTEGER NOT NULL, ended INTEGER NOT NULL, -- ended 0: it goes on
		how TEXT NOT NULL, code INTEGER NOT NULL,
		reasons TEXT NOT NULL,   -- JSON: refused requests by reason
		refusal TEXT NOT NULL, lacked INTEGER NOT NULL,
		peak INTEGER NOT NULL,   -- largest peak on one device
		UNIQUE (daemon, job));
	CREATE INDEX jobs_key ON jobs (key);
	CREATE INDEX jobs_program ON jobs (uid, program, ended);
	CREATE INDEX jobs_open ON jobs (ended) WHERE ended = 0;
	CREATE TABLE uses (
		job INTEGER NOT NULL, device INTEGER NOT NULL, hour INTEGER NOT NULL,
		since INTEGER NOT NULL, until INTEGER NOT NULL,
		held REAL NOT NULL, granted REAL NOT NULL, reserved REAL NOT NULL, committed REAL NOT NULL, suspended REAL NOT NULL,
		peak INTEGER NOT NULL, idle INTEGER NOT NULL, waits INTEGER NOT NULL, waited INTEGER NOT NULL, refused INTEGER NOT NULL,
		PRIMARY KEY (job, device, hour)) WITHOUT ROWID;
	CREATE TABLE minutes (
		minute INTEGER NOT NULL, device INTEGER NOT NULL,
		used INTEGER NOT NULL, reserved INTEGER NOT NULL, grantable INTEGER NOT NULL, unmanaged INTEGER NOT NULL, total INTEGER NOT NULL,
		PRIMARY KEY (minute, device)) WITHOUT ROWID;`,
	`CREATE INDEX jobs_seen ON jobs (seen)`, // for the latest jobs, and the oldest
}

// tablesOfAll fails if the file lacks a table or one of its columns.
const tablesOfAll = `SELECT t.text, d.uuid, d.number, j.daemon, j.job, j.key, j.uid, j.path, j.peak, j.lacked, u.device, u.hour, u.since, u.until, u.refused, m.minute, m.total
	FROM texts t, devices d, jobs j, uses u, minutes m LIMIT 0`
