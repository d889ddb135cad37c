package sink

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/outbox-cdc/outbox-cdc/internal/mailbox"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/secret"
	"github.com/outbox-cdc/outbox-cdc/internal/transport"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

func TestTLS(t *testing.T) {
	t.Parallel()
	a := harness.NewAuthority(t)
	serverCert, serverKey := a.Issue("server")
	clientCert, clientKey := a.Issue("client")
	pair, err := tls.LoadX509KeyPair(serverCert, serverKey)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.Certificate)
	k := fake(t, kfake.SeedTopics(1, "t"), kfake.TLS(&tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
	}))
	for name, c := range map[string]struct {
		tls  *TLS
		want string // in the error, or empty: works
	}{
		"mutual":            {&TLS{CAFile: a.File, CertFile: clientCert, KeyFile: clientKey}, ""},
		"name":              {&TLS{CAFile: a.File, CertFile: clientCert, KeyFile: clientKey, ServerName: "server"}, ""},
		"insecure":          {&TLS{CertFile: clientCert, KeyFile: clientKey, Insecure: true}, ""},
		"wrong name":        {&TLS{CAFile: a.File, CertFile: clientCert, KeyFile: clientKey, ServerName: "other"}, "tls.server_name"},
		"unknown authority": {&TLS{CertFile: clientCert, KeyFile: clientKey}, "tls.ca_file"},
		"no certificate":    {&TLS{CAFile: a.File}, "certificate required"},
		"no TLS":            {nil, "neither TLS nor SASL"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Config{Brokers: k.ListenAddrs(), TLS: c.tls, TransactionalID: name})
			if c.want == "" {
				r.expect(outbox.Delivered, 5*time.Second, r.publish(newRow("t", "k", "v"))...)
				return
			}
			s := r.usable(5*time.Second, false)
			if !strings.Contains(s.Err.Error(), c.want) || !strings.Contains(s.Err.Error(), k.ListenAddrs()[0]) {
				t.Errorf("%q is missing in: %v", c.want, s.Err)
			}
		})
	}
}

func TestTLSToAPlainListener(t *testing.T) {
	t.Parallel()
	k := fake(t)
	r := newRig(t, Config{Brokers: k.ListenAddrs(), TLS: &TLS{}, DialTimeout: time.Second, RequestTimeout: time.Second})
	s := r.usable(10*time.Second, false)
	if !strings.Contains(s.Err.Error(), k.ListenAddrs()[0]) {
		t.Error(s.Err)
	}
}

