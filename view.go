package onced

import "time"

// Epoch is what a store knows of itself.
type Epoch struct {
	// Generation is the Unix second of the store's init or restore.
	Generation uint64
	// HistoryStart is when the store was made. Nothing older can be in it.
	HistoryStart time.Time
	// ReplacesLost says that the store was made to replace one that was lost, so
	// that the callers' clocks need the skew at HistoryStart too.
	ReplacesLost bool
	// BlindUntil is the end of the interval that a restore forgot: zero when
	// there is none, or when an operator has ended it.
	BlindUntil time.Time
	// ServingSince is store time when the store last became ready.
	ServingSince time.Time
}

// View is what a transition may look at: the records named by the update, read
// under their lock, and the time after the lock was taken.
type View struct {
	ID  Identity
	Now time.Time
	// ExpiryTime is what expiry is measured against: Now, or less while the
	// store doubts a jump of the clock.
	ExpiryTime time.Time
	NextFence  uint64
	Epoch      Epoch

	Record     *Record // nil: absent
	Unreadable bool    // there is a record, and this build cannot read it

	TwinID         *TwinID // the twin entry named by the update; nil: none
	Twin           *TwinEntry
	TwinUnreadable bool
}

// restored reports whether the stored record was last written before a restore.
func (v View) restored() bool { return v.Record.Generation != v.Epoch.Generation }

// Plan is what a transition asks of the store: at most the record and the twin
// entry of its view, changed together, and one audit entry. The zero Plan
// changes nothing. A plan may come with a refusal: then it adds only doubt.
type Plan struct {
	Put    *Record
	Delete bool
	// UsesFence says that Put took the view's NextFence.
	UsesFence bool

	PutTwin    *TwinEntry
	DeleteTwin bool

	Audit *AuditEntry

	Alarm   Alarm
	AlarmBy *Attempt // whose report raised the alarm
}

// Changes reports whether the plan asks for a write.
func (p Plan) Changes() bool {
	return p.Put != nil || p.Delete || p.PutTwin != nil || p.DeleteTwin || p.Audit != nil
}

// Alarm is something that the server counts and logs at error, because it means
// that an effect may have happened twice or that a decision was overruled.
type Alarm uint8

// The alarms.
const (
	AlarmNone                Alarm = iota
	AlarmContradicted              // a former holder reported an effect of an unsettled operation
	AlarmReportAfterSettled        // a former holder reported an effect of a settled operation
	AlarmSettledAfterResolve       // the last holder reported an outcome after an operator had released the operation
)

var alarmNames = [...]string{"none", "contradicted", "report_after_settled", "settled_after_resolve"}

// String returns the alarm's name as it stands in metrics and logs.
func (a Alarm) String() string { return enumName(alarmNames[:], int(a)) }

// AuditEntry is the trace of an operator's decision.
type AuditEntry struct {
	Time     time.Time
	Who      string
	Verb     string
	ID       Identity
	Evidence string
	Before   State
	After    State
}
