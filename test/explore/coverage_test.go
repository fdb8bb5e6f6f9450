package main

import (
	"strings"
	"sync"
	"testing"

	"github.com/onced/onced"
)

// cells are what the walks must come by: rows of the transition table, events in
// them, and the answers that they get. They keep the properties from holding only
// because nothing happens.
var cells = map[string]map[string]string{
	"absent": {
		"claim": "GRANTED UNRESOLVED", "Complete": "CLAIM_LOST", "NOT_EXECUTED": "CLAIM_LOST", "UNKNOWN": "CLAIM_LOST", "Renew": "CLAIM_LOST",
	},
	"PENDING": {
		"claim":    "GRANTED TAKEN_OVER IN_PROGRESS UNRESOLVED CLAIM_LOST",
		"Complete": "OK CLAIM_LOST", "FINAL": "OK CLAIM_LOST", "NOT_EXECUTED": "OK CLAIM_LOST", "UNKNOWN": "OK CLAIM_LOST",
		"DID_NOT_HAPPEN": "OK REPORT_REFUSED CLAIM_LOST", "Renew": "OK CLAIM_LOST",
		"completed": "CLAIM_LIVE", "released": "OK CLAIM_LIVE", "reopen": "REPORT_REFUSED",
	},
	"LAPSED": {
		"claim":    "TAKEN_OVER UNRESOLVED CLAIM_LOST",
		"Complete": "OK CLAIM_LOST", "FINAL": "OK CLAIM_LOST", "NOT_EXECUTED": "OK CLAIM_LOST", "UNKNOWN": "OK CLAIM_LOST",
		"DID_NOT_HAPPEN": "OK REPORT_REFUSED CLAIM_LOST", "Renew": "OK CLAIM_LOST",
		"completed": "OK", "released": "OK", "reopen": "REPORT_REFUSED",
	},
	"DECLARED": {
		"claim":    "TAKEN_OVER UNRESOLVED CLAIM_LOST",
		"Complete": "OK CLAIM_LOST", "FINAL": "OK CLAIM_LOST", "NOT_EXECUTED": "OK REPORT_REFUSED CLAIM_LOST", "UNKNOWN": "OK CLAIM_LOST",
		"DID_NOT_HAPPEN": "OK REPORT_REFUSED CLAIM_LOST", "Renew": "CLAIM_LOST",
		"completed": "OK", "released": "OK", "reopen": "REPORT_REFUSED",
	},
	"CONTRADICTED": {
		"claim":    "UNRESOLVED CLAIM_LOST",
		"Complete": "OK CLAIM_LOST", "FINAL": "CLAIM_LOST", "NOT_EXECUTED": "OK CLAIM_LOST", "UNKNOWN": "OK CLAIM_LOST",
		"DID_NOT_HAPPEN": "OK REPORT_REFUSED",
	},
	"HISTORY_LOST": {
		"claim":    "TAKEN_OVER UNRESOLVED",
		"Complete": "CLAIM_LOST", "NOT_EXECUTED": "CLAIM_LOST", "UNKNOWN": "CLAIM_LOST", "DID_NOT_HAPPEN": "CLAIM_LOST", "Renew": "CLAIM_LOST",
		"released": "OK", "reopen": "REPORT_REFUSED",
	},
	"RELEASED": {
		"claim":    "GRANTED CLAIM_LOST",
		"Complete": "OK CLAIM_LOST", "FINAL": "OK CLAIM_LOST", "NOT_EXECUTED": "OK CLAIM_LOST", "UNKNOWN": "OK CLAIM_LOST",
		"DID_NOT_HAPPEN": "OK REPORT_REFUSED CLAIM_LOST", "Renew": "CLAIM_LOST",
		"completed": "OK", "released": "OK", "reopen": "OK",
	},
	"restored RELEASED": {
		"claim": "TAKEN_OVER UNRESOLVED", "NOT_EXECUTED": "OK", "Renew": "CLAIM_LOST", "released": "OK", "reopen": "REPORT_REFUSED",
	},
	"COMPLETED": {
		"claim":    "REPLAYED",
		"Complete": "OK ALREADY_SETTLED CLAIM_LOST", "NOT_EXECUTED": "OK ALREADY_SETTLED CLAIM_LOST", "UNKNOWN": "OK ALREADY_SETTLED CLAIM_LOST",
		"DID_NOT_HAPPEN": "CLAIM_LOST", "Renew": "ALREADY_SETTLED",
		"completed": "OK ALREADY_SETTLED", "released": "REPORT_REFUSED", "reopen": "OK",
	},
	"FAILED": {
		"claim": "FAILED", "FINAL": "OK", "NOT_EXECUTED": "OK ALREADY_SETTLED", "UNKNOWN": "OK ALREADY_SETTLED CLAIM_LOST",
	},
	"UNREADABLE": {
		"claim": "RECORD_UNREADABLE", "Complete": "RECORD_UNREADABLE", "NOT_EXECUTED": "RECORD_UNREADABLE",
		"UNKNOWN": "RECORD_UNREADABLE", "DID_NOT_HAPPEN": "RECORD_UNREADABLE", "Renew": "RECORD_UNREADABLE",
	},
}

// cell is one answer in one cell of the transition table.
type cell struct{ row, event, answer string }

// TestWalksComeByTheWholeTable looks at what happens in the walks.
func TestWalksComeByTheWholeTable(t *testing.T) {
	var mu sync.Mutex
	seen := map[cell]bool{}
	t.Run("walk", func(t *testing.T) {
		for _, s := range scenarios() {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				b := s.in
				b.States = 8_000
				m := newModel(b, realRules())
				met := map[cell]bool{}
				failOnViolation(t, explore(m, func(before *world, s step, _ *world) {
					if event, ok := eventOf(s.verb); ok {
						met[cell{rowOf(m, before), event, s.note}] = true
					}
				}))
				mu.Lock()
				defer mu.Unlock()
				for c := range met {
					seen[c] = true
				}
			})
		}
	})
	for row, events := range cells {
		for event, answers := range events {
			for answer := range strings.FieldsSeq(answers) {
				if !seen[cell{row, event, answer}] {
					t.Errorf("no walk came by %s: %s → %s", row, event, answer)
				}
			}
		}
	}
}

// eventOf is the column of the table to which a step belongs: a message that
// arrives, or a decision.
func eventOf(verb string) (event string, ok bool) {
	if event, ok = strings.CutSuffix(verb, " arrives"); ok {
		return event, true
	}
	if event, ok = strings.CutPrefix(verb, "an operator decides "); ok {
		event, _, _ = strings.Cut(event, ",")
		return event, true
	}
	return "", false
}

// rowOf is the row of the transition table in which a world's operation stands.
func rowOf(m *model, w *world) string {
	op, ok, err := onced.Show(m.view(w), m.policy)
	switch {
	case err != nil:
		return "UNREADABLE"
	case !ok:
		return "absent"
	case op.State != onced.StateUnresolved:
		return op.State.String()
	case w.record.State == onced.StateReleased:
		return "restored RELEASED"
	default:
		return op.Reason.String()
	}
}
