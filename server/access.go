package server

import (
	"context"

	"google.golang.org/grpc/codes"

	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// roles is a set of what a principal may do.
type roles uint8

const (
	roleReader   roles = 1 << iota // look at operations and policies
	roleCaller                     // claim and report
	roleOperator                   // resolve, erase, list, back up
)

// principal is who calls, as far as has been proved: the identity behind a
// credential, never the credential.
type principal struct{ roles roles }

// anonymous is everyone: a server without access control is for callers of its
// own machine, and they may do everything.
var anonymous = principal{roles: roleReader | roleCaller | roleOperator}

type principalKey struct{}

// errDenied is the answer to a call that its principal has no role for.
var errDenied = newStatus(codes.PermissionDenied, errorInfo("NAMESPACE_DENIED", claimedNo),
	"the caller may not do this here; nothing was changed: ask an operator for the role that it needs")

// authenticate puts the principal of a call into its context.
func authenticate(ctx context.Context) (context.Context, error) {
	return context.WithValue(ctx, principalKey{}, anonymous), nil
}

// authorize refuses a call that its principal has no role for, and one without a
// principal. Services that are not onced's own, health and reflection, are for
// everyone.
func authorize(ctx context.Context, fullMethod string) error {
	need, restricted := requiredRoles(fullMethod)
	if who, _ := ctx.Value(principalKey{}).(principal); restricted && who.roles&need == 0 {
		return errDenied
	}
	return nil
}

// requiredRoles returns the roles of which a call needs one; restricted is false
// for services that are not onced's own. An RPC of onced's that is not named here
// is nobody's.
func requiredRoles(fullMethod string) (need roles, restricted bool) {
	switch fullMethod {
	case oncedv1.IdempotencyService_Lookup_FullMethodName, oncedv1.IdempotencyService_GetPolicy_FullMethodName:
		return roleReader | roleCaller | roleOperator, true
	case oncedv1.IdempotencyService_Claim_FullMethodName, oncedv1.IdempotencyService_Complete_FullMethodName,
		oncedv1.IdempotencyService_Fail_FullMethodName, oncedv1.IdempotencyService_Renew_FullMethodName:
		return roleCaller, true
	}
	switch service, _ := splitMethod(fullMethod); service {
	case oncedv1.OperatorService_ServiceDesc.ServiceName:
		return roleOperator, true
	case oncedv1.IdempotencyService_ServiceDesc.ServiceName:
		return 0, true
	}
	return 0, false
}
