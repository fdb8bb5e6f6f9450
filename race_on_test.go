//go:build race

package onced_test

// histories is how many random histories each property runs. The race detector
// makes them slow, and has little to find in pure code.
const histories = "200"