func TestConfigurationErrors(t *testing.T) {
	for want, c := range map[string]Config{
		"no brokers":       {},
		"compression":      {Brokers: []string{"a:1"}, Compression: "rar"},
		"ca_file":          {Brokers: []string{"a:1"}, TLS: &TLS{CAFile: "/nonexistent"}},
		"give both":        {Brokers: []string{"a:1"}, TLS: &TLS{CertFile: "x"}},
		"is not known":     {Brokers: []string{"a:1"}, SASL: &SASL{Mechanism: "KERBEROS"}},
		"needs password":   {Brokers: []string{"a:1"}, SASL: &SASL{Mechanism: transport.SASLPlain, Username: "u"}},
		"client_id and to": {Brokers: []string{"a:1"}, SASL: &SASL{Mechanism: transport.SASLOAuthBearer}},
		"needs region":     {Brokers: []string{"a:1"}, SASL: &SASL{Mechanism: transport.SASLAWSMSKIAM}},
		"at most":          {Brokers: []string{"a:1"}, RequestBytes: 1 << 30},
	} {
		c.Cluster = "main"
		_, err := New(c, mailbox.New[outbox.Outcome](), mailbox.New[outbox.ClusterState]())
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "main") {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
}

func TestMSKIAMTokensAreSigned(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	token, err := mskToken(t.Context(), "eu-central-1")
	if err != nil {
		t.Fatal(err)
	}
	url, err := base64.RawURLEncoding.DecodeString(token.Token)
	if err != nil || !strings.Contains(string(url), "kafka.eu-central-1.amazonaws.com") {
		t.Errorf("%s %v", url, err)
	}
}

// With what an OAuth server is asked for a token, and what becomes of a token and a secret
// that are refused.
func TestOAuthTokens(t *testing.T) {
	var asked []url.Values
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		if user, password, ok := r.BasicAuth(); ok {
			r.PostForm.Set("basic", user+":"+password)
		}
		asked = append(asked, r.PostForm)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"access_token":"token %d","token_type":"bearer","expires_in":600}`, len(asked))
	}))
	t.Cleanup(s.Close)
	file := func(text string) (secret.Reader, func(string)) {
		path := filepath.Join(t.TempDir(), "secret")
		write := func(text string) {
			if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write(text)
		return &secret.Source{File: path}, write
	}
	token, renewToken := file("given")
	proof, renewProof := file("first")
	expect := func(p *oauthProvider, token string, form string) {
		t.Helper()
		got, err := p.token(t.Context())
		if err != nil || got.Token != token {
			t.Fatalf("%v, %v; want %s", got, err, token)
		}
		if form != "" && asked[len(asked)-1].Encode() != form {
			t.Errorf("asked with\n%s, want\n%s", asked[len(asked)-1].Encode(), form)
		}
	}
	given := &oauthProvider{OAuth: OAuth{TokenNow: token}, client: transport.NewClient(nil, false)}
	expect(given, "given", "")
	renewToken("renewed")
	expect(given, "renewed", "")

	assertion := &oauthProvider{OAuth: OAuth{TokenURL: s.URL, ClientID: "c", AssertionNow: proof, Scopes: []string{"kafka"}}, client: transport.NewClient(nil, false)}
	const form = "client_assertion=%s&client_assertion_type=urn%%3Aietf%%3Aparams%%3Aoauth%%3Aclient-assertion-type%%3Ajwt-bearer&client_id=c&grant_type=client_credentials&scope=kafka"
	expect(assertion, "token 1", fmt.Sprintf(form, "first"))
	renewProof("second")
	expect(assertion, "token 1", "") // still good
	assertion.refused()
	expect(assertion, "token 2", fmt.Sprintf(form, "second"))

	byPassword := &oauthProvider{OAuth: OAuth{TokenURL: s.URL, ClientID: "c", SecretNow: proof}, client: transport.NewClient(nil, false)}
	expect(byPassword, "token 3", "basic=c%3Asecond&grant_type=client_credentials")
	byPassword.refused()
	renewProof("third")
	expect(byPassword, "token 4", "basic=c%3Athird&grant_type=client_credentials")
}

// tokens returns an OAuth server whose tokens nobody signed, which a broker takes
// when it is told to.
func tokens(t *testing.T, user string) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		part := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
		now := time.Now().Unix()
		token := part(`{"alg":"none"}`) + "." + part(fmt.Sprintf(`{"sub":%q,"iat":%d,"exp":%d}`, user, now-1, now+600)) + "."
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"access_token":%q,"token_type":"bearer","expires_in":600}`, token)
	}))
	t.Cleanup(s.Close)
	return s
}

// TestRealSecurity tries every mechanism, and users with few rights.
func TestRealSecurity(t *testing.T) {
	const plain = `org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="a" user_cdc="right" user_poor="right";`
	k := privateKafka(t, harness.KafkaOptions{
		Listeners: []harness.Listener{{Name: "SAFE", Protocol: "SASL_PLAINTEXT"}},
		Settings: map[string]string{
			"sasl.enabled.mechanisms":                                  "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
			"listener.name.safe.plain.sasl.jaas.config":                plain,
			"listener.name.safe.scram-sha-256.sasl.jaas.config":        "org.apache.kafka.common.security.scram.ScramLoginModule required;",
			"listener.name.safe.scram-sha-512.sasl.jaas.config":        "org.apache.kafka.common.security.scram.ScramLoginModule required;",
			"listener.name.safe.oauthbearer.sasl.jaas.config":          `org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="cdc";`,
			"authorizer.class.name":                                    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
			"super.users":                                              "User:ANONYMOUS;User:cdc",
			"listener.name.safe.oauthbearer.connections.max.reauth.ms": "3000",
		},
	})
	brokers := k.AddrsOf("SAFE")
	k.Admin(t, func(a sarama.ClusterAdmin) error {
		for _, mechanism := range []sarama.ScramMechanismType{sarama.SCRAM_MECHANISM_SHA_256, sarama.SCRAM_MECHANISM_SHA_512} {
			if _, err := a.UpsertUserScramCredentials([]sarama.AlterUserScramCredentialsUpsert{{
				Name: "cdc", Mechanism: mechanism, Iterations: 4096, Salt: []byte("salt"), Password: []byte("right"),
			}}); err != nil {
				return err
			}
		}
		return nil
	})
	server := tokens(t, "cdc")
	now := func(text string) secret.Reader { return &secret.Source{Value: text} }
	for _, s := range []SASL{
		{Mechanism: transport.SASLPlain, Username: "cdc", Password: "right"},
		{Mechanism: transport.SASLScramSHA256, Username: "cdc", Password: "right"},
		{Mechanism: transport.SASLScramSHA512, Username: "cdc", PasswordNow: now("right")},
		{Mechanism: transport.SASLPlain, Username: "cdc", PasswordNow: now("right")},
		{Mechanism: transport.SASLOAuthBearer, OAuth: OAuth{TokenURL: server.URL, ClientID: "cdc", SecretNow: now("s")}},
	} {
		t.Run(s.Mechanism, func(t *testing.T) {
			topic := k.Topic(t, 1)
			r := newRig(t, Config{Brokers: brokers, SASL: &s, TransactionalID: s.Mechanism})
			r.expect(outbox.Delivered, 20*time.Second, r.publish(newRow(topic, "k", "v0"))...)
			n := 1
			if s.Mechanism == transport.SASLOAuthBearer { // past the end of the first session
				for begin := time.Now(); time.Since(begin) < 5*time.Second; n++ {
					r.expect(outbox.Delivered, 5*time.Second, r.publish(newRow(topic, "k", fmt.Sprint("v", n)))...)
				}
			}
			inOrder(t, k.Records(t, topic), "v", n)
		})
	}
	for _, mechanism := range []string{transport.SASLScramSHA256, transport.SASLScramSHA512} {
		t.Run("wrong "+mechanism, func(t *testing.T) {
			r := newRig(t, Config{Brokers: brokers, SASL: &SASL{Mechanism: mechanism, Username: "cdc", Password: "wrong"}})
			if s := r.usable(10*time.Second, false); !strings.Contains(s.Err.Error(), "refused our credentials") {
				t.Error(s.Err)
			}
		})
	}
	t.Run("little permitted", func(t *testing.T) { poorUser(t, k, brokers) })
}

