package codec

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/onced/onced"
	storagev1 "github.com/onced/onced/gen/onced/storage/v1"
	"github.com/onced/onced/storage"
)

var update = flag.Bool("update", false, "rewrite the golden files: the format on disk has changed on purpose")

var testID = onced.Identity{Namespace: "tools", Key: "k", Method: "crm.v1.Tickets/Create"}

// roundTrip encodes and decodes a record, with the payloads that stand apart.
func roundTrip(t interface{ Fatalf(string, ...any) }, r *onced.Record) *onced.Record {
	key := r.ID.Encode()
	value, apart, err := EncodeRecord(key, r)
	if err != nil {
		t.Fatalf("encode: %v", err)
	}
	got, again, err := DecodeRecord(r.ID, key, value)
	if err != nil {
		t.Fatalf("decode: %v", err)
	}
	for p := PartResult; p <= Parts; p++ {
		if (apart.Of(p) == nil) != (again.Of(p) == nil) {
			t.Fatalf("part %d is apart in one direction only", p)
		}
		if apart.Of(p) == nil {
			continue
		}
		bytes := apart.Of(p).Bytes
		for _, of := range got.Payloads() {
			if of.SHA256 == apart.Of(p).SHA256 && of.Bytes == nil {
				of.Bytes = bytes
			}
		}
	}
	return got
}

func TestRecordRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawRecord(t)
		if got := roundTrip(t, want); !reflect.DeepEqual(want, got) {
			t.Fatalf("record changed:\nwant %+v\n got %+v", want, got)
		}
	})
}

// drawRecord draws a record whose fields have nothing to do with each other.
func drawRecord(t *rapid.T) *onced.Record {
	text := rapid.StringN(0, 20, 60)
	flags := rapid.SliceOfN(rapid.Bool(), 5, 5).Draw(t, "flags")
	r := &onced.Record{
		ID:     onced.Identity{Namespace: text.Draw(t, "namespace"), Key: text.Draw(t, "key"), Method: text.Draw(t, "method")},
		State:  onced.State(rapid.IntRange(1, 5).Draw(t, "state")),
		Reason: onced.Reason(rapid.SampledFrom([]int{0, 2, 3, 4}).Draw(t, "reason")),

		Attempt: rapid.Uint32().Draw(t, "attempt"), AttemptBase: rapid.Uint32().Draw(t, "base"),
		Fence: rapid.Uint64().Draw(t, "fence"), Generation: rapid.Uint64().Draw(t, "generation"),
		Revision: rapid.Uint64().Draw(t, "revision"),
		Lease:    time.Duration(rapid.Int64().Draw(t, "lease")), LeaseEnd: drawTime(t, "lease end"),
		Heard: flags[0], ByTakeover: flags[1], Doubt: flags[2], Contradicted: flags[3], ByOperator: flags[4],
		DoubtTime: drawTime(t, "doubt"), Subject: text.Draw(t, "subject"), Holder: text.Draw(t, "holder"),
		KeyTime: drawTime(t, "key time"), FirstClaimTime: drawTime(t, "first"), ClaimTime: drawTime(t, "claim"),
		ReleaseTime: drawTime(t, "release"), SettleTime: drawTime(t, "settle"), UpdateTime: drawTime(t, "update"),
		SettledBy:     onced.SettledBy(rapid.IntRange(0, 2).Draw(t, "settled by")),
		SettledDigest: drawDigest(t, "settled digest"),
		ResultExpire:  drawTime(t, "result expire"), KeyExpire: drawTime(t, "key expire"),
	}
	for range rapid.IntRange(0, 3).Draw(t, "attempts") {
		r.Attempts = append(r.Attempts, drawAttempt(t))
	}
	for range rapid.IntRange(0, 3).Draw(t, "fingerprints") {
		r.Fingerprints = append(r.Fingerprints, drawFingerprint(t))
	}
	if labels := rapid.MapOfN(text, text, 0, 3).Draw(t, "labels"); len(labels) > 0 {
		r.Labels = labels
	}
	maybe(t, "result", func() { r.Result = drawResult(t) })
	maybe(t, "failure", func() {
		r.Failure = &onced.Failure{Code: text.Draw(t, "code"), Message: text.Draw(t, "message"), Erased: rapid.Bool().Draw(t, "erased")}
		maybe(t, "details", func() { r.Failure.Details = drawResult(t) })
	})
	maybe(t, "checkpoint", func() {
		r.Checkpoint = &onced.Checkpoint{Attempt: rapid.Uint32().Draw(t, "a"), Seq: rapid.Uint64().Draw(t, "s"), Payload: *drawResult(t)}
	})
	maybe(t, "twin", func() {
		r.Twin = &onced.TwinID{Namespace: text.Draw(t, "n"), Method: text.Draw(t, "m"), Subject: text.Draw(t, "s"), Fingerprint: drawFingerprint(t)}
	})
	maybe(t, "resolve", func() {
		r.LastResolve = &onced.LastResolve{
			Resolution: onced.Resolution(rapid.IntRange(1, 4).Draw(t, "resolution")),
			Content:    drawDigest(t, "content"), Evidence: text.Draw(t, "evidence"),
		}
	})
	return r
}

