package client

import (
	"errors"
	"reflect"
	"strings"
	"unicode/utf8"

	rpccode "google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// Bounds of a failure on the wire, in bytes.
const (
	maxFailureCode    = 64
	maxFailureMessage = 4096
)

// NotExecuted marks an error of a function that [Do] runs: this attempt certainly
// had no effect. The operation is released and the next call executes it, unless
// an earlier attempt is still in doubt. An error alone never means that: use it
// only before the first effect was begun, or after the other side has answered
// that it did nothing.
func NotExecuted(err error) error {
	return &declaration{err: orElse(err, "not executed"), disposition: oncedv1.Disposition_DISPOSITION_NOT_EXECUTED}
}

// Final marks an error of a function that [Do] runs: the failure is the outcome
// of the operation, and later callers get it as [*Failed] instead of an execution.
// It is for failures that a retry would not change. Its code is the name of the
// gRPC status in err, such as FAILED_PRECONDITION, if there is one, and its message is
// err's, cut at 4 KiB; both are shown to later callers.
func Final(err error) error { return FinalWith(err, "", nil) }

// FinalWith is [Final] with a code for programs, of at most 64 bytes, and with
// details, which are encoded as the results of [Do] are. An empty code is the one
// that Final chooses; nil means no details. Details that cannot be encoded, or are
// over the limit, are left out: the failure settles the operation all the same.
func FinalWith(err error, code string, details any) error {
	err = orElse(err, "failed")
	if c := statusCode(err); code == "" && c != codes.OK {
		code = rpccode.Code(c).String()
	}
	f := &oncedv1.Failure{Code: cut(code, maxFailureCode), Message: cut(err.Error(), maxFailureMessage)}
	if details != nil {
		f.Details = encode(reflect.TypeOf(details), details).stored
	}
	return &declaration{err: err, disposition: oncedv1.Disposition_DISPOSITION_FINAL, failure: f}
}

// statusCode is the code of the gRPC status in err, and OK if there is none. A mark has a
// status of its own, which says nothing of an error that has none.
func statusCode(err error) codes.Code {
	var s interface{ GRPCStatus() *status.Status }
	for errors.As(err, &s) {
		d, marked := s.(*declaration)
		if !marked {
			return status.Code(err)
		}
		err = d.err
	}
	return codes.OK
}

// IsNotExecuted tells whether [Do] would take an error of its function for one marked by
// [NotExecuted].
func IsNotExecuted(err error) bool {
	d := declarationOf(err)
	return d != nil && d.disposition == oncedv1.Disposition_DISPOSITION_NOT_EXECUTED
}

// IsFinal tells whether [Do] would take an error of its function for one marked by
// [Final] or [FinalWith].
func IsFinal(err error) bool {
	d := declarationOf(err)
	return d != nil && d.disposition == oncedv1.Disposition_DISPOSITION_FINAL
}

// declaration is an error that says what it means for the operation.
type declaration struct {
	err         error
	disposition oncedv1.Disposition
	failure     *oncedv1.Failure
}

func (d *declaration) Error() string { return d.err.Error() }
func (d *declaration) Unwrap() error { return d.err }

// GRPCStatus is the status of the error that is marked, as a gRPC server would send it.
// Without it the mark would show in the message. An error that has no status has the code
// that [FinalWith] gave it, if that is gRPC's.
func (d *declaration) GRPCStatus() *status.Status {
	s, ok := status.FromError(d.err)
	if code := rpccode.Code_value[d.failure.GetCode()]; !ok && code != 0 {
		return status.New(codes.Code(code), d.err.Error())
	}
	if !ok {
		s = status.FromContextError(d.err)
	}
	return s
}

// reported is an error that Do has acted upon. A declaration inside it is about that
// operation alone: where a function runs another operation by Do and returns its
// error, what it says of the inner one must not become a word on the outer one.
type reported struct{ err error }

func (r *reported) Error() string { return r.err.Error() }
func (r *reported) Unwrap() error { return r.err }

// declarationOf finds the declaration in an error of a function, or nil.
func declarationOf(err error) *declaration {
	switch e := err.(type) {
	case nil, *reported:
		return nil
	case *declaration:
		return e
	case interface{ Unwrap() error }:
		return declarationOf(e.Unwrap())
	case interface{ Unwrap() []error }:
		return declarationOfAll(e.Unwrap())
	}
	return nil
}

// declarationOfAll finds the declaration in joined errors. An outcome in one of them is
// the outcome. That nothing was executed is so only if all of them say it: an
// error beside it may be that of another effect.
func declarationOfAll(errs []error) *declaration {
	var all *declaration
	silent := false
	for _, err := range errs {
		v := declarationOf(err)
		switch {
		case v == nil:
			silent = true
		case v.disposition == oncedv1.Disposition_DISPOSITION_FINAL:
			return v
		default:
			all = v
		}
	}
	if silent {
		return nil
	}
	return all
}

func orElse(err error, text string) error {
	if err == nil {
		return errors.New(text)
	}
	return err
}

// cut makes s valid UTF-8 of at most n bytes.
func cut(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
