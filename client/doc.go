// Package client is the caller's half of onced: it claims an operation, runs it
// at most once, and reports what became of it.
//
// [Do] is the main call. It mints a claim token, claims, waits while somebody
// else executes, runs a function when the claim is granted, keeps the lease
// alive meanwhile, and settles the operation with what the function returned.
// Every later call with the same key gets that first result, flagged as a
// replay:
//
//	c := client.New(conn)
//	out, err := client.Do(ctx, c, client.Call{Key: key, Method: "crm/CreateTicket"},
//		func(ctx context.Context, cl *client.Claim) (Ticket, error) {
//			return crm.Create(ctx, draft)
//		})
//
// The promise: at most one initiation per key that can have had an effect, plus
// replay of its outcome; while the outcome is not known, onced says so and
// nobody executes. The client fails closed: without a grant, and that includes
// an onced that cannot be reached and an answer that it does not know, the
// function does not run.
//
// An error of the function alone never means that nothing happened. It leaves
// the operation unresolved, and nobody executes it again until somebody finds
// out. [NotExecuted] and [Final] say more, where the function knows more.
//
// The client keeps no cache: every call asks onced.
//
// # Keys
//
// The key belongs to the caller: it is the same in every retry of one intent,
// survives a restart of the caller, and is never made by this package.
// [PerRequest], [PerArguments], [Child] and [Content] derive keys from what callers
// have: a short name, a hyphen, and the 64 hexadecimal digits of a hash, which fit
// into a header and give nothing away. No two different lists of parts share a key.
//
// Nothing here derives a key from the time, from an id that a model or a protocol
// gives to one call (a tool call's or a JSON-RPC id), from a connection or a
// conversation, or from arguments alone: all of those differ between the retries of
// one intent, or are the same in two intents.
package client
