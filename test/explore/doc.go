// Command explore walks the state machine of onced exhaustively: it puts the real
// transitions of the root package into a small world of callers, a network, a
// store, an operator and a clock, takes every step that is possible there, and
// checks after each that what onced promises still holds.
//
//	go run ./test/explore -callers 3 -states 5000000 -o json
//	go run ./test/explore -scenario all
//	go run ./test/explore -without fenced-unknown-ignored
//	go run ./test/explore -list
//
// The walk is breadth-first, so the counterexample that it prints is a shortest
// one. Its exit status is 1 when a property is broken, and 64 when the arguments
// are wrong. It holds two levels of the walk in memory: five million states of
// everything take about 8 GB.
//
// # The world
//
// There is one key. Up to three callers follow the client's algorithm: mint a
// token, claim, take up the answer, run or find out, report, amend the report. A
// caller mints its next token at any time, which makes a crashed process, or one
// that has given up, of the run before; what that run has sent is still under way.
//
// What has been sent can be delivered at any time, any number of times and in any
// order, and is lost when it never is. One message of each kind from each run is
// under way at most; a later one of the same kind says the same. An answer to a
// claim reaches the run if it is still waiting, and a newer answer replaces one
// that was not taken up, as a re-sent call replaces the former one.
//
// A run has at most one effect outside. It begins it only while its own lease
// clock runs, counted from the sending of the claim that was answered. A begun
// effect lands or comes to nothing, in either case before reconcile_after has
// passed. The holder of a takeover asks the outside system, whose answer is true
// at that moment, and reports it, or something false.
//
// The store restarts, is backed up and restored, sweeps, and is served for a while
// by a build that cannot read the record. Operators resolve and reopen, rightly or
// not, always naming the version that they have looked at.
//
// Time is a number of ticks of one lease. All that transitions do with time is to
// compare sums of it, so instants are told apart only as far as a comparison can
// see, and there are finitely many.
//
// # What is checked
//
// Ghosts remember what the store cannot: which runs have had their effect or still
// can, which attempts of the present history they are, the last word that onced was
// told of each, and who answers for an effect that was denied: a caller or a
// verdict that was false, or an operator who decided in spite of it. The list of
// properties is in checks.go.
//
// # Why the rules are there
//
// The table of mutants takes one rule after the other out of the real transitions,
// by changing what they are shown or what they have planned. For each there are
// bounds within which a property breaks; a test demands it. A rule for which that
// could not be done would be a rule too many.
//
// # What the model assumes
//
// An effect lands less than landTicks after its holder last had leave to begin it:
// the end of its lease by its own clock, or the report that it sent before.
// reconcile_after is exactly that long, and a lease longer where there are restores.
// The lease is needed: after a restore, holders of whom the store does not know keep
// theirs, and a takeover of what the restore has left is timed from when the store
// serves again. The mutant reconcile-after-without-lease shows it.
//
// An operator who finds no live holder has made sure that nobody is about to begin;
// after a restore onced cannot know. An operator's call ends with the store that it
// was made to: it is not repeated to a restored one.
//
// Updates are atomic and durable before they are answered, and store time never
// goes back; the conformance suite of the stores holds them to it.
//
// # What is not in the model
//
// Subjects, fingerprints, labels and holders' names; the twin guard; the bound on
// attempts and the quota; checkpoints; omitted and erased results; leases of
// different lengths; clock jumps, and a policy or retention that changes; claims
// that wait. The tests of the root package and of the server cover them.
package main
