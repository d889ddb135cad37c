// Package tracing makes OpenTelemetry spans for the rows that a stream publishes and marks, and sends them to
// the collector that the standard environment variables name. A row's span joins the trace whose context the
// row carries.
//
// Without a collector everything here is nil and costs nothing: all methods may be called on nil. The package
// decides nothing about rows and changes none: the trace context in a record stays as its writer made it. cmd
// makes the Provider, and the pipeline's driver calls a Stream.
package tracing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/transport"
)

// Provider sends spans until it is shut down.
type Provider struct{ sdk *sdk.TracerProvider }

// scope is the instrumentation scope of our spans.
const scope = "github.com/outbox-cdc/outbox-cdc/internal/tracing"

// New makes a Provider from the environment. It returns nil if no collector is named (neither
// OTEL_EXPORTER_OTLP_ENDPOINT nor OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set), or if OTEL_SDK_DISABLED or
// OTEL_TRACES_EXPORTER=none switch tracing off. The Provider connects in the background.
// https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
func New(ctx context.Context, version string) (*Provider, error) {
	wanted, err := wanted(os.Getenv)
	if err != nil || !wanted {
		return nil, err
	}
	if err := shown(os.Getenv); err != nil {
		return nil, err
	}
	exporter, err := newExporter(ctx, os.Getenv)
	if err != nil {
		return nil, fmt.Errorf("tracing, as OTEL_EXPORTER_OTLP_* say: %w", err)
	}
	return newProvider(ctx, version, sdk.WithBatcher(exporter))
}

func newProvider(ctx context.Context, version string, options ...sdk.TracerProviderOption) (*Provider, error) {
	of, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithHost(),
		resource.WithAttributes(attribute.String("service.name", "outbox-cdc"), attribute.String("service.version", version)),
		resource.WithFromEnv(), // OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence over ours
	)
	if err != nil {
		return nil, fmt.Errorf("tracing, as OTEL_RESOURCE_ATTRIBUTES say: %w", err)
	}
	return &Provider{sdk.NewTracerProvider(append(options, sdk.WithResource(of))...)}, nil
}

// wanted reports whether the environment names a collector.
func wanted(env func(string) string) (bool, error) {
	if strings.EqualFold(env("OTEL_SDK_DISABLED"), "true") {
		return false, nil
	}
	switch exporter := env("OTEL_TRACES_EXPORTER"); exporter {
	case "none":
		return false, nil
	case "", "otlp":
		return env("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "", nil
	default:
		return false, fmt.Errorf("OTEL_TRACES_EXPORTER=%s: only otlp and none are known", exporter)
	}
}

// shown returns an error if headers would be sent unencrypted to another machine: one of them may be a key.
func shown(env func(string) string) error {
	either := func(name string) string {
		return cmp.Or(env("OTEL_EXPORTER_OTLP_TRACES_"+name), env("OTEL_EXPORTER_OTLP_"+name))
	}
	at, err := url.Parse(either("ENDPOINT"))
	switch {
	case either("HEADERS") == "" || strings.EqualFold(either("INSECURE"), "true"):
	case err != nil:
		return errors.New("OTEL_EXPORTER_OTLP_ENDPOINT is no URL")
	case at.Scheme == "http" && !transport.Loopback(at.Hostname()):
		return fmt.Errorf("tracing: OTEL_EXPORTER_OTLP_HEADERS would go to %s in plain text: write https:// in OTEL_EXPORTER_OTLP_ENDPOINT, or set OTEL_EXPORTER_OTLP_INSECURE=true", at.Host)
	}
	return nil
}

// newExporter makes an exporter for the protocol that the environment asks for. The exporters read the other
// OTEL_EXPORTER_OTLP_* variables themselves. https://opentelemetry.io/docs/specs/otel/protocol/exporter/
func newExporter(ctx context.Context, env func(string) string) (sdk.SpanExporter, error) {
	switch protocol := cmp.Or(env("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), env("OTEL_EXPORTER_OTLP_PROTOCOL")); protocol {
	case "", "http/protobuf":
		return otlptracehttp.New(ctx, otlptracehttp.WithProxy(transport.Proxy))
	case "grpc":
		return otlptracegrpc.New(ctx)
	default:
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL=%s: only http/protobuf and grpc are known", protocol)
	}
}

// Stream returns the Stream that makes spans for the stream with this name.
func (p *Provider) Stream(name string) *Stream {
	if p == nil {
		return nil
	}
	return &Stream{tracer: p.sdk.Tracer(scope), name: name, open: map[*outbox.Row]*batch{}}
}

// Shutdown sends the remaining spans, until ctx ends.
func (p *Provider) Shutdown(ctx context.Context) error {
	if p == nil {
		return nil
	}
	if err := p.sdk.Shutdown(ctx); err != nil {
		return fmt.Errorf("send the last spans: %w", err)
	}
	return nil
}
