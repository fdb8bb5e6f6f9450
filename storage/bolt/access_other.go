//go:build windows || plan9 || solaris || aix || android

package bolt

import (
	"os"
	"time"
)

// lock leaves the lock to bbolt, which takes it when the file has been checked.
func lock(*os.File, bool, time.Duration) error { return nil }

// mayWrite leaves it to the first write.
func mayWrite(string) error { return nil }

// keepOwner gives a file the mode that another one has.
func keepOwner(f *os.File, like os.FileInfo) error { return f.Chmod(like.Mode().Perm()) }
