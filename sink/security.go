package sink

import (
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/aws/aws-msk-iam-sasl-signer-go/signer"
	"github.com/rcrowley/go-metrics"
	"github.com/xdg-go/scram"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/outbox-cdc/outbox-cdc/internal/secret"
	"github.com/outbox-cdc/outbox-cdc/internal/transport"
)

// TLS says how connections are encrypted. All files are in PEM format.
type TLS struct {
	// CAFile has the certificate authorities to trust. Empty: the system's.
	CAFile string
	// CertFile and KeyFile are our own certificate and its key, for mutual TLS. Both are set, or none.
	CertFile, KeyFile string
	// ServerName is verified instead of the broker's host name.
	ServerName string
	// Insecure accepts any certificate. For tests only.
	Insecure bool
}

// SASL says how we authenticate.
type SASL struct {
	// Mechanism is one of the names in package transport.
	Mechanism string
	// Username and Password are for PLAIN and SCRAM.
	Username, Password string
	// PasswordNow, if set, is read for each connection, in place of Password.
	PasswordNow secret.Reader
	// OAuth is for OAUTHBEARER.
	OAuth OAuth
	// Region is for AWS_MSK_IAM. Credentials come from the usual AWS places.
	Region string
}

// OAuth is the source of tokens: TokenNow, or client credentials (RFC 6749, section 4.4).
type OAuth struct {
	// TokenNow is read for each connection. It returns a token that somebody else fetches.
	TokenNow secret.Reader

	TokenURL, ClientID string
	// SecretNow is read for each token. It returns the client's secret.
	SecretNow secret.Reader
	// AssertionNow returns a JWT, in place of SecretNow (RFC 7523, section 2.2).
	AssertionNow secret.Reader
	Scopes       []string
	// Extensions are SASL extensions (KIP-342), such as logicalCluster.
	Extensions map[string]string
}

// now reads the files and returns the configuration.
func (t *TLS) now() (*tls.Config, error) {
	c := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         t.ServerName,
		InsecureSkipVerify: t.Insecure, //nolint:gosec // asked for, and documented as for tests
	}
	if t.CAFile != "" {
		pem, err := secret.ReadFile(t.CAFile, maxPEM)
		if err != nil {
			return nil, fmt.Errorf("reading ca_file: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca_file %s holds no PEM certificate", t.CAFile)
		}
	}
	if (t.CertFile == "") != (t.KeyFile == "") {
		return nil, fmt.Errorf("cert_file and key_file go together: give both or none")
	}
	if t.CertFile == "" {
		return c, nil
	}
	cert, err := t.pair()
	if err != nil {
		return nil, fmt.Errorf("reading cert_file and key_file: %w", err)
	}
	c.Certificates = []tls.Certificate{cert}
	return c, nil
}

// maxPEM is the maximum size of a file in bytes. The authorities of a whole system take some 200 KiB.
const maxPEM = 4 << 20

func (t *TLS) pair() (tls.Certificate, error) {
	cert, err := secret.ReadFile(t.CertFile, maxPEM)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := secret.ReadFile(t.KeyFile, maxPEM)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(cert, key)
}

func (s *SASL) apply(conf *sarama.Config, allowPlaintext bool) error {
	if s == nil {
		return nil
	}
	net := &conf.Net.SASL
	net.Enable, net.Handshake, net.Version = true, true, sarama.SASLHandshakeV1
	net.User, net.Password = s.Username, s.Password
	if s.PasswordNow != nil && s.Password == "" {
		net.Password = "asked for with each connection" // for Validate
	}
	switch s.Mechanism {
	case transport.SASLPlain:
		net.Mechanism = sarama.SASLTypePlaintext
	case transport.SASLScramSHA256:
		net.Mechanism = sarama.SASLTypeSCRAMSHA256
		net.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: sha256.New} }
	case transport.SASLScramSHA512:
		net.Mechanism = sarama.SASLTypeSCRAMSHA512
		net.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: sha512.New} }
	case transport.SASLOAuthBearer:
		net.Mechanism = sarama.SASLTypeOAuth
		p := &oauthProvider{OAuth: s.OAuth, client: transport.NewClient(nil, allowPlaintext)}
		net.TokenProvider = tokenProvider{context.Background(), p.token, p.refused}
	case transport.SASLAWSMSKIAM:
		net.Mechanism = sarama.SASLTypeOAuth
		sign := func(ctx context.Context) (*sarama.AccessToken, error) { return mskToken(ctx, s.Region) }
		net.TokenProvider = tokenProvider{context.Background(), sign, func() {}} // each connection has a token of its own
	default:
		return fmt.Errorf("mechanism %q is not known", s.Mechanism)
	}
	return s.complete()
}