func maybe(t *rapid.T, label string, fn func()) {
	if rapid.Bool().Draw(t, label) {
		fn()
	}
}

// drawTime draws the zero time, or one of the years 1 to 9999 with nanoseconds.
func drawTime(t *rapid.T, label string) time.Time {
	first, last := time.Time{}.Unix(), time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC).Unix()
	seconds := rapid.OneOf(rapid.Just(first), rapid.Int64Range(first, last)).Draw(t, label)
	return time.Unix(seconds, rapid.SampledFrom([]int64{0, 1, 999_999_999}).Draw(t, "ns")).UTC()
}

func drawDigest(t *rapid.T, label string) (d onced.Digest) {
	copy(d[:], rapid.OneOf(rapid.Just([]byte(nil)), rapid.SliceOfN(rapid.Byte(), len(d), len(d))).Draw(t, label))
	return d
}

func drawFingerprint(t *rapid.T) onced.Fingerprint {
	return onced.Fingerprint{
		Scheme: rapid.StringMatching("[a-z][a-z0-9]{0,15}").Draw(t, "scheme"),
		Digest: string(rapid.SliceOfN(rapid.Byte(), 16, 64).Draw(t, "digest")),
	}
}

func drawAttempt(t *rapid.T) onced.Attempt {
	a := onced.Attempt{
		Number: rapid.Uint32().Draw(t, "number"), Token: drawDigest(t, "token"), Fence: rapid.Uint64().Draw(t, "fence"),
		Holder: rapid.String().Draw(t, "holder"), ClaimTime: drawTime(t, "claim"),
	}
	for d := onced.NotExecuted; d <= onced.DidNotHappen; d++ {
		maybe(t, "report", func() { a.Reports = a.Reports.With(d) })
	}
	for range rapid.IntRange(0, 2).Draw(t, "facts") {
		a.Facts = append(a.Facts, onced.Fact{Failed: rapid.Bool().Draw(t, "failed"), Digest: drawDigest(t, "fact")})
	}
	return a
}

// drawResult draws a payload, of sizes on both sides of the threshold.
func drawResult(t *rapid.T) *onced.Result {
	size := rapid.SampledFrom([]int{0, 1, 100, storage.LargePayload - 1, storage.LargePayload, storage.LargePayload + 1}).Draw(t, "size")
	b := bytes.Repeat([]byte{rapid.Byte().Draw(t, "byte")}, size)
	r := onced.NewResult(rapid.String().Draw(t, "type"), rapid.Bool().Draw(t, "text"), b)
	if p := onced.Presence(rapid.IntRange(1, 3).Draw(t, "presence")); p != onced.Stored {
		r.Presence, r.Bytes = p, nil
	}
	return r
}

// goldenRecord sets every field of a record to something fixed.
func goldenRecord() *onced.Record {
	at := func(n int) time.Time { return time.Date(2026, 3, 1, 12, 0, n, 123456789, time.UTC) }
	details := onced.NewResult("text/plain", true, []byte("details"))
	progress := onced.NewResult("application/json", true, []byte(`{"step":4}`))
	return &onced.Record{
		ID: testID, State: onced.StateFailed, Reason: onced.ReasonContradicted,
		Attempt: 3, AttemptBase: 1, Fence: 7<<32 + 9, Generation: 7, Revision: 12,
		Lease: 1500 * time.Millisecond, LeaseEnd: at(1),
		Attempts: []onced.Attempt{{
			Number: 2, Token: onced.TokenDigest([]byte("token")), Fence: 7<<32 + 8, Holder: "worker-1", ClaimTime: at(2),
			Reports: onced.ReportSet(0).With(onced.NotExecuted).With(onced.Unknown),
			Facts:   []onced.Fact{{Failed: true, Digest: onced.TokenDigest([]byte("fact"))}},
		}},
		Heard: true, ByTakeover: true, Doubt: true, Contradicted: true, ByOperator: true, DoubtTime: at(3),
		Subject: "user-1", Holder: "worker-2",
		Fingerprints: []onced.Fingerprint{{Scheme: "cj1", Digest: "0123456789abcdef\xff\x00"}},
		KeyTime:      at(4), Labels: map[string]string{"team": "crm", "empty": "", "another": "x"},
		FirstClaimTime: at(5), ClaimTime: at(6), ReleaseTime: at(7), SettleTime: at(8), UpdateTime: at(9),
		SettledBy: onced.SettledByOperator,
		Result:    &onced.Result{ContentType: "application/json", Presence: onced.Omitted, Size: 20 << 20, SHA256: onced.TokenDigest([]byte("result"))},
		Failure:   &onced.Failure{Code: "ABORTED", Message: "no\nmore", Details: details, Erased: true},

		SettledDigest: onced.TokenDigest([]byte("settled")),
		Checkpoint:    &onced.Checkpoint{Attempt: 2, Seq: 1 << 63, Payload: *progress},
		ResultExpire:  at(10), KeyExpire: at(11),
		Twin: &onced.TwinID{
			Namespace: "tools", Method: "send", Subject: "user-1",
			Fingerprint: onced.Fingerprint{Scheme: "raw1", Digest: "0123456789abcdef"},
		},
		LastResolve: &onced.LastResolve{Resolution: onced.ResolveReopen, Content: onced.TokenDigest([]byte("content")), Evidence: "ticket 17"},
	}
}

