package bolt

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// holder names the process that has locked a file, for people, where the kernel
// tells it: not that of another container.
func holder(path string) string {
	var file unix.Stat_t
	locks, err := os.ReadFile("/proc/locks")
	if err != nil || unix.Stat(path, &file) != nil {
		return ""
	}
	inode := fmt.Sprintf("%02x:%02x:%d", unix.Major(file.Dev), unix.Minor(file.Dev), file.Ino)
	for line := range strings.Lines(string(locks)) {
		// 1: FLOCK  ADVISORY  WRITE 4711 fe:00:12345 0 EOF
		f := strings.Fields(line)
		if len(f) > 5 && f[1] == "FLOCK" && f[5] == inode && f[4] > "0" {
			return " (process " + f[4] + ")"
		}
	}
	return ""
}
