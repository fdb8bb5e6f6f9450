package main

import (
	"fmt"
	"net"
	"strings"
)

// checkAddress refuses what can never be connected to: it would look like a server
// that is down.
func checkAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	number := 0
	if err == nil {
		number, err = net.LookupPort("tcp", port)
	}
	if err != nil || number == 0 || strings.ContainsAny(host, " \t/") {
		return fmt.Errorf("--server %q is not an address: it must be host:port, such as 127.0.0.1:7443", address)
	}
	return nil
}
