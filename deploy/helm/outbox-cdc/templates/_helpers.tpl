{{- define "outbox-cdc.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "outbox-cdc.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "outbox-cdc.labels" -}}
{{ include "outbox-cdc.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "outbox-cdc.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "outbox-cdc.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "outbox-cdc.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{- define "outbox-cdc.configMap" -}}
{{- default (include "outbox-cdc.fullname" .) .Values.existingConfigMap -}}
{{- end -}}

{{/* The file, with the address that the probes ask. */}}
{{- define "outbox-cdc.config" -}}
{{- if not .Values.config -}}
{{- fail "set config (docs/configuration.md has every option), or existingConfigMap" -}}
{{- end -}}
{{- $given := default dict .Values.config.http -}}
{{- if and (or $given.page $given.show_payloads) (not $given.auth) -}}
{{- fail "config.http.page shows rows to every pod that reaches it: set config.http.auth" -}}
{{- end -}}
{{- if and $given.auth (not $given.tls) (not $given.allow_plaintext) -}}
{{- fail "config.http.auth would go through the cluster in plain text: set config.http.tls, or config.http.allow_plaintext where the network encrypts" -}}
{{- end -}}
{{- $name := include "outbox-cdc.fullname" . -}}
{{- $hosts := list $name (printf "%s.%s" $name .Release.Namespace) (printf "%s.%s.svc" $name .Release.Namespace) -}}
{{- $http := dict "listen" (printf ":%v" .Values.port) "hosts" (default $hosts $given.hosts) -}}
{{- mergeOverwrite (deepCopy .Values.config) (dict "http" $http) | toYaml -}}
{{- end -}}

{{/* How probes and Prometheus ask: HTTPS where the configuration has a certificate. */}}
{{- define "outbox-cdc.scheme" -}}
{{- $http := default dict .Values.config.http -}}
{{- default (ternary "HTTPS" "HTTP" (hasKey $http "tls")) .Values.scheme -}}
{{- end -}}
