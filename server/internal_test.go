package server

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// TestEnumNumbers compares the enums of the wire with those of the domain, name
// by name: a conversion is a cast.
func TestEnumNumbers(t *testing.T) {
	for _, e := range []struct {
		wire   protoreflect.Enum
		prefix string
		name   func(protoreflect.EnumNumber) string
	}{
		{oncedv1.State(0), "STATE_", func(n protoreflect.EnumNumber) string { return onced.State(n).String() }},
		{oncedv1.Reason(0), "REASON_", func(n protoreflect.EnumNumber) string { return onced.Reason(n).String() }},
		{oncedv1.Outcome(0), "OUTCOME_", func(n protoreflect.EnumNumber) string { return onced.Outcome(n).String() }},
		{oncedv1.Disposition(0), "DISPOSITION_", func(n protoreflect.EnumNumber) string { return onced.Disposition(n).String() }},
		{oncedv1.SettledBy(0), "SETTLED_BY_", func(n protoreflect.EnumNumber) string { return onced.SettledBy(n).String() }},
		{oncedv1.TakeoverRefused(0), "TAKEOVER_REFUSED_", func(n protoreflect.EnumNumber) string { return onced.TakeoverRefusal(n).String() }},
		{oncedv1.TakeoverPolicy(0), "TAKEOVER_POLICY_", func(n protoreflect.EnumNumber) string { return onced.TakeoverPolicy(n).String() }},
	} {
		values := e.wire.Descriptor().Values()
		for i := 1; i < values.Len(); i++ {
			v := values.Get(i)
			if want := strings.TrimPrefix(string(v.Name()), e.prefix); e.name(v.Number()) != want {
				t.Errorf("%s is %d on the wire, and that is %s in the domain", v.Name(), v.Number(), e.name(v.Number()))
			}
		}
		if past := protoreflect.EnumNumber(values.Len()); e.name(past) != "UNSPECIFIED" {
			t.Errorf("%s: the domain has %s, which the wire has not", e.prefix, e.name(past))
		}
	}
}

// TestEveryReasonHasACode reads the domain's source: a reason that is added there
// needs a code here.
func TestEveryReasonHasACode(t *testing.T) {
	source, err := os.ReadFile("../errors.go")
	if err != nil {
		t.Fatal(err)
	}
	reasons := regexp.MustCompile(`RefusalReason = "([A-Z_]+)"`).FindAllStringSubmatch(string(source), -1)
	if len(reasons) < 13 {
		t.Fatalf("found %q", reasons)
	}
	for _, r := range reasons {
		st := toStatus(&onced.Refusal{Reason: onced.RefusalReason(r[1]), Message: "m"})
		if st.st.Code() == codes.Internal {
			t.Errorf("%s has no code", r[1])
		}
	}
	if st := toStatus(&onced.Refusal{Reason: "NEW"}); st.st.Code() != codes.Internal {
		t.Errorf("an unknown reason is %v", st.st.Code())
	}
}

// TestWaitersInAll: the bound of the server holds over all operations, and what
// leaves makes room.
func TestWaitersInAll(t *testing.T) {
	held := 0
	w := newWaiters(2, func(delta int) { held += delta })
	watches := make([]*watch, 3)
	for i, key := range []string{"a", "b", "c"} {
		watches[i] = w.watch(onced.Identity{Key: key})
		if ok := watches[i].hold(5); ok != (i < 2) {
			t.Errorf("hold %d: %v", i, ok)
		}
	}
	if !watches[0].hold(5) || held != 2 {
		t.Errorf("a call is held once: %d", held)
	}
	watches[0].leave()
	if !watches[2].hold(5) || held != 2 {
		t.Errorf("no room after one has left: %d", held)
	}
	watches[1].leave()
	watches[2].leave()
	if held != 0 || len(w.byOperation) != 0 {
		t.Errorf("%d held, %d watched after all have left", held, len(w.byOperation))
	}
	w.notify(onced.Identity{Key: "a"}) // nobody watches: nothing happens
}

// TestStatusesAreSmall: whatever is wrong, and however much of it, the answer fits the
// headers that it travels in.
func TestStatusesAreSmall(t *testing.T) {
	long := strings.Repeat("é", 1<<14)
	var v violations
	for range 1000 {
		v.add("field", "x%s", long)
	}
	for _, err := range []error{v.err(), &onced.Refusal{Reason: onced.RefusedQuota, Message: "x" + long}} {
		st := toStatus(err).st
		if size := len(st.Message()) + proto.Size(st.Proto()); size > 8<<10 {
			t.Errorf("%d bytes", size)
		}
		if !utf8.ValidString(st.Message()) || !strings.HasSuffix(st.Message(), "é…") {
			t.Errorf("%q", st.Message())
		}
	}
	if len(v) != greatestViolations || !strings.HasSuffix(v[0].GetDescription(), "é…") || !utf8.ValidString(v[0].GetDescription()) {
		t.Errorf("%d violations, the first %q", len(v), v[0].GetDescription())
	}
	for bytes, want := range map[int]string{20: long[:20], 19: long[:16] + "…", 18: long[:14] + "…", 3: "…"} {
		if got := cut(long[:20], bytes); got != want {
			t.Errorf("cut to %d bytes: %q, want %q", bytes, got, want)
		}
	}
}
