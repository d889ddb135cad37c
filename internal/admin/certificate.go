package admin

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// certificate is a pair of files that may be replaced while the process runs.
type certificate struct {
	certFile, keyFile string

	mu       sync.Mutex
	loaded   *tls.Certificate
	changed  time.Time // modification time of the loaded files
	lookedAt time.Time
}

// lookEvery is the shortest time between two checks of the files.
const lookEvery = 10 * time.Second

// get returns the present certificate. If a new one cannot be read (yet), the previous one stays in use.
func (c *certificate) get(now time.Time) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.loaded != nil && now.Sub(c.lookedAt) < lookEvery {
		return c.loaded, nil
	}
	c.lookedAt = now
	changed, err := newest(c.certFile, c.keyFile)
	if err == nil && (c.loaded == nil || !changed.Equal(c.changed)) {
		var pair tls.Certificate
		if pair, err = tls.LoadX509KeyPair(c.certFile, c.keyFile); err == nil {
			c.loaded, c.changed = &pair, changed
		}
	}
	if c.loaded == nil {
		return nil, fmt.Errorf("read the certificate of http.tls: %w", err)
	}
	return c.loaded, nil
}

func newest(files ...string) (time.Time, error) {
	var at time.Time
	var errs []error
	for _, name := range files {
		info, err := os.Stat(name)
		if err == nil && info.ModTime().After(at) {
			at = info.ModTime()
		}
		errs = append(errs, err)
	}
	return at, errors.Join(errs...)
}
