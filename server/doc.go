// Package server is onced on the wire: it turns gRPC requests into transitions
// of the domain, runs them in a store, and turns what they decided into answers.
//
// A handler is short: validate, decide inside an update of the store, convert.
// What is decided is the domain's business alone; this package adds what needs
// a process around it: bounds on what comes in, calls that wait, counts of
// unsettled operations, and one translation of errors to statuses.
//
// No answer leaves before the state that it was decided on is durable. The store
// sees to that, and nothing here answers from anywhere else.
package server