// complete checks that everything the mechanism needs is set.
func (s *SASL) complete() error {
	var missing []string
	need := func(name string, given bool) {
		if !given {
			missing = append(missing, name)
		}
	}
	switch s.Mechanism {
	case transport.SASLOAuthBearer:
		need("client_id", s.OAuth.ClientID != "" || s.OAuth.TokenNow != nil)
		need("token_url", s.OAuth.TokenURL != "" || s.OAuth.TokenNow != nil)
	case transport.SASLAWSMSKIAM:
		need("region", s.Region != "")
	default:
		need("password", s.Password != "" || s.PasswordNow != nil)
		need("username", s.Username != "")
	}
	if missing == nil {
		return nil
	}
	return fmt.Errorf("mechanism %s needs %s", s.Mechanism, strings.Join(missing, " and "))
}

// scramClient adapts a SCRAM conversation (RFC 5802) to sarama's interface.
type scramClient struct {
	*scram.ClientConversation
	hash scram.HashGeneratorFcn
}

func (c *scramClient) Begin(user, password, authzID string) error {
	client, err := c.hash.NewClient(user, password, authzID)
	if err != nil {
		return fmt.Errorf("beginning SCRAM as %s: %w", user, err)
	}
	c.ClientConversation = client.NewConversation()
	return nil
}

// tokenProvider gives tokens to sarama.
type tokenProvider struct {
	ctx     context.Context // the life of one Run
	fetch   func(context.Context) (*sarama.AccessToken, error)
	refused func() // a broker did not take the token
}

// Token is called by sarama for each connection.
func (p tokenProvider) Token() (*sarama.AccessToken, error) {
	ctx, cancel := context.WithTimeout(p.ctx, 10*time.Second)
	defer cancel()
	return p.fetch(ctx)
}

// oauthProvider fetches tokens and keeps each until it expires or is refused.
type oauthProvider struct {
	OAuth
	client *http.Client

	mu   sync.Mutex
	kept *oauth2.Token
}

func (p *oauthProvider) token(ctx context.Context) (*sarama.AccessToken, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	if p.TokenNow != nil { // its source knows how long the token is valid
		p.kept = &oauth2.Token{}
		if p.kept.AccessToken, err = p.TokenNow.Read(ctx); err != nil {
			return nil, fmt.Errorf("could not read the OAuth token: %w", err)
		}
	} else if !p.kept.Valid() {
		if p.kept, err = p.fetch(ctx); err != nil {
			return nil, err
		}
	}
	return &sarama.AccessToken{Token: p.kept.AccessToken, Extensions: p.Extensions}, nil
}

// assertionType says that a JWT authenticates the client (RFC 7523, section 2.2).
const assertionType = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

func (p *oauthProvider) fetch(ctx context.Context) (*oauth2.Token, error) {
	client := clientcredentials.Config{ClientID: p.ClientID, TokenURL: p.TokenURL, Scopes: p.Scopes}
	proof, name := p.SecretNow, "client_secret"
	if p.AssertionNow != nil {
		proof, name = p.AssertionNow, "client_assertion"
	}
	if proof != nil {
		text, err := proof.Read(ctx)
		switch {
		case err != nil:
			return nil, fmt.Errorf("could not read %s: %w", name, err)
		case p.AssertionNow != nil:
			client.AuthStyle = oauth2.AuthStyleInParams
			client.EndpointParams = url.Values{"client_assertion_type": {assertionType}, "client_assertion": {text}}
		default:
			client.ClientSecret = text
		}
	}
	token, err := client.Token(context.WithValue(ctx, oauth2.HTTPClient, p.client))
	if err != nil {
		if proof != nil {
			proof.Refused()
		}
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // the error's text has the URL with its parameters
		}
		return nil, fmt.Errorf("fetching an OAuth token: %w", err)
	}
	return token, nil
}

// refused forgets a token that a broker did not take.
func (p *oauthProvider) refused() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept = nil
	if p.TokenNow != nil {
		p.TokenNow.Refused()
	}
}

// mskToken returns a token that AWS credentials have signed.
func mskToken(ctx context.Context, region string) (*sarama.AccessToken, error) {
	token, _, err := signer.GenerateAuthToken(ctx, region)
	if err != nil {
		return nil, fmt.Errorf("signing an AWS MSK IAM token for region %s: %w", region, err)
	}
	return &sarama.AccessToken{Token: token}, nil
}

// silent is a registry that keeps no metrics. sarama's own metrics would cost time for each batch, and a
// goroutine that never ends; ours tell more.
type silent struct{}

var _ metrics.Registry = silent{}

func (silent) Each(func(string, any)) {}
func (silent) Get(string) any         { return nil }
func (silent) GetOrRegister(_ string, metric any) any {
	switch metric.(type) {
	case func() metrics.Meter, metrics.Meter:
		return metrics.NilMeter{}
	case func() metrics.Counter, metrics.Counter:
		return metrics.NilCounter{}
	case func() metrics.Histogram, metrics.Histogram:
		return metrics.NilHistogram{}
	case func() metrics.Gauge, metrics.Gauge:
		return metrics.NilGauge{}
	}
	return metric
}
func (silent) Register(string, any) error        { return nil }
func (silent) RunHealthchecks()                  {}
func (silent) GetAll() map[string]map[string]any { return nil }
func (silent) Unregister(string)                 {}
func (silent) UnregisterAll()                    {}
