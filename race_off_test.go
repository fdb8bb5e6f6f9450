//go:build !race

package onced_test

// histories is how many random histories each property runs.
const histories = "1500"