// TestRecordGolden holds the bytes on disk against those of an earlier build: what
// it wrote must still be read, as the same record.
func TestRecordGolden(t *testing.T) {
	want, key := goldenRecord(), testID.Encode()
	if v := reflect.ValueOf(*want); true {
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				t.Errorf("the golden record does not set %s", v.Type().Field(i).Name)
			}
		}
	}
	value, _, err := EncodeRecord(key, want)
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "record.bin")
	if *update {
		if err := os.WriteFile(golden, value, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	stored, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(stored, value) {
		t.Errorf("the record's bytes are not those of %s: %x", golden, value)
	}
	got, _, err := DecodeRecord(testID, key, stored)
	if err != nil || !reflect.DeepEqual(want, got) {
		t.Errorf("the stored record is read as another one (%v):\nwant %+v\n got %+v", err, want, got)
	}
}

// FuzzDecodeRecord: whatever the bytes are, they are read or refused, and what is
// read survives being written again.
func FuzzDecodeRecord(f *testing.F) {
	content := func(r *onced.Record) []byte {
		value, _, err := EncodeRecord(testID.Encode(), r)
		if err != nil {
			f.Fatal(err)
		}
		return value[sealSize:]
	}
	f.Add(content(goldenRecord()))
	f.Add(content(&onced.Record{ID: testID, State: onced.StatePending}))
	f.Add(content(&onced.Record{ID: testID, State: onced.StateCompleted, Result: onced.NewResult("", false, make([]byte, storage.LargePayload))}))
	f.Fuzz(func(t *testing.T, content []byte) {
		r, _, err := DecodeRecord(testID, testID.Encode(), Seal(testID.Encode(), content))
		if err != nil {
			return
		}
		if again := roundTrip(t, r); !reflect.DeepEqual(r, again) {
			t.Errorf("record changed:\nfirst  %+v\nsecond %+v", r, again)
		}
	})
}

// TestRecordApart: the bytes of a large payload are no part of the record's value,
// and a record that says otherwise of its payload's size is not read.
func TestRecordApart(t *testing.T) {
	r := &onced.Record{ID: testID, State: onced.StateCompleted, Result: onced.NewResult("", false, make([]byte, storage.LargePayload))}
	key := testID.Encode()
	value, apart, err := EncodeRecord(key, r)
	if err != nil || apart.Of(PartResult) == nil || len(value) > 1000 {
		t.Fatalf("encode: %v, %d bytes with the record", err, len(value))
	}
	r.Result.Bytes = nil
	if again, _, err := EncodeRecord(key, r); err != nil || !bytes.Equal(again, value) {
		t.Errorf("without its bytes, which are there already, it is encoded otherwise: %v", err)
	}
	for name, spoil := range map[string]func(*storagev1.Payload){
		"smaller":   func(p *storagev1.Payload) { p.Size = storage.LargePayload - 1 },
		"not apart": func(p *storagev1.Payload) { p.Apart = false },
		"apart and not": func(p *storagev1.Payload) {
			p.Apart, p.Data, p.Size = false, make([]byte, storage.LargePayload), storage.LargePayload
		},
	} {
		m := &storagev1.Record{}
		if err := unsealMessage(key, value, m); err != nil {
			t.Fatal(err)
		}
		spoil(m.Result)
		spoiled, err := sealMessage(key, m)
		if err != nil {
			t.Fatal(err)
		}
		if got, _, err := DecodeRecord(testID, key, spoiled); err == nil {
			t.Errorf("%s: read as %+v", name, got.Result)
		}
	}
	if _, _, err := EncodeRecord(key, &onced.Record{ID: testID, State: onced.StateCompleted, Result: &onced.Result{Presence: onced.Stored, Size: 1}}); err == nil {
		t.Error("a small payload was written without its bytes")
	}
}

// TestRecordRefused: what no build can read is not written either.
func TestRecordRefused(t *testing.T) {
	for name, spoil := range map[string]func(*onced.Record){
		"state":       func(r *onced.Record) { r.State = 6 },
		"no state":    func(r *onced.Record) { r.State = 0 },
		"reason":      func(r *onced.Record) { r.Reason = 5 },
		"lapsed":      func(r *onced.Record) { r.Reason = onced.ReasonLapsed },
		"settled by":  func(r *onced.Record) { r.SettledBy = 3 },
		"resolution":  func(r *onced.Record) { r.LastResolve.Resolution = 0 },
		"presence":    func(r *onced.Record) { r.Result.Presence = 4 },
		"no presence": func(r *onced.Record) { r.Checkpoint.Payload.Presence = 0 },
		"report":      func(r *onced.Record) { r.Attempts[0].Reports = 1 << 7 },
		"size":        func(r *onced.Record) { r.Failure.Details.Size++ },
		"time":        func(r *onced.Record) { r.KeyExpire = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) },
		"text":        func(r *onced.Record) { r.Subject = "\xff" },
	} {
		r := goldenRecord()
		spoil(r)
		if _, _, err := EncodeRecord(testID.Encode(), r); err == nil {
			t.Errorf("%s: was encoded", name)
		}
	}
}

