package bolt

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"

	"github.com/onced/onced/storage/storagetest"
)

// A store that somebody else holds is waited for no longer than was asked for, a
// second if nothing was, and the error names the file. The time is the bubble's.
func TestR56_WaitIsBounded(t *testing.T) {
	for name, c := range map[string]struct {
		timeout, want time.Duration
		open          func(dir string, o Options) error
	}{
		"open":          {0, time.Second, openAndClose},
		"open, longer":  {30 * time.Second, 30 * time.Second, openAndClose},
		"open, shorter": {time.Millisecond, time.Millisecond, openAndClose},
		"check":         {0, time.Second, func(dir string, _ Options) error { _, err := Check(dir, nil); return err }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t)
				began := time.Now()
				err := c.open(h.dir, Options{Clock: h.clock, LockTimeout: c.timeout, tune: mapLittle})
				waited := time.Since(began)
				if err == nil || !strings.Contains(err.Error(), "another process holds "+filepath.Join(h.dir, fileData)) {
					t.Errorf("%v, want that another process holds the file", err)
				}
				if waited > c.want || waited < c.want-100*time.Millisecond {
					t.Errorf("waited %v, want at most %v", waited, c.want)
				}
				h.put(grant(benchmarkID(1), h.clock.Wall())) // and who holds it is not disturbed
			})
		})
	}
}

func openAndClose(dir string, o Options) error {
	s, err := Open(dir, o)
	if err == nil {
		err = s.Close()
	}
	return err
}

// Who waits gets the store when it is let go of, by a writer as by somebody who only
// looks at it, and meets all that was done.
func TestR56_WaitForTheOldOne(t *testing.T) {
	for name, reader := range map[string]bool{"a server": false, "a check": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t)
				h.put(grant(benchmarkID(1), h.clock.Wall()))
				letGo := h.store.Close
				if reader {
					if err := h.store.Close(); err != nil {
						t.Fatal(err)
					}
					db, err := bbolt.Open(filepath.Join(h.dir, fileData), 0, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
					if err != nil {
						t.Fatal(err)
					}
					letGo = db.Close
				}
				closed := make(chan error, 1)
				time.AfterFunc(20*time.Second, func() { closed <- letGo() })
				began := time.Now()
				s, err := Open(h.dir, Options{Clock: storagetest.NewClock(), LockTimeout: 30 * time.Second, tune: mapLittle})
				if err != nil {
					t.Fatal(err)
				}
				if waited := time.Since(began); waited < 20*time.Second || waited > 21*time.Second {
					t.Errorf("waited %v for a store that was held for 20 s", waited)
				}
				if err := <-closed; err != nil {
					t.Error(err)
				}
				if v, err := s.Get(context.Background(), benchmarkID(1)); err != nil || v.Record == nil {
					t.Errorf("the new one finds %v, %v", v.Record, err)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
