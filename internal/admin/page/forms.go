package page

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"net/http"
	"net/url"
	"time"
)

// forms tells our own forms from forged ones. It uses a token that only this process can make, for one person
// and a limited time, and the headers by which a browser says where a request comes from.
type forms struct{ key []byte }

const formLife = time.Hour

func newForms() forms {
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // never fails: https://pkg.go.dev/crypto/rand#Read
	return forms{key}
}

// token returns a token for a form that is shown to who now.
func (f forms) token(who string, now time.Time) string {
	stamp := binary.BigEndian.AppendUint64(nil, uint64(now.Add(formLife).Unix())) // #nosec G115 -- after 1970
	return base64.RawURLEncoding.EncodeToString(append(stamp, f.sign(stamp, who)...))
}

func (f forms) sign(stamp []byte, who string) []byte {
	mac := hmac.New(sha256.New, f.key)
	mac.Write(stamp)
	mac.Write([]byte(who))
	return mac.Sum(nil)
}

// The reasons for which a form is refused.
var (
	errForged = errors.New("this form did not come from this page: open the page again and repeat")
	// errNotAllowed: the client is a viewer, or has no name.
	errNotAllowed = errors.New("only an operator of http.auth may change rows, with a name and a password")

	errElse = errors.New("the request came from another site: nothing was changed")
)

// ours returns an error unless the token was made for who and is still valid.
func (f forms) ours(token, who string, now time.Time) error {
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(raw) != 8+sha256.Size {
		return errForged
	}
	stamp, mac := raw[:8], raw[8:]
	ends := time.Unix(int64(binary.BigEndian.Uint64(stamp)), 0) // #nosec G115 -- signed, or refused next
	if !hmac.Equal(mac, f.sign(stamp, who)) || now.After(ends) {
		return errForged
	}
	return nil
}

// sameOrigin returns an error unless the browser sent the request from our own page. Every current browser
// says so in Sec-Fetch-Site; older ones send Origin. One of these headers is required: clients that are not
// browsers can use the commands. https://www.w3.org/TR/fetch-metadata/#sec-fetch-site-header
func sameOrigin(r *http.Request) error {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" {
		if site == "same-origin" {
			return nil
		}
		return errElse
	}
	from, err := url.Parse(r.Header.Get("Origin"))
	if err != nil || from.Host == "" || from.Host != r.Host {
		return errElse
	}
	return nil
}
