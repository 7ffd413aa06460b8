{{/* What monitors share. (dict "root" $ "port" name): one endpoint, with the labels that dashboards and alerts use. */}}

{{- define "kvarn.monitored" -}}
{{- if .Capabilities.APIVersions.Has "monitoring.coreos.com/v1" }}true{{ end -}}
{{- end -}}

{{- define "kvarn.endpoint" -}}
- port: {{ .port }}
  path: /metrics
  interval: {{ .root.Values.monitoring.interval | quote }}
  relabelings:
    {{- range $target, $label := dict "model_service" "kvarn_dev_model_service" "role" "kvarn_dev_role" "pool" "kvarn_dev_pool" }}
    - sourceLabels: [__meta_kubernetes_pod_label_{{ $label }}]
      targetLabel: {{ $target }}
    {{- end }}
{{- end -}}
