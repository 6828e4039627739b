package report

import (
	"bufio"
	"encoding/json"
	"io"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// This file has the JSON of the commands and of leases.json. It has types of its own, because the
// types of the snapshot may change with the protocol. They follow one convention: null means
// "none", "not known" or "no limit"; amounts end in _bytes and durations in _ms. If a state says
// something, no boolean repeats it. docs/reference/json.md describes each key.

// Index is the index of a device. In JSON the processor has the index −1.
type Index int

// MarshalJSON encodes the index as accounting.IndexNumber returns it.
func (i Index) MarshalJSON() ([]byte, error) { return json.Marshal(accounting.IndexNumber(int(i))) }

// deviceOf returns the device that a request waits for; nil: any of several.
func deviceOf(t figures.TicketState) *Index { return Unless(Index(t.Device), -1) }

// roomOn returns the other device on which a request's program would have room; nil: there is none.
func roomOn(t figures.TicketState) *Index {
	if t.RoomOn == nil {
		return nil
	}
	return new(Index(*t.RoomOn))
}

// Device is a row of `gpuarb devices --json`.
type Device struct {
	Index          Index                 `json:"index"`
	Vendor         string                `json:"vendor"`
	Name           string                `json:"name"`
	UUID           *string               `json:"uuid"`
	PCI            *string               `json:"pci"`
	Parent         *int                  `json:"parent"`
	State          string                `json:"state"`
	Total          accounting.Bytes      `json:"total_bytes"`
	TotalFrom      string                `json:"total_from"`
	Reserve        accounting.Bytes      `json:"reserve_bytes"`
	Capacity       accounting.Bytes      `json:"capacity_bytes"`
	Free           accounting.Bytes      `json:"free_bytes"`
	Granted        accounting.Bytes      `json:"granted_bytes"`
	Committed      accounting.Bytes      `json:"committed_bytes"`
	Reserved       accounting.Bytes      `json:"reserved_bytes"`
	Used           accounting.Bytes      `json:"used_bytes"`
	Peak           accounting.Bytes      `json:"peak_bytes"`
	Suspended      accounting.Bytes      `json:"suspended_bytes"`
	Unmanaged      accounting.Bytes      `json:"unmanaged_bytes"`
	Overhead       accounting.Bytes      `json:"overhead_bytes"`
	Streams        int                   `json:"streams"`
	SlotsMax       *int                  `json:"slots_max"`
	SlotsCurrent   int                   `json:"slots_current"`
	SlotsScope     string                `json:"slots_scope"`
	Queue          int                   `json:"queue_depth"`
	Admitted       uint64                `json:"admitted"`
	Denied         uint64                `json:"denied"`
	AtMax          uint64                `json:"at_max"`
	Pressure       figures.PressureState `json:"pressure"`
	NamesProcesses bool                  `json:"names_processes"`
	Holders        []DeviceHolder        `json:"holders"`
	UnmanagedBy    []UnmanagedHolder     `json:"unmanaged_by"`
}

// DeviceHolder is a job that has a device as a whole, or slots on it.
type DeviceHolder struct {
	Job     uint64  `json:"job"`
	JobName *string `json:"job_name"`
	PID     int     `json:"pid"`
	UID     uint32  `json:"uid"`
	User    string  `json:"user"`
	Command string  `json:"command"`
	Kind    string  `json:"kind"`
	Slots   int     `json:"slots"`
	AgeMs   int64   `json:"age_ms"`
}

// UnmanagedHolder is a process that uses a device without gpuarb.
type UnmanagedHolder struct {
	Job     *uint64          `json:"job"`
	JobName *string          `json:"job_name"`
	Bypass  *string          `json:"bypass"`
	Charged bool             `json:"charged"` // its memory counts against the budget of the job
	PID     int              `json:"pid"`
	UID     *uint32          `json:"uid"`
	User    *string          `json:"user"`
	Command string           `json:"command"`
	Used    accounting.Bytes `json:"used_bytes"`
	AgeMs   int64            `json:"age_ms"`
}

// Lease is a row of `gpuarb ps --json` and of leases.json.
type Lease struct {
	PID        int               `json:"pid"`
	UID        uint32            `json:"uid"`
	User       string            `json:"user"`
	Device     Index             `json:"device"`
	Job        uint64            `json:"job"`
	JobName    *string           `json:"job_name"`
	State      figures.State     `json:"state"`
	Used       accounting.Bytes  `json:"used_bytes"`
	Granted    accounting.Bytes  `json:"granted_bytes"`
	Credit     accounting.Bytes  `json:"credit_bytes"`
	Away       accounting.Bytes  `json:"away_bytes"`
	Pending    accounting.Bytes  `json:"pending_bytes"`
	Budget     *accounting.Bytes `json:"budget_bytes"`
	Shared     *string           `json:"shared_budget"`
	Min        accounting.Bytes  `json:"min_bytes"`
	Peak       accounting.Bytes  `json:"peak_bytes"`
	Overhead   accounting.Bytes  `json:"overhead_bytes"`
	Excess     accounting.Bytes  `json:"excess_bytes"`
	Streams    int               `json:"streams"`
	StreamsMax int               `json:"streams_max"`
	Contexts   int               `json:"contexts"`
	Slot       bool              `json:"slot"`
	AgeMs      int64             `json:"age_ms"`
	ActiveMs   *int64            `json:"active_ms"`
	IdleMs     *int64            `json:"idle_ms"`
	UnusedMs   int64             `json:"unused_ms"`
	Util       *int              `json:"util_percent"`
	Admitted   uint64            `json:"admitted"`
	Denied     uint64            `json:"denied"`
	AtMax      uint64            `json:"at_max"`
	NSPID      *int              `json:"nspid"`
	Container  *string           `json:"container"`
	Command    string            `json:"command"`
}

// Ticket is a row of `gpuarb queue --json`.
type Ticket struct {
	Pos        int               `json:"pos"`
	Ticket     uint64            `json:"ticket"`
	PID        int               `json:"pid"`
	UID        uint32            `json:"uid"`
	User       string            `json:"user"`
	Job        uint64            `json:"job"`
	JobName    *string           `json:"job_name"`
	Device     *Index            `json:"device"`
	Wants      string            `json:"wants"`
	WantsBytes *accounting.Bytes `json:"wants_bytes"`
	WaitedMs   int64             `json:"waited_ms"`
	Reason     string            `json:"reason"`
	Text       string            `json:"text"`
	RoomOn     *Index            `json:"room_on"`
	Behind     *uint64           `json:"behind"`
	Kept       *accounting.Bytes `json:"kept_bytes"`
	Asks       []uint64          `json:"asks"`
	Returns    bool              `json:"returns"`
	Command    string            `json:"command"`
}

// Unless returns a pointer to value, or nil if value equals none.
func Unless[T comparable](value, none T) *T {
	if value == none {
		return nil
	}
	return &value
}

func deviceHolder(h figures.HolderState) DeviceHolder {
	return DeviceHolder{h.Job, Unless(h.JobName, ""), h.PID, h.UID, h.User, h.Command, string(h.Kind), h.Slots, h.AgeMs}
}

// unmanagedBy returns the JSON of a process that uses a device without gpuarb.
func unmanagedBy(u figures.UnmanagedState) UnmanagedHolder {
	holder := UnmanagedHolder{Job: Unless(u.Job, 0), JobName: Unless(u.JobName, ""), Bypass: Unless(string(u.Bypass), ""), Charged: u.Charged, PID: u.PID, Command: u.Command, Used: u.Bytes, AgeMs: u.AgeMs}
	if u.User != "" {
		holder.UID, holder.User = &u.UID, &u.User
	}
	return holder
}

// DevicesJSON writes the devices as one JSON array, an object per line.
func DevicesJSON(w io.Writer, s figures.Snapshot) error {
	return jsonLines(w, each(s.Devices, func(d figures.DeviceState) Device {
		return Device{Index: Index(d.Index), Vendor: d.Vendor, Name: d.Name, UUID: Unless(d.UUID, ""), PCI: Unless(d.PCI, ""), Parent: d.Parent, State: DeviceState(d),
			Total: d.Total, TotalFrom: string(d.TotalFrom), Reserve: d.Reserve, Capacity: d.Capacity, Free: d.Free, Granted: d.Granted, Committed: d.Committed, Reserved: d.Reserved,
			Used: d.Used, Peak: d.Peak, Suspended: d.Suspended, Unmanaged: d.Unmanaged, Overhead: d.Overhead, Streams: d.Streams,
			SlotsMax: Unless(d.SlotsMax, 0), SlotsCurrent: d.SlotsCurrent, SlotsScope: d.SlotsScope, Queue: d.Queue,
			Admitted: d.Admitted, Denied: d.Denied, AtMax: d.AtMax, Pressure: d.Pressure, NamesProcesses: !d.Unnamed,
			Holders: each(d.Holders, deviceHolder), UnmanagedBy: each(d.UnmanagedBy, unmanagedBy)}
	}))
}

// LeasesJSON writes the leases as one JSON array, an object per line.
func LeasesJSON(w io.Writer, s figures.Snapshot) error { return Style{}.LeasesJSON(w, s) }

// LeasesJSON writes the leases that are shown.
func (style Style) LeasesJSON(w io.Writer, s figures.Snapshot) error {
	return jsonLines(w, each(style.Selection.leases(leaseRows(s)), func(l leaseRow) Lease {
		row := Lease{PID: l.PID, UID: l.UID, User: l.User, Device: Index(l.Device), Job: l.Job, JobName: Unless(l.JobName, ""), State: l.State,
			Used: l.Used, Granted: l.Granted, Credit: l.Credit, Away: l.Away, Pending: l.Pending, Budget: Unless(l.Budget, accounting.Max),
			Shared: Unless(l.Shared, ""), Min: l.Min, Peak: l.Peak, Overhead: l.Overhead, Excess: l.Excess,
			Streams: l.Streams, StreamsMax: l.StreamsMax, Contexts: l.Contexts, Slot: l.Slot, AgeMs: l.AgeSeconds * 1000, UnusedMs: l.UnusedMs, Util: l.Util,
			Admitted: l.Admitted, Denied: l.Denied, AtMax: l.AtMax, NSPID: Unless(l.NSPID, 0), Container: Unless(l.Container, ""), Command: l.Command}
		if l.Active {
			row.ActiveMs = &l.ActiveMs
		} else {
			row.IdleMs = &l.IdleMs
		}
		return row
	}))
}

// QueueJSON writes the waiting requests as one JSON array, an object per line.
func QueueJSON(w io.Writer, s figures.Snapshot) error { return Style{}.QueueJSON(w, s) }

// QueueJSON writes the waiting requests that are shown.
func (style Style) QueueJSON(w io.Writer, s figures.Snapshot) error {
	return jsonLines(w, each(style.tickets(s), func(t figures.TicketState) Ticket {
		return Ticket{Pos: t.Pos, Ticket: t.Ticket, PID: t.PID, UID: t.UID, User: t.User, Job: t.Job, JobName: Unless(t.JobName, ""), Device: deviceOf(t),
			Wants: t.Wants, WantsBytes: Unless(t.WantsBytes, 0), WaitedMs: t.WaitedMs, Reason: t.Reason, Text: t.Text, RoomOn: roomOn(t), Behind: Unless(t.Behind, 0), Kept: Unless(t.Kept, 0),
			Asks: append([]uint64{}, t.Asks...), Returns: t.Returns, Command: t.Command}
	}))
}

// each makes a row of each element. The result is never nil, because JSON encodes nil as null.
func each[T, Row any](of []T, row func(T) Row) []Row {
	rows := make([]Row, len(of))
	for i := range of {
		rows[i] = row(of[i])
	}
	return rows
}

// jsonLines writes one JSON array with a line for each row.
func jsonLines[T any](w io.Writer, rows []T) error {
	out := bufio.NewWriter(w)
	out.WriteString("[")
	separator := "\n"
	for _, row := range rows {
		data, err := json.Marshal(row)
		if err != nil {
			return err
		}
		out.WriteString(separator)
		out.Write(data)
		separator = ",\n"
	}
	if len(rows) > 0 {
		out.WriteString("\n")
	}
	out.WriteString("]\n")
	return out.Flush()
}
