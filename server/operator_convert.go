package server

import (
	"slices"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// detailsToWire shows an operation to operators, without any bytes of payloads.
func detailsToWire(op *onced.Operation) *oncedv1.OperationDetails {
	wire := &oncedv1.OperationDetails{
		Operation:    operationToWire(op, false),
		Labels:       op.Labels,
		Subject:      op.Subject,
		KeyTime:      timeToWire(op.KeyTime),
		Doubt:        op.Doubt,
		Contradicted: op.Contradicted,
		ByTakeover:   op.ByTakeover,
	}
	if op.LastResolve != nil {
		wire.Evidence = op.LastResolve.Evidence
	}
	for _, f := range op.Fingerprints {
		wire.Fingerprints = append(wire.Fingerprints, f.String())
	}
	for _, a := range op.Attempts {
		wire.Attempts = append(wire.Attempts, attemptToWire(a))
	}
	return wire
}

func attemptToWire(a onced.Attempt) *oncedv1.Attempt {
	return &oncedv1.Attempt{
		Attempt: a.Number, Fence: a.Fence, Holder: a.Holder, ClaimTime: timestamppb.New(a.ClaimTime), Reports: reportsToWire(a),
	}
}

// reportsToWire returns the kinds of an attempt's accepted reports, each once, in
// the order of the kinds: when they came is not stored.
func reportsToWire(a onced.Attempt) (kinds []oncedv1.ReportKind) {
	fact := func(failed bool) bool {
		return slices.ContainsFunc(a.Facts, func(f onced.Fact) bool { return f.Failed == failed })
	}
	for _, report := range []struct {
		kind     oncedv1.ReportKind
		accepted bool
	}{
		{oncedv1.ReportKind_REPORT_KIND_COMPLETE, fact(false)},
		{oncedv1.ReportKind_REPORT_KIND_FINAL, fact(true)},
		{oncedv1.ReportKind_REPORT_KIND_NOT_EXECUTED, a.Reports.Has(onced.NotExecuted)},
		{oncedv1.ReportKind_REPORT_KIND_UNKNOWN, a.Reports.Has(onced.Unknown)},
		{oncedv1.ReportKind_REPORT_KIND_DID_NOT_HAPPEN, a.Reports.Has(onced.DidNotHappen)},
	} {
		if report.accepted {
			kinds = append(kinds, report.kind)
		}
	}
	return kinds
}
