package client_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// marks are the ways to say what an error means.
var marks = map[string]func(error) error{
	"not executed": client.NotExecuted,
	"final":        client.Final,
	"final with":   func(err error) error { return client.FinalWith(err, "LIMIT", 5) },
}

// A mark does not show in the status that a gRPC server sends.
func TestMarksAreNotSeenByGRPC(t *testing.T) {
	detailed, err := status.New(codes.FailedPrecondition, "declined").WithDetails(&errdetails.ErrorInfo{Reason: "LIMIT"})
	if err != nil {
		t.Fatal(err)
	}
	sent := func(err error) *status.Status { // as a gRPC server does
		s, ok := status.FromError(err)
		if !ok {
			s = status.FromContextError(err)
		}
		return s
	}
	for name, inner := range map[string]error{
		"status":            status.Error(codes.NotFound, "no such account"),
		"status, details":   detailed.Err(),
		"status, wrapped":   fmt.Errorf("charge: %w", detailed.Err()),
		"status of no name": status.Error(99, "new"),
		"plain":             errors.New("busy"),
		"cancelled":         context.Canceled,
		"deadline":          fmt.Errorf("charge: %w", context.DeadlineExceeded),
		"joined":            errors.Join(errors.New("busy"), status.Error(codes.Aborted, "later")),
	} {
		for mark, as := range marks {
			for how, marked := range map[string]error{"": as(inner), "twice ": as(as(inner))} {
				if got, want := sent(marked), sent(inner); !proto.Equal(got.Proto(), want.Proto()) {
					t.Errorf("%s%s of %s is sent as %v, want %v", how, mark, name, got, want)
				}
			}
			outer := fmt.Errorf("outer: %w", as(inner))
			if got, want := sent(outer), sent(fmt.Errorf("outer: %w", inner)); got.Code() != want.Code() && want.Code() != codes.Unknown {
				t.Errorf("%s of %s, wrapped, is sent as %v, want %v", mark, name, got, want)
			}
			if got := sent(outer).Message(); got != "outer: "+inner.Error() {
				t.Errorf("%s of %s, wrapped, says %q", mark, name, got)
			}
			if !errors.Is(as(inner), inner) || as(inner).Error() != inner.Error() {
				t.Errorf("%s of %s is %v", mark, name, as(inner))
			}
		}
	}
	for mark, as := range marks {
		if s, ok := status.FromError(as(nil)); s.Code() != codes.Unknown || !ok {
			t.Errorf("%s of nothing is %v", mark, s)
		}
	}
}

// What the marks mean to Do is not changed by the status in them: the code of a final
// failure is that of a status, if there is one, and of nothing else.
func TestCodesOfFinalFailures(t *testing.T) {
	plain, aborted := errors.New("declined"), status.Error(codes.Aborted, "later")
	for name, leg := range map[string]struct {
		err  error
		code string
	}{
		"a status":                        {client.Final(aborted), "ABORTED"},
		"two words":                       {client.Final(status.Error(codes.FailedPrecondition, "declined")), "FAILED_PRECONDITION"},
		"cancelled":                       {client.Final(status.Error(codes.Canceled, "gone")), "CANCELLED"},
		"unknown":                         {client.Final(status.Error(codes.Unknown, "?")), "UNKNOWN"},
		"no name":                         {client.Final(status.Error(99, "new")), "99"},
		"wrapped":                         {client.Final(fmt.Errorf("charge: %w", aborted)), "ABORTED"},
		"a code of its own":               {client.FinalWith(aborted, "LIMIT", nil), "LIMIT"},
		"plain":                           {client.Final(plain), ""},
		"context":                         {client.Final(context.DeadlineExceeded), ""},
		"nothing":                         {client.Final(nil), ""},
		"a marked status":                 {client.Final(client.NotExecuted(aborted)), "ABORTED"},
		"marked and plain":                {client.Final(client.NotExecuted(plain)), ""},
		"marked, wrapped and plain":       {client.Final(fmt.Errorf("charge: %w", client.NotExecuted(plain))), ""},
		"final twice, and plain":          {client.Final(client.Final(plain)), ""},
		"of another operation, and plain": {client.Final(reportedBy(t, client.NotExecuted(plain))), ""},
		"of another operation":            {client.Final(reportedBy(t, client.NotExecuted(aborted))), "ABORTED"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				if _, err := client.Do(r.Context(), r.Client, call("k"), r.failing(leg.err)); !errors.Is(err, leg.err) {
					t.Errorf("got %v", err)
				}
				_, err := client.Do(r.Context(), r.Client, call("k"), r.once("no"))
				if f := as[*client.Failed](t, err); f.Code != leg.code || f.Message != leg.err.Error() {
					t.Errorf("stored as %q, %q, want %q", f.Code, f.Message, leg.code)
				}
				r.ran(1)
			})
		})
	}
}

