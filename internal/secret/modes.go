package secret

import (
	"fmt"
	"os"
	"path/filepath"
)

// Exposed says who else may read a file with a secret; "" if nobody may. The rule is libpq's rule for keys:
// only the owner may. If the owner is root, the group may too, as with a package's file or a Kubernetes
// secret.
func Exposed(path string) string {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	mode := info.Mode().Perm()
	switch owner, known := ownerOf(info); {
	case !known:
		return ""
	case mode&0o007 != 0:
		return fmt.Sprintf("%s has mode %04o: everybody on this machine may read it; chmod 0600", path, mode)
	case mode&0o070 != 0 && owner != 0:
		return fmt.Sprintf("%s has mode %04o: its group may read it; chmod 0600", path, mode)
	case owner != 0 && owner != os.Geteuid():
		return fmt.Sprintf("%s belongs to another user (%d), who may read and change it; chown it", path, owner)
	}
	folder := filepath.Dir(path)
	if info, err := os.Stat(folder); err == nil && info.Mode()&0o002 != 0 && info.Mode()&os.ModeSticky == 0 {
		return fmt.Sprintf("%s is in a folder with mode %04o: everybody on this machine may replace it; chmod o-w %s", path, info.Mode().Perm(), folder)
	}
	return ""
}
