//go:build !linux

package bench

import "os"

// fdatasync syncs a file: there is no call for its content alone.
func fdatasync(f *os.File) error { return f.Sync() }
