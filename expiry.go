package onced

import "time"

// expiries returns when the bytes and the key of a record expire: the stamp
// made at settlement, or, if that is later, the retention now in force. A policy
// made longer keeps what is still there; one made shorter breaks no promise.
func expiries(r *Record, p Policy) (result, key time.Time) {
	if r.State == StateReleased {
		return time.Time{}, later(r.KeyExpire, keyExpiry(r, p, r.ReleaseTime))
	}
	return later(r.ResultExpire, r.SettleTime.Add(p.ResultRetention)),
		later(r.KeyExpire, keyExpiry(r, p, r.SettleTime))
}

// keyExpiry returns when a key that was settled or released at some moment is
// forgotten. A key time ahead of that moment, by a caller's clock that is fast,
// counts as the later one: once the key is forgotten, its key time lies before
// what is remembered, whatever skew is configured then.
func keyExpiry(r *Record, p Policy, at time.Time) time.Time {
	return later(at, r.KeyTime).Add(p.KeyRetention)
}

// expires reports whether the record may be forgotten at all. Unsettled
// operations never are, nor is what a restore made unsettled: a RELEASED of an
// earlier generation stays until it is taken over or resolved.
func expires(v View) bool {
	return v.Record.State.Settled() || v.Record.State == StateReleased && !v.restored()
}

// expired reports whether the key is no longer remembered.
func expired(v View, p Policy) bool {
	if !expires(v) {
		return false
	}
	_, key := expiries(v.Record, p)
	return !v.ExpiryTime.Before(key)
}

// dropExpiredBytes makes a settled record a tombstone when result retention has
// ended, and reports whether that changed it. A failure keeps code and message.
func dropExpiredBytes(r *Record, p Policy, expiryTime time.Time) bool {
	if !r.State.Settled() || !r.holdsBytes() {
		return false
	}
	if result, _ := expiries(r, p); expiryTime.Before(result) {
		return false
	}
	dropBytes(r)
	return true
}

// dropBytes takes the bytes of the outcome away and keeps what identifies them.
func dropBytes(r *Record) {
	r.Result = r.Result.without(Dropped)
	if f := r.Failure; f != nil {
		c := *f
		c.Details = f.Details.without(Dropped)
		r.Failure = &c
	}
}

// Sweep reclaims what has expired. It changes nothing that a caller can see:
// [Claim] and [Lookup] decide expiry by the same function, swept or not. It
// touches nothing unsettled and nothing unreadable, and it re-stamps what a
// longer retention keeps, so that the index moves with it.
func Sweep(v View, p Policy) Plan {
	r := v.Record
	if v.Unreadable || r == nil || !expires(v) {
		return Plan{}
	}
	if expired(v, p) {
		return Plan{Delete: true}
	}
	next := r.clone()
	changed := dropExpiredBytes(next, p, v.ExpiryTime)
	result, key := expiries(r, p)
	if changed || !result.Equal(r.ResultExpire) || !key.Equal(r.KeyExpire) {
		next.ResultExpire, next.KeyExpire = result, key
		return Plan{Put: next}
	}
	return Plan{}
}

// SweepTwin drops a twin entry that can stop nobody any more.
func SweepTwin(v View) Plan {
	if v.TwinUnreadable || v.Twin == nil {
		return Plan{}
	}
	due, ok := v.Twin.Due()
	return Plan{DeleteTwin: ok && !v.ExpiryTime.Before(due)}
}
