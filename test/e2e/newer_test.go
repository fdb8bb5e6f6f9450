package e2e

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/onced/onced"
	storagev1 "github.com/onced/onced/gen/onced/storage/v1"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
	"github.com/onced/onced/storage/bolt/codec"
)

// A record in a state that only a newer build knows, in the file of this one, is
// nobody's to have: it is not granted, settled, shown or replayed, its bytes stay,
// and onced check tells of it.
func TestRecordOfANewerBuild(t *testing.T) {
	dir := newStore(t)
	s := serve(t, dir)
	c := s.caller()
	pending, settled := leased("pending", time.Hour), claimOf("settled")
	pendingGrant, settledGrant := c.granted(pending), c.granted(settled)
	c.complete(completion(settled, settledGrant, "1"))
	s.stop()
	before := map[string][]byte{}
	for _, key := range []string{"pending", "settled"} {
		before[key] = fromNewerBuild(t, dir, key)
	}

	s = serve(t, dir)
	c = s.caller()
	for key, granted := range map[string]*oncedv1.ClaimResponse{"pending": pendingGrant, "settled": settledGrant} {
		holder := pending
		if key == "settled" {
			holder = settled
		}
		_, claimed := c.stub.Claim(c.ctx(), claimOf(key))
		_, resent := c.stub.Claim(c.ctx(), holder)
		_, taken := c.stub.Claim(c.ctx(), takeover(key, 1))
		_, completed := c.stub.Complete(c.ctx(), completion(holder, granted, "2"))
		_, failed := c.stub.Fail(c.ctx(), failing(holder, granted, notExecuted))
		_, renewed := c.stub.Renew(c.ctx(), renewal(holder, granted))
		_, shown := c.stub.Lookup(c.ctx(), &oncedv1.LookupRequest{Ref: refOf(key)})
		_, found := c.stub.Lookup(c.ctx(), &oncedv1.LookupRequest{Ref: &oncedv1.OperationRef{Namespace: "default", Key: key}})
		for _, err := range []error{claimed, resent, taken, completed, failed, renewed, shown, found} {
			refused(t, err, codes.FailedPrecondition, "RECORD_UNREADABLE")
		}
	}
	c.granted(claimOf("another"))
	if got := s.metric(`onced_refusals_total{namespace="other",reason="RECORD_UNREADABLE",rpc="Claim"}`); got != 6 {
		t.Errorf("%v claims of unreadable records are counted, want 6", got)
	}
	s.stop()
	for key, was := range before {
		if now := storedRecord(t, dir, key); !bytes.Equal(now, was) {
			t.Errorf("the record of %s was changed:\n%x\n%x", key, was, now)
		}
	}
	out, exit := runOnced(t, "check", "--data", dir)
	if exit != 1 || !strings.Contains(out, "records that this build cannot read: 2") {
		t.Errorf("onced check ended with status %d and does not tell of the two records:\n%s", exit, out)
	}
}

// The sweep does not touch such a record either, however long ago it would have
// been forgotten.
func TestSweepKeepsTheRecordOfANewerBuild(t *testing.T) {
	dir := inLabAnyhow(t, func(l *lab) {
		for _, key := range []string{"newer", "known"} {
			req := claimOf(key)
			l.complete(completion(req, l.granted(req), "1"))
		}
		l.down()
		was := fromNewerBuild(t, l.dir, "newer")
		l.up()
		pass(25 * time.Hour)
		l.absent("known")
		_, err := l.stub.Claim(l.ctx(), claimOf("newer"))
		refused(t, err, codes.FailedPrecondition, "RECORD_UNREADABLE")
		l.down()
		if now := storedRecord(t, l.dir, "newer"); !bytes.Equal(now, was) {
			t.Errorf("the sweep has changed the record:\n%x\n%x", was, now)
		}
		if now := storedRecord(t, l.dir, "known"); now != nil {
			t.Errorf("the sweep has not come by: the record of the other key is there")
		}
	}, retained(24*time.Hour))
	if out, exit := runOnced(t, "check", "--data", dir); exit != 1 || !strings.Contains(out, "records that this build cannot read: 1") {
		t.Errorf("onced check ended with status %d:\n%s", exit, out)
	}
}

// fromNewerBuild puts the record of a key into a state that this build does not
// know, as a newer one would have written it, and returns its bytes.
func fromNewerBuild(t testing.TB, dir, key string) (stored []byte) {
	t.Helper()
	inFile(t, dir, (*bbolt.DB).Update, func(tx *bbolt.Tx) error {
		records, at := tx.Bucket([]byte("records")), identityOf(key).Encode()
		content, err := codec.Unseal(at, records.Get(at))
		if err != nil {
			return err
		}
		record := &storagev1.Record{}
		if err := proto.Unmarshal(content, record); err != nil {
			return err
		}
		record.State = storagev1.State_STATE_FAILED + 1
		if content, err = proto.Marshal(record); err != nil {
			return err
		}
		stored = codec.Seal(at, content)
		return records.Put(at, stored)
	})
	return bytes.Clone(stored)
}

// storedRecord returns the bytes of a key's record, nil if there is none.
func storedRecord(t testing.TB, dir, key string) (stored []byte) {
	t.Helper()
	inFile(t, dir, (*bbolt.DB).View, func(tx *bbolt.Tx) error {
		stored = bytes.Clone(tx.Bucket([]byte("records")).Get(identityOf(key).Encode()))
		return nil
	})
	return stored
}

// inFile works on the data file of a store that nobody serves.
func inFile(t testing.TB, dir string, how func(*bbolt.DB, func(*bbolt.Tx) error) error, f func(*bbolt.Tx) error) {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(dir, "onced.db"), 0o600, &bbolt.Options{Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := how(db, f); err != nil {
		t.Fatal(err)
	}
}

func identityOf(key string) onced.Identity {
	return onced.Identity{Namespace: "default", Key: key, Method: "act"}
}