func poorUser(t *testing.T, k *harness.Cluster, brokers []string) {
	topic, forbidden := k.Topic(t, 1), fmt.Sprint(k.Topic(t, 1))
	allow := func(resource sarama.AclResourceType, name string, ops ...sarama.AclOperation) {
		acls := &sarama.ResourceAcls{Resource: sarama.Resource{ResourceType: resource, ResourceName: name, ResourcePatternType: sarama.AclPatternLiteral}}
		for _, op := range ops {
			acls.Acls = append(acls.Acls, &sarama.Acl{Principal: "User:poor", Host: "*", Operation: op, PermissionType: sarama.AclPermissionAllow})
		}
		k.Admin(t, func(a sarama.ClusterAdmin) error { return a.CreateACLs([]*sarama.ResourceAcls{acls}) })
	}
	allow(sarama.AclResourceTopic, topic, sarama.AclOperationWrite)
	poor := &SASL{Mechanism: transport.SASLPlain, Username: "poor", Password: "right"}
	r := newRig(t, Config{Brokers: brokers, SASL: poor, TransactionalID: "poor"})
	r.expect(outbox.Delivered, 20*time.Second, r.publish(newRow(topic, "k", "v0"))...)
	if r.sink.Fencing() != FencingRefused {
		t.Error("fencing without the ACL")
	}
	rows := r.publish(newRow(forbidden, "k", "v0"))
	r.expect(outbox.Withdrawn, 10*time.Second, rows...)
	scope := outbox.TopicScope("main", forbidden)
	if o := r.fate[rows[0]]; o.Scope != scope || !errors.Is(o.Err, sarama.ErrTopicAuthorizationFailed) {
		t.Errorf("%+v", o)
	}
	own := newRow(forbidden, "", "own")
	own.Table = ownTable
	r.expect(outbox.Refused, 10*time.Second, r.publish(own)...)
	allow(sarama.AclResourceTopic, forbidden, sarama.AclOperationWrite)
	r.deliverOnceAllowed(scope, newRow(forbidden, "k", "v0"))
	inOrder(t, k.Records(t, topic), "v", 1)
	inOrder(t, k.Records(t, forbidden), "v", 1)

	allow(sarama.AclResourceTransactionalID, "poor", sarama.AclOperationWrite)
	again := newRig(t, Config{Brokers: brokers, SASL: poor, TransactionalID: "poor", Topics: []string{topic, forbidden}})
	again.usable(10*time.Second, true)
	if again.sink.Fencing() != FencingOn {
		t.Error("not fencing with the ACL")
	}
	again.expect(outbox.Delivered, 10*time.Second, again.publish(newRow(topic, "k", "v1"))...)
}

// deliverOnceAllowed publishes a row again until it is not refused any more: a
// broker hears of a new ACL some time after the controller.
func (r *rig) deliverOnceAllowed(scope outbox.Scope, row *outbox.Row) {
	r.t.Helper()
	harness.Eventually(r.t, 10*time.Second, func() error {
		r.sink.Do(outbox.Command{Release: &scope})
		again := *row
		r.publish(&again)
		r.until("an outcome", 10*time.Second, func() bool { _, ok := r.fate[&again]; return ok })
		r.mu.Lock()
		defer r.mu.Unlock()
		if o := r.fate[&again]; o.Class != outbox.Delivered {
			return o.Err
		}
		return nil
	})
}