// reportedBy is an error as Do returns it for an operation of its own.
func reportedBy(t *testing.T, err error) (got error) {
	t.Helper()
	inBubble(t, func(r *rig) {
		_, got = client.Do(r.Context(), r.Client, call("inner"), r.failing(err))
	})
	return got
}

// The questions tell what Do does.
func TestIsFinalAndIsNotExecuted(t *testing.T) {
	plain := errors.New("busy")
	for name, leg := range map[string]struct {
		err                error
		final, notExecuted bool
	}{
		"nothing":                    {nil, false, false},
		"plain":                      {plain, false, false},
		"a status":                   {status.Error(codes.InvalidArgument, "no"), false, false},
		"final":                      {client.Final(plain), true, false},
		"final with":                 {client.FinalWith(plain, "LIMIT", nil), true, false},
		"not executed":               {client.NotExecuted(plain), false, true},
		"wrapped":                    {fmt.Errorf("charge: %w", client.NotExecuted(plain)), false, true},
		"the outer one counts":       {client.Final(client.NotExecuted(plain)), true, false},
		"joined, one is silent":      {errors.Join(client.NotExecuted(plain), plain), false, false},
		"joined, all say it":         {errors.Join(client.NotExecuted(plain), client.NotExecuted(plain)), false, true},
		"joined, one is the outcome": {errors.Join(plain, client.Final(plain), client.NotExecuted(plain)), true, false},
		"of another operation":       {reportedBy(t, client.NotExecuted(plain)), false, false},
		"final for another":          {fmt.Errorf("inner: %w", reportedBy(t, client.Final(plain))), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			if client.IsFinal(leg.err) != leg.final || client.IsNotExecuted(leg.err) != leg.notExecuted {
				t.Errorf("final: %v, not executed: %v", client.IsFinal(leg.err), client.IsNotExecuted(leg.err))
			}
			if leg.err == nil {
				return
			}
			inBubble(t, func(r *rig) {
				if _, err := client.Do(r.Context(), r.Client, call("k"), r.failing(leg.err)); err == nil {
					t.Error("no error")
				}
				want := oncedv1.State_STATE_UNRESOLVED
				switch {
				case leg.final:
					want = oncedv1.State_STATE_FAILED
				case leg.notExecuted:
					want = oncedv1.State_STATE_RELEASED
				}
				r.isIn("k", want)
			})
		})
	}
}

// Payloads are read into what they were encoded from, and into nothing else.
func TestDecodePayload(t *testing.T) {
	payload := func(media string, body string) *oncedv1.Payload {
		return &oncedv1.Payload{ContentType: media, Body: &oncedv1.Payload_Text{Text: body}}
	}
	inBubble(t, func(r *rig) {
		type limit struct{ Limit int }
		info := &errdetails.ErrorInfo{Reason: "LIMIT"}
		for name, leg := range map[string]struct{ details, into, want any }{
			"JSON":    {limit{5}, &limit{}, &limit{5}},
			"text":    {"five", new(string), new("five")},
			"bytes":   {[]byte{5}, new([]byte), new([]byte{5})},
			"message": {info, &errdetails.ErrorInfo{}, info},
		} {
			c := call("k " + name)
			if _, err := client.Do(r.Context(), r.Client, c, r.failing(client.FinalWith(errors.New("no"), "", leg.details))); err == nil {
				t.Error("no error")
			}
			_, err := client.Do(r.Context(), r.Client, c, r.once("no"))
			f := as[*client.Failed](t, err)
			if err := client.DecodePayload(f.Details, leg.into); err != nil || !same(leg.into, leg.want) {
				t.Errorf("%s: got %v, %v", name, leg.into, err)
			}
			for other, into := range map[string]any{"JSON": &limit{}, "text": new(string), "bytes": new([]byte), "message": &errdetails.RetryInfo{}} {
				if err := client.DecodePayload(f.Details, into); (err == nil) != (other == name && name != "message") {
					t.Errorf("%s into %s: %v", name, other, err)
				}
			}
		}
	})
	for name, p := range map[string]*oncedv1.Payload{
		"none": nil, "no type": payload("", "x"), "no media type": payload("a b; c", "x"), "not JSON": payload("application/json", "{"),
	} {
		var into map[string]any
		if err := client.DecodePayload(p, &into); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// same compares messages as messages, and everything else by value.
func same(got, want any) bool {
	if m, ok := got.(proto.Message); ok {
		return proto.Equal(m, want.(proto.Message))
	}
	return reflect.DeepEqual(got, want)
}
