{{/* Rules that several policies share. What a policy selects may do nothing but what it lists.
Ports are numbers: some network plug-ins do not know the names of pods' ports. */}}

{{- define "kvarn.egressDns" -}}
- ports:
    {{- range .Values.networkPolicy.dns.ports }}
    - {port: {{ . | int }}, protocol: UDP}
    - {port: {{ . | int }}, protocol: TCP}
    {{- end }}
{{- end -}}

{{/* A section with cidrs and ports. */}}
{{- define "kvarn.egressTo" -}}
- to:
    {{- range .cidrs }}
    - ipBlock: {cidr: {{ . | quote }}}
    {{- end }}
  ports:
    {{- range .ports }}
    - {port: {{ . | int }}, protocol: TCP}
    {{- end }}
{{- end -}}

{{/* The operator, wherever it runs: another release's may watch this namespace. */}}
{{- define "kvarn.operatorPeer" -}}
- {{ if not .Values.operator.enabled }}namespaceSelector: {}
  {{ end }}podSelector:
    matchLabels:
      app.kubernetes.io/part-of: kvarn
      app.kubernetes.io/component: operator
{{- end -}}

{{/* Pods of a model: (dict "name" model "component" name ["role" role]). */}}
{{- define "kvarn.modelPods" -}}
podSelector:
  matchLabels:
    kvarn.dev/model-service: {{ .name | quote }}
    app.kubernetes.io/component: {{ .component }}
    {{- with .role }}
    kvarn.dev/role: {{ . }}
    {{- end }}
{{- end -}}
