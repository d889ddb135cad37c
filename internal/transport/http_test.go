package transport

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// A secret goes to the host that it is meant for and to no other, and does not leave the machine
// unencrypted.
func TestASecretGoesNowhereElse(t *testing.T) {
	var seen atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { seen.Add(1) }))
	t.Cleanup(other.Close)
	status := http.StatusFound
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, status)
	}))
	t.Cleanup(server.Close)
	encrypted := server.Client().Transport.(*http.Transport).TLSClientConfig
	theirs := &http.Client{Transport: &http.Transport{TLSClientConfig: encrypted, Proxy: Proxy, DisableKeepAlives: true}}
	for name, client := range map[string]*http.Client{"ours": NewClient(encrypted, true), "of others": theirs} {
		for _, status = range []int{301, 302, 303, 307, 308} {
			res, err := client.Post(server.URL, "text/plain", strings.NewReader("hunter2"))
			if err == nil || !strings.Contains(err.Error(), "redirects to "+other.URL) {
				t.Errorf("%s, %d: %v", name, status, err)
			}
			if res != nil {
				_ = res.Body.Close()
			}
		}
	}
	if n := seen.Load(); n > 0 {
		t.Errorf("%d requests went to the other server", n)
	}
	for address, want := range map[string]string{other.URL: "", "http://192.0.2.1:1/": "it is on another machine"} {
		res, err := NewClient(nil, false).Get(address)
		switch {
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v", address, err)
		case res != nil:
			_ = res.Body.Close()
		}
	}
}
