// Package chart tests deploy/helm/outbox-cdc with Helm's own lint, values check
// and template engine, and with Kubernetes' own types. No cluster is needed.
package chart

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

const folder = "../../../deploy/helm/outbox-cdc"

var update = flag.Bool("update", false, "rewrite testdata/*.golden.yaml")

// values reads testdata/NAME.values.yaml.
func values(t *testing.T, name string) map[string]any {
	t.Helper()
	v, err := chartutil.ReadValuesFile("testdata/" + name + ".values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// render is `helm template` for the release "cdc" in the namespace "prod".
func render(t *testing.T, v map[string]any) (map[string]string, error) {
	t.Helper()
	chart, err := loader.Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	all, err := chartutil.ToRenderValues(chart, v, chartutil.ReleaseOptions{Name: "cdc", Namespace: "prod", IsInstall: true}, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(chart, all)
}

// manifests are the rendered objects by kind; what renders to nothing is left out.
func manifests(t *testing.T, name string) map[string]string {
	t.Helper()
	files, err := render(t, values(t, name))
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]string{}
	for path, text := range files {
		var object struct{ Kind string }
		if !strings.HasSuffix(path, ".yaml") || strings.TrimSpace(text) == "" {
			continue
		}
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			t.Fatalf("%s: %v\n%s", path, err, text)
		}
		kinds[object.Kind] = strings.TrimSpace(text) + "\n"
	}
	return kinds
}

func TestLint(t *testing.T) {
	for _, name := range []string{"small", "full", "existing"} {
		result := lint.AllWithKubeVersion(folder, values(t, name), "prod", nil)
		for _, m := range result.Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("%s: %v", name, m)
			}
		}
	}
}

func TestTemplates(t *testing.T) {
	for _, name := range []string{"small", "full", "existing"} {
		t.Run(name, func(t *testing.T) {
			kinds := manifests(t, name)
			var got bytes.Buffer
			for _, kind := range sortedKeys(kinds) {
				got.WriteString("---\n" + kinds[kind])
				strictly(t, kind, kinds[kind])
				published(t, kind, kinds[kind])
			}
			golden := filepath.Join("testdata", name+".golden.yaml")
			if *update {
				if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Bytes(), want) {
				t.Errorf("%s differs (go test ./chart -update rewrites it):\n%s", golden, got.String())
			}
		})
	}
}

func sortedKeys(m map[string]string) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// definitions are the names of the chart's kinds in Kubernetes' OpenAPI documents.
var definitions = map[string]string{
	"Deployment": "io.k8s.api.apps.v1.Deployment", "Service": "io.k8s.api.core.v1.Service", "ServiceAccount": "io.k8s.api.core.v1.ServiceAccount",
	"ConfigMap": "io.k8s.api.core.v1.ConfigMap", "PodDisruptionBudget": "io.k8s.api.policy.v1.PodDisruptionBudget", "NetworkPolicy": "io.k8s.api.networking.v1.NetworkPolicy",
}

// schemas are the documents of some versions, made by chart/schemas.
func schemas(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/kubernetes-*.json")
	if err != nil || len(files) < 3 {
		t.Fatalf("%q, %v: three versions are wanted", files, err)
	}
	return files
}

// published holds an object against what several versions of Kubernetes publish of
// its kind: types, required fields, no others.
func published(t *testing.T, kind, text string) {
	t.Helper()
	name, known := definitions[kind]
	if !known {
		return
	}
	for _, file := range schemas(t) {
		if err := validate(t, file, name, text); err != nil {
			t.Errorf("%s, %s: %v\n%s", file, kind, err, text)
		}
	}
}

var compiled = map[string]*jsonschema.Schema{} // by place

func validate(t *testing.T, file, name, text string) error {
	t.Helper()
	at := file + "#/definitions/" + name
	schema, err := compiled[at], error(nil)
	if schema == nil {
		if schema, err = jsonschema.NewCompiler().Compile(at); err != nil {
			t.Fatal(err)
		}
		compiled[at] = schema
	}
	plain, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	object, err := jsonschema.UnmarshalJSON(bytes.NewReader(plain))
	if err != nil {
		t.Fatal(err)
	}
	return schema.Validate(object)
}

