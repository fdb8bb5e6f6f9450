package oncegrpc

import (
	"errors"
	"slices"

	rpccode "google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/onced/onced/client"
)

// statusOf is the status as which gRPC sends an error of a handler.
func statusOf(err error) *status.Status {
	s, ok := status.FromError(err)
	if !ok {
		s = status.FromContextError(err)
	}
	if s.Code() == codes.OK {
		s = status.New(codes.Unknown, err.Error())
	}
	return s
}

// fromGuard tells whether a status is a guard's, or onced's, own. One that a handler
// returns is about another call, which the handler has made.
func fromGuard(s *status.Status) bool {
	return slices.ContainsFunc(s.Details(), func(d any) bool {
		info, ok := d.(*errdetails.ErrorInfo)
		return ok && info.GetDomain() == errorDomain
	})
}

// handedOn is the error of a handler as its caller gets it. What a guard said of another
// call, that nothing was executed for example, is not true of this one.
func handedOn(err error) error {
	s := statusOf(err)
	if client.IsNotExecuted(err) || !fromGuard(s) {
		return err
	}
	return status.Error(s.Code(), "a call that the handler made was refused: "+s.Message())
}

// classified is what an error of the handler means for the operation. A final failure is
// stored as the status that its caller gets.
func (m *method) classified(err error) error {
	switch s := statusOf(handedOn(err)); {
	case client.IsFinal(err):
		return client.FinalWith(errors.New(s.Message()), rpccode.Code(s.Code()).String(), s.Proto())
	case m.declares(err):
		return client.NotExecuted(err)
	}
	return err
}

// declares tells whether an error has a code by which the method says that it had no
// effect. Of joined errors all must say so: one beside it may be that of another effect.
// What a guard said of another call says nothing of this one.
func (m *method) declares(err error) bool {
	if e, ok := err.(interface{ GRPCStatus() *status.Status }); ok {
		s := e.GRPCStatus()
		return slices.Contains(m.notExecuted, s.Code()) && !fromGuard(s)
	}
	if e, ok := err.(interface{ Unwrap() []error }); ok {
		silent := func(err error) bool { return !client.IsNotExecuted(err) && !m.declares(err) }
		return !slices.ContainsFunc(e.Unwrap(), silent)
	}
	err = errors.Unwrap(err)
	return err != nil && m.declares(err)
}

// failureOf is the status that a stored failure is replayed as. One that was not stored
// by a guard, or whose details are gone, still has its code and message.
func failureOf(op client.Call, f *client.Failed) error {
	stored := &rpcstatus.Status{}
	if f.Details != nil && client.DecodePayload(f.Details, stored) == nil && stored.GetCode() != int32(codes.OK) {
		return status.ErrorProto(stored)
	}
	if code, ok := rpccode.Code_value[f.Code]; ok && code != int32(codes.OK) {
		return status.Error(codes.Code(code), f.Message)
	}
	facts := factsOf(op)
	facts["code"] = f.Code
	return detailed(reasonFailed, f.Error(), facts)
}
