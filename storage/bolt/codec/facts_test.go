package codec

import (
	"encoding/hex"
	"reflect"
	"testing"
	"time"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

var moment = time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)

func TestTwinRoundTrip(t *testing.T) {
	id := onced.TwinID{Namespace: "n", Method: "m", Subject: "s", Fingerprint: onced.Fingerprint{Scheme: "cj1", Digest: "\xff\x00"}}
	for name, want := range map[string]*onced.TwinEntry{
		"empty":     {ID: id},
		"unsettled": {ID: id, Unsettled: []onced.TwinKey{{Key: "a", ClaimTime: moment}, {Key: "b", ClaimTime: moment.Add(1)}}},
		"both":      {ID: id, Unsettled: []onced.TwinKey{{Key: "a"}}, Last: &onced.TwinKey{Key: "b", ClaimTime: moment, SettleTime: moment.Add(1)}},
	} {
		key := id.Encode()
		value, err := EncodeTwin(key, want)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := DecodeTwin(key, value); err != nil || !reflect.DeepEqual(want, got) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// TestTwinElsewhere: an entry that stands under another identity is not read.
func TestTwinElsewhere(t *testing.T) {
	key := []byte("key")
	value, err := EncodeTwin(key, &onced.TwinEntry{ID: onced.TwinID{Namespace: "n"}})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := DecodeTwin(key, value); err == nil {
		t.Errorf("read as %+v", got)
	}
}

func TestAuditRoundTrip(t *testing.T) {
	want := onced.AuditEntry{
		Time: moment, Who: "operator", Verb: "resolve", ID: testID, Evidence: "seen\n",
		Before: onced.StateUnresolved, After: onced.StateReleased,
	}
	key := []byte("key")
	value, err := EncodeAudit(key, &want)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := DecodeAudit(key, value); err != nil || !reflect.DeepEqual(want, got) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := DecodeAudit([]byte("other"), value); err == nil {
		t.Errorf("read under another key as %+v", got)
	}
}

func TestMetaRoundTrip(t *testing.T) {
	for name, want := range map[string]storage.Meta{
		"fresh": {Generation: 7, HistoryStart: moment},
		"all": {
			Generation: 1 << 63, HistoryStart: moment, ReplacesLost: true, BlindUntil: moment.Add(1),
			Memories: map[string]onced.Memory{"": {Retention: time.Hour}, "tools": {Since: moment, Retention: -1}},
		},
	} {
		value, err := EncodeMeta([]byte("key"), want)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := DecodeMeta([]byte("key"), value); err != nil || !reflect.DeepEqual(want, got) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestProgressRoundTrip(t *testing.T) {
	want := Progress{Fence: 1 << 63, Newest: moment, Sequence: 3, Audit: 4}
	value, err := EncodeProgress([]byte("key"), want)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := DecodeProgress([]byte("key"), value); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestFactsGolden holds the bytes on disk against those of an earlier build.
func TestFactsGolden(t *testing.T) {
	key := []byte("key")
	twin := &onced.TwinEntry{
		ID:        onced.TwinID{Namespace: "n", Method: "m", Subject: "s", Fingerprint: onced.Fingerprint{Scheme: "cj1", Digest: "\xff"}},
		Unsettled: []onced.TwinKey{{Key: "a", ClaimTime: moment}},
		Last:      &onced.TwinKey{Key: "b", ClaimTime: moment, SettleTime: moment.Add(1)},
	}
	for name, c := range map[string]struct {
		golden string
		encode func() ([]byte, error)
	}{
		"twin": {
			"0a130a016e12016d1a017322080a03636a311201ff12100a0161120b08c0d490cd0610959aef3a1a1d0a0162120b08c0d490cd0610959aef3a1a0b08c0d490cd0610969aef3a",
			func() ([]byte, error) { return EncodeTwin(key, twin) },
		},
		"audit": {
			"0a0b08c0d490cd0610959aef3a120377686f1a04766572622205746f6f6c732a016b321563726d2e76312e5469636b6574732f4372656174653a0865766964656e636540024803",
			func() ([]byte, error) {
				return EncodeAudit(key, &onced.AuditEntry{
					Time: moment, Who: "who", Verb: "verb", ID: testID, Evidence: "evidence",
					Before: onced.StateUnresolved, After: onced.StateReleased,
				})
			},
		},
		"meta": {
			"0807120b08c0d490cd0610959aef3a1801220b08c0d490cd0610969aef3a2a180a0012140a0b08c0d490cd0610959aef3a1080c0e285e3682a0b0a05746f6f6c7312021001",
			func() ([]byte, error) {
				return EncodeMeta(key, storage.Meta{
					Generation: 7, HistoryStart: moment, ReplacesLost: true, BlindUntil: moment.Add(1),
					Memories: map[string]onced.Memory{"": {Since: moment, Retention: time.Hour}, "tools": {Retention: 1}},
				})
			},
		},
		"progress": {
			"0880808080808080808001120b08c0d490cd0610959aef3a18032004",
			func() ([]byte, error) {
				return EncodeProgress(key, Progress{Fence: 1 << 63, Newest: moment, Sequence: 3, Audit: 4})
			},
		},
	} {
		value, err := c.encode()
		if got := hex.EncodeToString(value[sealSize:]); err != nil || got != c.golden {
			t.Errorf("%s: the bytes are %s, and were %s (%v)", name, got, c.golden, err)
		}
	}
}
