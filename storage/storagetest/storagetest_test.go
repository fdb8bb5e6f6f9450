package storagetest

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

// TestSpecimensSetEveryField: a field that is new in a record, and that no
// specimen sets, would be lost by a backend unseen.
func TestSpecimensSetEveryField(t *testing.T) {
	set := map[string]bool{}
	for _, v := range []any{
		specimens(), twinEntry(twinID("s")), auditEntry(op("k"), 1),
		someMeta(storage.Meta{Generation: 1, HistoryStart: epoch}),
	} {
		collect(set, reflect.ValueOf(v))
	}
	for field, nonzero := range set {
		if !nonzero {
			t.Errorf("no specimen sets %s", field)
		}
	}
}

// collect notes for every field of every structure below v whether some
// specimen sets it.
func collect(set map[string]bool, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			collect(set, v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			collect(set, v.Index(i))
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			collect(set, v.MapIndex(key))
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return
		}
		for i := range v.NumField() {
			field := v.Type().Name() + "." + v.Type().Field(i).Name
			set[field] = set[field] || !v.Field(i).IsZero()
			collect(set, v.Field(i))
		}
	}
}

// TestSpecimensAreFresh: scribbling over one specimen must not reach the next.
func TestSpecimensAreFresh(t *testing.T) {
	before := specimens()
	scribble(onced.View{Record: specimens()[2], Twin: twinEntry(twinID("s"))})
	if d := difference(before, specimens()); d != "" {
		t.Error(d)
	}
	if d := difference(before[2], completed(op("k"), nil)); d == "" {
		t.Error("two different records do not differ")
	}
}

// TestDifference: every change of a specimen is a difference, and is named.
func TestDifference(t *testing.T) {
	for path, change := range map[string]func(*onced.Record){
		"value.ID.Key":                 func(r *onced.Record) { r.ID.Key = "x" },
		"value.Attempts: ":             func(r *onced.Record) { r.Attempts = r.Attempts[:1] },
		"value.Attempts[1].Facts[0]":   func(r *onced.Record) { r.Attempts[1].Facts[0].Failed = true },
		"value.Attempts[0].Token":      func(r *onced.Record) { r.Attempts[0].Token[31]++ },
		"value.Labels: ":               func(r *onced.Record) { delete(r.Labels, "empty") },
		"value.Labels[empty]: missing": func(r *onced.Record) { delete(r.Labels, "empty"); r.Labels["other"] = "" },
		"value.Labels[team]":           func(r *onced.Record) { r.Labels["team"] = "" },
		"value.Result.Bytes":           func(r *onced.Record) { r.Result.Bytes[0]++ },
		"value.Result != nil":          func(r *onced.Record) { r.Result = nil },
		"value.KeyTime":                func(r *onced.Record) { r.KeyTime = r.KeyTime.Add(1) },
	} {
		changed := specimens()[2]
		change(changed)
		if d := difference(specimens()[2], changed); !strings.HasPrefix(d, path) {
			t.Errorf("%s: %q", path, d)
		}
	}
	same := specimens()[2]
	same.KeyTime = same.KeyTime.In(time.FixedZone("east", 3600))
	same.Failure, same.Attempts[0].Facts = nil, []onced.Fact{}
	if d := difference(specimens()[2], same); d != "" {
		t.Errorf("a time in another zone, and an empty slice, differ: %s", d)
	}
}

func TestGate(t *testing.T) {
	var g Gate
	if err := g.Sync(); err != nil {
		t.Fatalf("an open gate: %v", err)
	}
	release := g.HoldSync()
	held := start(g.Sync)
	linger(held)
	if held.answered() {
		t.Error("a held sync went through")
	}
	g.FailSync()
	release()
	release()
	if err := held.wait(t); err != ErrSync {
		t.Errorf("a sync that was to fail when released: %v", err)
	}
	if err := g.Sync(); err != nil {
		t.Errorf("the sync after a failed one: %v", err)
	}
}

func TestClock(t *testing.T) {
	c := NewClock()
	wall, elapsed := c.Wall(), c.Elapsed()
	c.Advance(time.Minute)
	c.StepWall(-time.Hour)
	if w, e := c.Wall().Sub(wall), c.Elapsed()-elapsed; w != time.Minute-time.Hour || e != time.Minute {
		t.Errorf("after a minute and a step back of an hour: wall %v, elapsed %v", w, e)
	}
}