// The schemas do refuse what a server would.
func TestSchemasRefuse(t *testing.T) {
	good := manifests(t, "small")["Deployment"]
	for _, wrong := range []string{
		strings.Replace(good, "  replicas: 2", "  replicas: two", 1), strings.Replace(good, "  replicas: 2", "  replica: 2", 1),
		strings.Replace(good, "  selector:", "  selectors:", 1),
	} {
		if wrong == good {
			t.Fatalf("nothing was made wrong in\n%s", good)
		}
		for _, file := range schemas(t) {
			if validate(t, file, definitions["Deployment"], wrong) == nil {
				t.Errorf("%s takes\n%s", file, wrong)
			}
		}
	}
}

// strictly reads an object into Kubernetes' own type: a field that it does not
// have is an error, as a server with field validation would say.
func strictly(t *testing.T, kind, text string) {
	t.Helper()
	types := map[string]any{
		"Deployment": &appsv1.Deployment{}, "Service": &corev1.Service{}, "ServiceAccount": &corev1.ServiceAccount{},
		"ConfigMap": &corev1.ConfigMap{}, "PodDisruptionBudget": &policyv1.PodDisruptionBudget{}, "NetworkPolicy": &networkingv1.NetworkPolicy{},
	}
	object, known := types[kind]
	if !known {
		if kind != "ServiceMonitor" { // the Prometheus operator's own type; its golden file is looked at
			t.Errorf("no type to read a %s into", kind)
		}
		return
	}
	if err := yaml.UnmarshalStrict([]byte(text), object); err != nil {
		t.Errorf("%s: %v\n%s", kind, err, text)
	}
}

// schemes are how the pods of testdata are asked.
var schemes = map[string]corev1.URIScheme{"small": corev1.URISchemeHTTP, "full": corev1.URISchemeHTTPS, "existing": corev1.URISchemeHTTPS}

// What has to hold whatever the values are.
func TestPods(t *testing.T) {
	for _, name := range []string{"small", "full", "existing"} {
		var d appsv1.Deployment
		if err := yaml.UnmarshalStrict([]byte(manifests(t, name)["Deployment"]), &d); err != nil {
			t.Fatal(err)
		}
		pod, c := d.Spec.Template.Spec, d.Spec.Template.Spec.Containers[0]
		switch {
		case !*c.SecurityContext.ReadOnlyRootFilesystem, *c.SecurityContext.AllowPrivilegeEscalation, !*pod.SecurityContext.RunAsNonRoot:
			t.Errorf("%s: the container may do more than it needs: %+v", name, c.SecurityContext)
		case c.LivenessProbe.HTTPGet.Scheme != schemes[name], c.ReadinessProbe.HTTPGet.Scheme != schemes[name]:
			t.Errorf("%s: probes by %s and %s", name, c.LivenessProbe.HTTPGet.Scheme, c.ReadinessProbe.HTTPGet.Scheme)
		case c.LivenessProbe.HTTPGet.Path != "/healthz", c.ReadinessProbe.HTTPGet.Path != "/readyz":
			t.Errorf("%s: probes: %v, %v", name, c.LivenessProbe, c.ReadinessProbe)
		case !strings.HasPrefix(c.Args[0], "run"):
			t.Errorf("%s: it does not run: %v", name, c.Args)
		case *pod.TerminationGracePeriodSeconds < 35:
			t.Errorf("%s: killed after %ds, which is no longer than a drain", name, *pod.TerminationGracePeriodSeconds)
		}
	}
}

// The default is two replicas, killed later than the drain takes.
func TestDefaults(t *testing.T) {
	var d appsv1.Deployment
	if err := yaml.Unmarshal([]byte(manifests(t, "small")["Deployment"]), &d); err != nil {
		t.Fatal(err)
	}
	if *d.Spec.Replicas != 2 || *d.Spec.Template.Spec.TerminationGracePeriodSeconds != 45 {
		t.Errorf("%d replicas, killed after %ds; want 2 and 45", *d.Spec.Replicas, *d.Spec.Template.Spec.TerminationGracePeriodSeconds)
	}
}

