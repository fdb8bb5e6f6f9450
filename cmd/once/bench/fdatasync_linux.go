package bench

import (
	"os"
	"syscall"
)

// fdatasync syncs a file's content, and of its metadata what is needed to read it.
func fdatasync(f *os.File) error {
	for {
		if err := syscall.Fdatasync(int(f.Fd())); err != syscall.EINTR {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
