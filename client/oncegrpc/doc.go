// Package oncegrpc makes the methods of a gRPC service run at most once for each
// idempotency key, and gives the first answer to every later try.
//
// On the server, a [Guard] stands between authentication and the handlers:
//
//	guard := oncegrpc.NewGuard(onced, oncegrpc.WithSubject(callerOf))
//	server := grpc.NewServer(grpc.ChainUnaryInterceptor(authenticate, guard.UnaryServerInterceptor()))
//
// It guards every method that is not NO_SIDE_EFFECTS in its .proto file, unless the
// method option (onced.v1.guard) or [WithSelector] say otherwise. Its caller sends a key
// in the metadata idempotency-key, or idempotency-key-bin where it is not printable ASCII,
// or in a field of the request that the option names. Streams cannot be guarded;
// [Guard.StreamServerInterceptor] refuses those that would have to be.
//
// # Answers
//
// An answer that was executed now, or is the replay of one, says which in its headers:
// onced-outcome is "executed" or "replayed", onced-key (or onced-key-bin) is the key, and
// onced-first-claim-time is when the operation was first claimed. A stored failure is
// replayed with its code, message and details.
//
// What was not executed is answered without headers, so that a client's retry policy or
// hedging may go on to another try; a handler that says that it had no effect is
// "not-executed" in the trailers. What is the guard's own answer has a
// google.rpc.ErrorInfo of the domain "onced" in the details, and but for UNAVAILABLE a
// grpc-retry-pushback-ms of -1, because a retry policy's next try would change nothing, or
// come too soon:
//
//	ABORTED               IN_PROGRESS: somebody else executes it; RetryInfo says when to ask again
//	FAILED_PRECONDITION   UNRESOLVED: an earlier try may have had its effect; nobody executes
//	FAILED_PRECONDITION   FINGERPRINT_MISMATCH, FINGERPRINT_SCHEME: the key was first used with another request
//	FAILED_PRECONDITION   ATTEMPTS_EXHAUSTED, RECORD_UNREADABLE: only an operator can go on
//	PERMISSION_DENIED     SUBJECT_MISMATCH: it was first used for somebody else
//	INVALID_ARGUMENT      KEY_REQUIRED, KEY_INVALID, KEY_AMBIGUOUS, KEY_NOT_GUARDED, ARGUMENTS_INVALID
//	UNAVAILABLE           ONCED_UNAVAILABLE: onced cannot be reached or refuses; try again under the same key
//	UNIMPLEMENTED         STREAM_NOT_GUARDED: the method streams and has side effects
//	INTERNAL              GUARD_MISCONFIGURED: a mistake of the service
//
// and with headers, because it was executed:
//
//	FAILED_PRECONDITION   FAILED: it has failed for good, by a code that is not gRPC's
//	FAILED_PRECONDITION   RESULT_UNAVAILABLE: the answer to an earlier try cannot be given any more
//	FAILED_PRECONDITION   CLAIM_LOST: it was executed now, and maybe by somebody else too
//
// # What an error of a handler means
//
// An error alone never means that nothing happened. It leaves the operation unresolved,
// unless its code is one of the method's not_executed_codes, or it is marked by
// [client.NotExecuted]: then the next try is executed. One marked by [client.Final] is the
// outcome. A panic leaves the operation unresolved, and goes on to whatever recovers it
// outside the guard.
//
// A handler is not cancelled when its caller leaves, but when its claim is lost; its
// outcome is reported all the same. [client.ClaimFromContext] is its claim, for fences,
// checkpoints and the keys of its own calls.
//
// # Clients
//
// [UnaryClientInterceptor] sends a key with every call that needs one: that of [WithKey],
// inside a guarded handler one derived from the handler's own operation, otherwise a new
// one for this call and all its gRPC retries.
package oncegrpc