// The configuration that the pods get is one that the program takes.
func TestConfigIsValid(t *testing.T) {
	program := filepath.Join(t.TempDir(), "outbox-cdc")
	build := exec.Command("go", "build", "-o", program, "./cmd/outbox-cdc")
	build.Dir = "../../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range []string{"small", "full"} {
		var m corev1.ConfigMap
		if err := yaml.Unmarshal([]byte(manifests(t, name)["ConfigMap"]), &m); err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		file := filepath.Join(dir, "outbox-cdc.yaml")
		text := strings.ReplaceAll(m.Data["outbox-cdc.yaml"], "/etc/outbox-cdc/secrets/http-tls", dir)
		for _, mounted := range []string{"tls.crt", "tls.key"} {
			if err := os.WriteFile(filepath.Join(dir, mounted), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		validate := exec.Command(program, "config", "validate", "--config", file)
		validate.Env = append(os.Environ(), "DB_PASSWORD=a", "KAFKA_PASSWORD=b", "METRICS_TOKEN=0123456789abcdef", "ANN_PASSWORD=long enough")
		if out, err := validate.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// The values of docs/install.md render.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "cat >values.yaml <<'END'\n")
	text, _, found := strings.Cut(rest, "\nEND\n")
	if !found {
		t.Fatal("the page has no values")
	}
	v, err := chartutil.ReadValues([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	files, err := render(t, v)
	if err != nil {
		t.Fatal(err)
	}
	var d appsv1.Deployment
	if err := yaml.UnmarshalStrict([]byte(files["outbox-cdc/templates/deployment.yaml"]), &d); err != nil {
		t.Fatal(err)
	}
	c := d.Spec.Template.Spec.Containers[0]
	if c.Image != "registry.example/outbox-cdc:1.2.3" || len(c.EnvFrom) != 1 || c.EnvFrom[0].SecretRef.Name != "orders-db" {
		t.Errorf("the page's values make the container %+v", c)
	}
}

// withHTTP is a configuration with this http.
func withHTTP(http map[string]any) map[string]any {
	stream := map[string]any{"name": "s", "postgres": map[string]any{}, "tables": []any{}}
	return map[string]any{"kafka": map[string]any{}, "streams": []any{stream}, "http": http}
}

// Nobody is let in unless it is said who.
func TestTheNetworkIsClosed(t *testing.T) {
	var p networkingv1.NetworkPolicy
	if err := yaml.UnmarshalStrict([]byte(manifests(t, "small")["NetworkPolicy"]), &p); err != nil {
		t.Fatal(err)
	}
	if len(p.Spec.Ingress) != 0 || len(p.Spec.PolicyTypes) != 2 {
		t.Errorf("the default lets in %+v", p.Spec)
	}
}

// Wrong values are refused with words that help.
func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		set  map[string]any
		want string
	}{
		"no configuration": {map[string]any{"config": nil}, "set config"},
		"unknown value":    {map[string]any{"replicas": 3}, "replicas"},
		"tag as a number":  {map[string]any{"image": map[string]any{"tag": 1.2}}, "tag"},
		"short margin":     {map[string]any{"stopMarginSeconds": 0}, "stopMarginSeconds"},
		"an open page":     {map[string]any{"config": withHTTP(map[string]any{"page": true})}, "set config.http.auth"},
		"open credentials": {map[string]any{"config": withHTTP(map[string]any{"auth": map[string]any{"token": "x"}})}, "plain text"},
		"a locked scraper": {map[string]any{
			"config":         withHTTP(map[string]any{"auth": map[string]any{"token": "x"}, "allow_plaintext": true}),
			"serviceMonitor": map[string]any{"enabled": true}, "networkPolicy": map[string]any{"enabled": false},
		}, "serviceMonitor.authorization"},
		"no name to verify": {map[string]any{
			"config": withHTTP(map[string]any{"tls": map[string]any{}}), "serviceMonitor": map[string]any{"enabled": true},
		}, "serviceMonitor.tlsConfig"},
		"a scraper outside": {map[string]any{"serviceMonitor": map[string]any{"enabled": true}}, "networkPolicy.from"},
		"half a config":     {map[string]any{"config": map[string]any{"kafka": map[string]any{}, "streams": nil}}, "streams"},
	} {
		t.Run(name, func(t *testing.T) {
			v := values(t, "small")
			for key, value := range c.set {
				v[key] = value
			}
			if _, err := render(t, v); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one about %s", err, c.want)
			}
		})
	}
}