// TestNumbers: the numbers on disk are those of the domain, name by name.
func TestNumbers(t *testing.T) {
	for prefix, c := range map[string]struct {
		names map[int32]string
		name  func(int32) string
	}{
		"STATE_":       {storagev1.State_name, func(n int32) string { return onced.State(n).String() }},
		"REASON_":      {storagev1.Reason_name, func(n int32) string { return onced.Reason(n).String() }},
		"DISPOSITION_": {storagev1.Disposition_name, func(n int32) string { return onced.Disposition(n).String() }},
		"SETTLED_BY_":  {storagev1.SettledBy_name, func(n int32) string { return onced.SettledBy(n).String() }},
		"PRESENCE_":    {storagev1.Presence_name, func(n int32) string { return onced.Presence(n).String() }},
		"RESOLUTION_":  {storagev1.Resolution_name, func(n int32) string { return strings.ToUpper(onced.Resolution(n).String()) }},
	} {
		for n := range int32(50) {
			stored, domain := c.names[n], c.name(n)
			known := domain != "UNSPECIFIED" && n > 0 && domain != "LAPSED"
			if known != (stored != "" && n > 0) || known && stored != prefix+domain {
				t.Errorf("%s%d: %q on disk, %q in the domain", prefix, n, stored, domain)
			}
		}
	}
}

// TestFutureRecord: a record with anything that only a later build knows is not
// read, wherever in it that stands.
func TestFutureRecord(t *testing.T) {
	key := testID.Encode()
	for name, change := range map[string]func(*storagev1.Record){
		"state":       func(m *storagev1.Record) { m.State = 6 },
		"state 256+1": func(m *storagev1.Record) { m.State = 257 },
		"reason":      func(m *storagev1.Record) { m.Reason = 5 },
		"lapsed":      func(m *storagev1.Record) { m.Reason = 1 },
		"disposition": func(m *storagev1.Record) { m.Attempts[0].Reports[0] = 5 },
		"settled by":  func(m *storagev1.Record) { m.SettledBy = 3 },
		"presence":    func(m *storagev1.Record) { m.Result.Presence = 4 },
		"resolution":  func(m *storagev1.Record) { m.LastResolve.Resolution = 5 },
		"bytes kept":  func(m *storagev1.Record) { m.Result.Data = []byte("x") },
		"digest":      func(m *storagev1.Record) { m.SettledDigest = []byte("short") },
		"time":        func(m *storagev1.Record) { m.KeyExpire.Nanos = -1 },
		"no payload":  func(m *storagev1.Record) { m.Checkpoint.Payload = nil },
	} {
		m := goldenMessage(t)
		change(m)
		content, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if r, _, err := DecodeRecord(testID, key, Seal(key, content)); err == nil {
			t.Errorf("%s: read as %+v", name, r)
		}
	}
}

// goldenMessage is the golden record as a message.
func goldenMessage(t *testing.T) *storagev1.Record {
	t.Helper()
	value, _, err := EncodeRecord(testID.Encode(), goldenRecord())
	m := &storagev1.Record{}
	if err == nil {
		err = proto.Unmarshal(value[sealSize:], m)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}
