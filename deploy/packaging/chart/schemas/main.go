// Command schemas takes, out of Kubernetes' own OpenAPI documents, what the chart's
// objects are held against: go run ./chart/schemas v1.33.0 v1.35.0 v1.37.0, in
// deploy/packaging. Each module k8s.io/kubernetes has 50 MB, so that what is needed of
// it is kept in chart/testdata.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// kinds are those of the chart.
var kinds = []string{
	"io.k8s.api.apps.v1.Deployment", "io.k8s.api.core.v1.Service", "io.k8s.api.core.v1.ServiceAccount", "io.k8s.api.core.v1.ConfigMap",
	"io.k8s.api.policy.v1.PodDisruptionBudget", "io.k8s.api.networking.v1.NetworkPolicy",
}

func main() {
	for _, version := range os.Args[1:] {
		if err := take(version); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func take(version string) error {
	var module struct{ Dir string }
	out, err := exec.Command("go", "mod", "download", "-json", "k8s.io/kubernetes@"+version).Output()
	if err != nil {
		return fmt.Errorf("k8s.io/kubernetes %s: %w", version, err)
	}
	if err := json.Unmarshal(out, &module); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(module.Dir, "api", "openapi-spec", "swagger.json"))
	if err != nil {
		return err
	}
	var document struct{ Definitions map[string]any }
	if err := json.Unmarshal(text, &document); err != nil {
		return err
	}
	taken := map[string]any{}
	for _, kind := range kinds {
		closure(document.Definitions, kind, taken)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", " ")
	if err := enc.Encode(map[string]any{"definitions": taken}); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join("chart", "testdata", "kubernetes-"+version+".json"), b.Bytes(), 0o644)
}

// closure takes a definition and all that it refers to.
func closure(all map[string]any, name string, taken map[string]any) {
	if _, has := taken[name]; has {
		return
	}
	d, ok := all[name].(map[string]any)
	if !ok {
		panic("there is no definition " + name)
	}
	taken[name] = strict(d)
	switch name {
	case "io.k8s.apimachinery.pkg.api.resource.Quantity": // a server takes numbers as well
		taken[name] = map[string]any{"type": []string{"string", "number"}}
	case "io.k8s.apimachinery.pkg.util.intstr.IntOrString":
		taken[name] = map[string]any{"type": []string{"string", "integer"}}
	}
	for _, ref := range refs(d) {
		closure(all, ref, taken)
	}
}

// strict leaves out what is for people, and allows no other fields.
func strict(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, value := range v {
			_, text := value.(string)
			if key == "description" && text || strings.HasPrefix(key, "x-kubernetes-") || key == "format" && text {
				continue
			}
			out[key] = strict(value)
		}
		if _, has := out["properties"].(map[string]any); has && out["additionalProperties"] == nil {
			out["additionalProperties"] = false
		}
		return out
	case []any:
		for i := range v {
			v[i] = strict(v[i])
		}
	}
	return v
}

func refs(v any) (names []string) {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if ref, ok := value.(string); ok && key == "$ref" {
				names = append(names, strings.TrimPrefix(ref, "#/definitions/"))
			}
			names = append(names, refs(value)...)
		}
	case []any:
		for _, value := range v {
			names = append(names, refs(value)...)
		}
	}
	return names
}
