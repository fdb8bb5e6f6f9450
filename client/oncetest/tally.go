package oncetest

import (
	"bytes"
	"slices"
	"sync"

	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// Twin is one act that was executed under several keys: the operations have the same
// namespace, method, subject and first fingerprint.
type Twin struct {
	Namespace, Method, Subject string
	Fingerprint                string   // as scheme:hex
	Keys                       []string // in the order of their first execution; at least two
}

// tally counts what callers were given to execute. It is safe for concurrent use; the
// zero value is ready.
type tally struct {
	mu      sync.Mutex
	grants  []*execution // in the order in which the answers reached their callers
	byFence map[uint64]*execution
}

// execution is a claim whose holder was told to execute.
type execution struct {
	act   Twin // without keys
	key   string
	fence uint64
	token []byte

	effect  bool // the holder has reported an outcome
	without bool // the holder's last word is that it did not execute
}

// counts tells whether the operation may have been executed under this claim.
func (e *execution) counts() bool { return e.effect || !e.without }

// answered takes note of an answer that has reached its caller.
func (t *tally) answered(req *oncedv1.ClaimRequest, resp *oncedv1.ClaimResponse) {
	switch resp.GetOutcome() {
	case oncedv1.Outcome_OUTCOME_GRANTED:
	case oncedv1.Outcome_OUTCOME_TAKEN_OVER:
		if req.GetTakeOverAttempt() != 0 {
			return // in order to find out
		}
	default:
		return
	}
	e := &execution{
		act: Twin{Namespace: req.GetRef().GetNamespace(), Method: req.GetRef().GetMethod(), Subject: req.GetSubject()},
		key: req.GetRef().GetKey(), fence: resp.GetOperation().GetFence(), token: bytes.Clone(req.GetClaimToken()),
	}
	if f := req.GetFingerprints(); len(f) > 0 {
		e.act.Fingerprint = f[0]
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byFence[e.fence] != nil {
		return
	}
	if t.byFence == nil {
		t.byFence = map[uint64]*execution{}
	}
	t.byFence[e.fence] = e
	t.grants = append(t.grants, e)
}

// reported takes note of what a holder says of its claim, arrived or not.
func (t *tally) reported(req any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, ok := req.(interface {
		GetFence() uint64
		GetClaimToken() []byte
	})
	if !ok {
		return
	}
	e := t.byFence[r.GetFence()]
	if e == nil || !bytes.Equal(e.token, r.GetClaimToken()) {
		return
	}
	switch req := req.(type) {
	case *oncedv1.CompleteRequest:
		e.effect = true
	case *oncedv1.FailRequest:
		switch req.GetDisposition() {
		case oncedv1.Disposition_DISPOSITION_NOT_EXECUTED, oncedv1.Disposition_DISPOSITION_DID_NOT_HAPPEN:
			e.without = true
		case oncedv1.Disposition_DISPOSITION_UNKNOWN:
			e.without = false
		case oncedv1.Disposition_DISPOSITION_FINAL:
			e.effect = true
		}
	}
}

// executions counts those under a key.
func (t *tally) executions(key string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, e := range t.grants {
		if e.key == key && e.counts() {
			n++
		}
	}
	return n
}

// twins returns the acts that were executed under several keys, in the order of their
// first execution.
func (t *tally) twins() []Twin {
	t.mu.Lock()
	defer t.mu.Unlock()
	type act struct{ namespace, method, subject, fingerprint string }
	var acts []*Twin
	byAct := map[act]*Twin{}
	for _, e := range t.grants {
		if e.act.Fingerprint == "" || !e.counts() {
			continue
		}
		a := act{e.act.Namespace, e.act.Method, e.act.Subject, e.act.Fingerprint}
		twin := byAct[a]
		if twin == nil {
			twin = &Twin{Namespace: a.namespace, Method: a.method, Subject: a.subject, Fingerprint: a.fingerprint}
			byAct[a] = twin
			acts = append(acts, twin)
		}
		if !slices.Contains(twin.Keys, e.key) {
			twin.Keys = append(twin.Keys, e.key)
		}
	}
	var twins []Twin
	for _, a := range acts {
		if len(a.Keys) > 1 {
			twins = append(twins, *a)
		}
	}
	return twins
}
