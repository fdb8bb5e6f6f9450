package server

import (
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// operators implements the gRPC service onced.v1.OperatorService over the same
// store and the same bookkeeping as [Service]: what an operator changes wakes
// those who wait, and counts, like what a holder reports. RPCs that are not here
// answer UNIMPLEMENTED. It is safe for concurrent use.
type operators struct {
	oncedv1.UnimplementedOperatorServiceServer
	*Service
}