// TestRealSlowBrokerAlone: while one broker is stopped, the partitions of the
// others go on.
func TestRealSlowBrokerAlone(t *testing.T) {
	k := privateKafka(t, harness.KafkaOptions{Brokers: 3})
	topic := fmt.Sprint("spread-", time.Now().UnixNano())
	detail := &sarama.TopicDetail{ReplicaAssignment: map[int32][]int32{0: {1}, 1: {2}, 2: {3}}, NumPartitions: -1, ReplicationFactor: -1}
	k.Admin(t, func(a sarama.ClusterAdmin) error { return a.CreateTopic(topic, detail, false) })
	r := newRig(t, Config{Brokers: k.Addrs, TransactionalID: "slow", Topics: []string{topic}})
	to := func(partition int32) *outbox.Row {
		row := newRow(topic, fmt.Sprint("k", partition), "v")
		row.Partition = partition
		return row
	}
	r.expect(outbox.Delivered, 30*time.Second, r.publish(to(0), to(1), to(2))...)
	k.Nodes[2].Freeze(t)
	stuck := r.publish(to(2))
	for range 20 {
		begin := time.Now()
		r.expect(outbox.Delivered, 5*time.Second, r.publish(to(0), to(1))...)
		if took := time.Since(begin); took > 8*time.Second {
			t.Errorf("others waited %v", took)
		}
	}
	k.Nodes[2].Thaw(t)
	r.expect(outbox.Delivered, 30*time.Second, stuck...)
	if got := k.Count(t, topic); got != 44 {
		t.Errorf("%d records", got)
	}
}

// Sarama's own client, which has one password for all of its connections, asks for it for each,
// tells of one that was refused, and gives the broker the connection that was logged in.
func TestAClientLogsInWithTheSecretAsItIs(t *testing.T) {
	const partitions = 32 // their leaders are drawn: so many are not all on one broker
	k := fake(t, kfake.NumBrokers(2), kfake.SeedTopics(partitions, "t"), kfake.EnableSASL(), kfake.Superuser(transport.SASLPlain, "cdc", "right"))
	read := &told{text: "old"}
	conf := Config{Cluster: "main", Brokers: k.ListenAddrs(), SASL: &SASL{Mechanism: transport.SASLPlain, Username: "cdc", PasswordNow: read}}
	once := func(c *sarama.Config) { c.Metadata.Retry.Max = 0 }
	if _, err := conf.client(t.Context(), once); err == nil || read.refused == 0 {
		t.Errorf("%v, told %d times of a refusal", err, read.refused)
	}
	read.text = "right"
	client, err := conf.client(t.Context(), once)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	asked := read.asked
	for partition := range int32(partitions) {
		if _, err := client.GetOffset("t", partition, sarama.OffsetNewest); err != nil {
			t.Errorf("partition %d: %v", partition, err)
		}
	}
	if read.asked < asked+2 {
		t.Errorf("two brokers, and the password was asked for %d times", read.asked-asked)
	}
}

// told is a secret that counts. Sarama's client opens one connection at a time here.
type told struct {
	text           string
	asked, refused int
}

func (r *told) Read(context.Context) (string, error) {
	r.asked++
	return r.text, nil
}

func (r *told) Refused() { r.refused++ }

// A client's secret or assertion goes to the configured server, and follows no redirect.
func TestAnOAuthServerThatRedirects(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") }))
	t.Cleanup(other.Close)
	for _, status := range []int{http.StatusMovedPermanently, http.StatusTemporaryRedirect} {
		server := httptest.NewServer(http.RedirectHandler(other.URL, status))
		t.Cleanup(server.Close)
		for _, o := range []OAuth{{SecretNow: &secret.Source{Value: "hunter2"}}, {AssertionNow: &secret.Source{Value: "hunter2"}}} {
			o.ClientID, o.TokenURL = "outbox-cdc", server.URL+"?key=hunter2"
			conf, err := Config{Cluster: "main", Brokers: []string{"127.0.0.1:1"}, SASL: &SASL{Mechanism: transport.SASLOAuthBearer, OAuth: o}}.sarama()
			if err != nil {
				t.Fatal(err)
			}
			_, err = conf.Net.SASL.TokenProvider.Token()
			if err == nil || !strings.Contains(err.Error(), "redirects to "+other.URL) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%d: %v", status, err)
			}
		}
	}
}
