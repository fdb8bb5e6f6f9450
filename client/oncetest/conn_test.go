package oncetest

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// A call that meets the end of the server's connection was not cancelled by its
// caller, and must not look as if it was.
func TestCallsThatMeetTheEndOfAServer(t *testing.T) {
	s := New(t)
	l, _ := s.current()
	l.conn.Close()
	_, err := oncedv1.NewIdempotencyServiceClient(s.Conn()).GetPolicy(t.Context(), &oncedv1.GetPolicyRequest{Namespace: "default"})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("got %v, want UNAVAILABLE", err)
	}
}
