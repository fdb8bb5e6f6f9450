package onced

import "time"

// Memory is how far back a namespace's keys are remembered, as it is persisted:
// a point before which keys may have been forgotten under an earlier
// configuration, and the key retention in force since.
type Memory struct {
	Since     time.Time
	Retention time.Duration
}

// WithRetention returns the memory under a configured key retention. What was
// forgotten under the former one stays forgotten: Since only moves forward.
func (m Memory) WithRetention(configured time.Duration, expiryTime time.Time) Memory {
	if m.Retention != 0 && m.Retention != configured {
		m.Since = later(m.Since, expiryTime.Add(-m.Retention))
	}
	m.Retention = configured
	return m
}

// MemorySince returns the moment before which the store may have forgotten keys
// of a namespace with policy p.
func MemorySince(e Epoch, p Policy, expiryTime time.Time) time.Time {
	since := later(p.MemorySince, expiryTime.Add(-p.KeyRetention))
	return later(later(since, e.HistoryStart), e.BlindUntil)
}

// forgets reports whether a key that is not found may have been used before:
// its key time lies before what the store remembers. The skew covers the
// callers' clocks where the horizon moves; a store made anew forgets nothing
// that callers could have minted for it.
func (p Policy) forgets(e Epoch, keyTime, expiryTime time.Time) bool {
	blind := !e.BlindUntil.IsZero()
	if keyTime.IsZero() {
		return blind
	}
	horizon := later(p.MemorySince, expiryTime.Add(-p.KeyRetention))
	start := e.HistoryStart
	if e.ReplacesLost {
		start = start.Add(p.Skew)
	}
	return keyTime.Before(horizon.Add(p.Skew)) || keyTime.Before(start) ||
		blind && keyTime.Before(e.BlindUntil.Add(p.Skew))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
