{{- define "fencepost.name" -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "fencepost.labels" -}}
app.kubernetes.io/name: fencepost
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "fencepost.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* Where clients find the metadata services. */}}
{{- define "fencepost.uri" -}}
zk://{{ include "fencepost.name" . }}-metadata-client:2181/ledgers
{{- end }}

{{/* The members of the quorum, by the ordinals of their pods. */}}
{{- define "fencepost.controllers" -}}
{{- $name := printf "%s-metadata" (include "fencepost.name" .) -}}
{{- range $member := until (int .Values.metadata.replicas) }}{{ if $member }},{{ end }}{{ $member }}@{{ $name }}-{{ $member }}.{{ $name }}:9093{{ end }}
{{- end }}

{{- define "fencepost.annotations" -}}
prometheus.io/scrape: "true"
prometheus.io/path: /metrics
{{- end }}

{{- define "fencepost.security" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "fencepost.container" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
startupProbe:
  httpGet: {path: /live, port: http}
  periodSeconds: 5
  timeoutSeconds: 6
  failureThreshold: 240
livenessProbe:
  httpGet: {path: /live, port: http}
  periodSeconds: 10
  timeoutSeconds: 6
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /ready, port: http}
  periodSeconds: 5
  timeoutSeconds: 6
{{- end }}
